"""Removing a tree that somebody hostile may have made, and may still be changing: by descriptors, in bounded time."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTRIES_BETWEEN_GLANCES = 256


class _OutOfTime(Exception):
    pass


def remove_tree(dir_fd: int, name: bytes, *, budget_s: float) -> bool:
    """Removes a directory and all beneath it, no link followed; whether that is all gone. Never raises.

    However deep it is, two directories are open at a time: what lies deeper is first moved up.
    """
    try:
        os.rmdir(name, dir_fd=dir_fd)
        return True  # empty, as it mostly is
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            return False
    removal = None
    try:
        removal = _Removal(dir_fd, name, time.monotonic() + budget_s)
        removal.run()
        os.rmdir(name, dir_fd=dir_fd)
    except (OSError, _OutOfTime):
        return False
    finally:
        if removal is not None:
            removal.close()
    return True


class _Removal:
    def __init__(self, dir_fd: int, name: bytes, end: float) -> None:
        self._end = end
        self._count = 0
        self._top = _open(dir_fd, name)

    def close(self) -> None:
        os.close(self._top)

    def run(self) -> None:
        """Empties the topmost directory.

        Raises:
            OSError: something in it can't be removed.
            _OutOfTime: the rest is for another time.
        """
        while directories := self._empty(self._top):
            for name in directories:
                self._glance()
                fd = _open(self._top, name)
                try:
                    for deeper in self._empty(fd):
                        self._move_up(fd, deeper)
                finally:
                    os.close(fd)
                os.rmdir(name, dir_fd=self._top)

    def _empty(self, fd: int) -> list[bytes]:
        """Removes all but the directories, and says which those are."""
        directories = []
        for name in map(os.fsencode, os.listdir(fd)):
            self._glance()
            if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                directories.append(name)
            else:
                os.unlink(name, dir_fd=fd)
        return directories

    def _move_up(self, fd: int, name: bytes) -> None:
        self._glance()
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError:
            os.close(_open(fd, name))  # which makes it ours to move
            os.rename(name, b"x" + secrets.token_hex(8).encode(), src_dir_fd=fd, dst_dir_fd=self._top)

    def _glance(self) -> None:
        self._count += 1
        if self._count % _ENTRIES_BETWEEN_GLANCES == 0 and time.monotonic() > self._end:
            raise _OutOfTime


def _open(dir_fd: int, name: bytes) -> int:
    """The directory, for reading, with all rights for its owner: who made it may have taken them away."""
    handle = os.open(name, _HANDLE, dir_fd=dir_fd)
    try:
        path = f"/proc/self/fd/{handle}"
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & 0o700 != 0o700:
            os.chmod(path, mode | 0o700)
        return os.open(path, _OPEN & ~os.O_NOFOLLOW)
    finally:
        os.close(handle)
