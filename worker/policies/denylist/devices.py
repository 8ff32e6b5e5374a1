"""Disks, memory, file systems."""

from __future__ import annotations

import re

from worker.policies.denylist.match import Match
from worker.policies.denylist.place import Place
from worker.shell import marks
from worker.shell.options import parse
from worker.shell.state import Call

_DEVICE = re.compile(
    r"/dev/(?:(?:sd|hd|vd|xvd)(?:[a-z\ue000-\ue008]|$)|(?:nvme|mmcblk|md|dm-|loop|n?st|sr|sg|fd|zram|ram|nbd|rbd|mtd|ubi|"
    r"mtdblock|bcache|drbd|zd|r?disk)(?:[\d\ue000-\ue008]|$)|mapper/|disk/|block/|mem$|kmem$|port$|root$|watchdog|nvram|"
    r"(?:vg|lv|cciss|rd)[\w-]*/)"
)
_FREE = re.compile(
    r"/dev/(null|zero|full|random|urandom|tty\w*|stdin|stdout|stderr|fd(/.*)?|shm(/.*)?|pts(/.*)?|ptmx|tcp/.*|udp/.*|log|mqueue(/.*)?|fuse|kvm|net/tun|dri(/.*)?|console)"
)
_MAKES = frozenset({
    "wipefs", "sfdisk", "fdisk", "cfdisk", "gdisk", "sgdisk", "cgdisk", "parted", "partprobe", "blkdiscard",
    "mkswap", "swapon", "swapoff", "losetup", "cryptsetup", "mdadm", "pvcreate", "pvremove", "vgcreate", "vgremove",
    "lvcreate", "lvremove", "vgreduce", "lvreduce", "tune2fs", "resize2fs", "e2fsck", "fsck", "debugfs",
    "xfs_repair", "xfs_admin", "hdparm", "nvme", "badblocks", "zpool", "zfs", "btrfs", "dmsetup", "mke2fs", "newfs",
    "diskutil", "sg_format", "kpartx", "flashrom", "flash_erase", "nandwrite", "fstrim", "partx", "delpart",
    "addpart", "resizepart", "swaplabel", "e2label", "fsfreeze", "pivot_root", "switch_root", "efibootmgr",
    "grub-install", "update-grub", "update-initramfs",
})  # fmt: skip
_LISTS = frozenset(
    {
        "-l",
        "--show",
        "--list",
        "-h",
        "--help",
        "-V",
        "--version",
        "list",
        "status",
        "-a",
        "--all",
        "-J",
        "--json",
        "print",
        "-s",
        "get",
        "-v",
    }
)


def is_device(path: str | None) -> bool:
    """Whether the path is a disk, memory or another device that must not be written."""
    if path is None or not path.startswith("/dev/"):
        return False
    if _DEVICE.match(path):
        return True
    return marks.has_glob(path) and not _FREE.fullmatch(path)


def judge(name: str, call: Call, place: Place) -> Match | None:
    """Writing to devices, making, changing and mounting file systems."""
    arguments = call.argv[1:]
    if re.fullmatch(r"mkfs(\.\w+)?|mkfs_\w+|newfs\w*|mkntfs|mkdosfs|mkexfatfs|mke2fs", name):
        return (
            None
            if not arguments or set(arguments) <= {"-V", "--version", "-h", "--help"}
            else Match("filesystem", f"{name} makes a file system")
        )
    if name in _MAKES and arguments and (not set(arguments) & _LISTS or (name == "swapoff" and "-a" in arguments)):
        return Match("filesystem", f"{name} changes disks or file systems")
    if (
        name in ("sfdisk", "fdisk", "parted", "wipefs", "sgdisk", "gdisk")
        and any(_DEVICE.match(word) for word in arguments)
        and not {"-l", "--list", "print"} & set(arguments)
    ):
        return Match("filesystem", f"{name} changes a disk")
    if (
        name in ("mount", "mount.nfs", "mount.cifs", "fusermount", "umount")
        and arguments
        and not set(arguments) <= {"-l", "-h", "--help", "-V", "--version"}
    ):
        parsed = parse(arguments, "tLUoOT", ("types", "options", "bind", "label", "uuid"))
        if parsed.operands or parsed.has("a", "all", "bind", "rbind", "move", "remount"):
            return Match("filesystem", f"{name} changes what is mounted")
    if name in (
        "dd",
        "dcfldd",
        "dc3dd",
        "ddrescue",
        "pv",
        "cat",
        "tee",
        "cp",
        "mv",
        "shred",
        "truncate",
        "install",
        "rm",
        "ln",
        "wipe",
        "scrub",
        "badblocks",
        "fallocate",
        "sponge",
        "xorriso",
        "cdrecord",
        "wodim",
        "socat",
        "tar",
    ):
        return _writes(name, call, place)
    return None


def _writes(name: str, call: Call, place: Place) -> Match | None:
    for at, word in enumerate(call.argv[1:], 1):
        if name in ("dd", "dcfldd", "dc3dd"):
            if not word.startswith(("of=", "of:=")):
                continue
            word = word.partition("=")[2]
        elif (
            (name in ("cp", "mv", "install", "ln", "ddrescue") and at != len(call.argv) - 1)
            or name in ("cat", "pv")
            or word.startswith("-")
        ):
            continue
        path = place.resolve(call.cwd, word)
        if is_device(path):
            return Match("device", f"it would write to the device {marks.plain(path or '')}")
    return None


def redirect(op: str, target: str, call: Call, place: Place) -> Match | None:
    """A redirection onto a device."""
    path = place.resolve(call.cwd, target)
    if is_device(path):
        return Match("device", f"it would write to the device {marks.plain(path or '')}")
    return None
