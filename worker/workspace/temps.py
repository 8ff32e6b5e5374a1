"""Names of files that are being written, and the removal of those whose writer died.

The writer holds a flock on its temporary file, which the kernel drops when it dies, in whatever container or on
whatever host it ran; on this host the name's process id and start time tell too, where locks do not work.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import os
import secrets
import stat
import time

_PREFIX = b".toolreef-tmp."
_STALE_S = 24 * 3600.0


def is_temp(name: bytes) -> bool:
    """Whether a file of that name is one being written."""
    return name.startswith(_PREFIX)


def new_name() -> bytes:
    """A fresh temporary name: `.toolreef-tmp.<boot and pid namespace>.<pid>.<start time>.<random>`."""
    pid = os.getpid()
    return b"%s%s.%d.%d.%s" % (_PREFIX, _here(), pid, _own_start(pid), secrets.token_hex(6).encode())


def sweep_directory(dir_fd: int) -> int:
    """Removes what dead writers left in one directory; how many files that were. Never raises for a single file."""
    removed = 0
    for name in os.listdir(dir_fd):
        if is_temp(raw := os.fsencode(name)):
            removed += _remove_if_dead(dir_fd, raw)
    return removed


def sweep_tree(root_fd: int, *, budget_s: float = 5.0) -> int:
    """`sweep_directory` for a whole tree, links not followed, at most `budget_s` long; how many files it removed."""
    end = time.monotonic() + budget_s
    removed = 0
    try:
        for _, _, names, dir_fd in os.fwalk(b".", dir_fd=root_fd):
            removed += sum(_remove_if_dead(dir_fd, name) for name in names if is_temp(name))
            if time.monotonic() > end:
                break
    except (OSError, RecursionError):
        pass  # a directory that vanished, or a tree of a depth that only malice makes
    return removed


def _remove_if_dead(dir_fd: int, name: bytes) -> bool:
    try:
        fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return False  # gone, or not ours to judge
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not is_dead(fd, name, found.st_mtime):
            return False
        os.unlink(name, dir_fd=dir_fd)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def is_dead(fd: int, name: bytes, modified: float) -> bool:
    """Whether the maker of an open temporary file or directory is gone. If so, `fd` holds its lock from now on."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
    try:
        here, pid, start, _ = name.removeprefix(_PREFIX).split(b".")
        if here == _here():
            return _start_of(int(pid)) != int(start)
    except ValueError:
        pass  # somebody else's idea of a temporary name: only age can tell
    return time.time() - modified > _STALE_S


@functools.cache
def _here() -> bytes:
    """What makes a process id unique: this boot of this host, and the pid namespace in it."""
    parts = [os.uname().nodename]
    try:
        parts.append(os.readlink("/proc/self/ns/pid"))
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read())
    except OSError:
        pass  # without /proc the host's name has to do
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10].encode()


@functools.cache
def _own_start(pid: int) -> int:
    return _start_of(pid) or 0


def _start_of(pid: int) -> int | None:
    """The process' start in clock ticks since boot; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
