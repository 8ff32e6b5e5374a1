"""Commands that a glob or half-known command word may stand for."""

from __future__ import annotations

from worker.shell.code import INTERPRETERS
from worker.shell.launch_table import LAUNCHERS
from worker.shell.shells import SHELLS
from worker.shell.wrappers import ROWS, SPECIAL

DANGEROUS = frozenset(
    "rm rmdir unlink shred srm wipe truncate dd mv cp sudo su doas pkexec run0 sudoedit runuser gosu su-exec visudo "
    "mkfs mkswap wipefs fdisk sfdisk cfdisk parted sgdisk blkdiscard mount umount losetup cryptsetup "
    "reboot shutdown halt poweroff init telinit systemctl chmod chown chgrp chattr setfacl setcap insmod rmmod modprobe "
    "kexec crontab at iptables nft ufw kill killall pkill killall5 docker podman nsenter chroot useradd usermod userdel "
    "passwd chpasswd tee install ln eval curl wget".split()
)
COMMANDS: frozenset[str] = DANGEROUS | frozenset(INTERPRETERS) | frozenset(LAUNCHERS) | SHELLS | frozenset(ROWS) | frozenset(SPECIAL)
