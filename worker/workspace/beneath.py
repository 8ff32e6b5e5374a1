"""Opening beneath a root descriptor, so that no name and no link leads out, whatever is swapped meanwhile.

`openat2` does it in the kernel. A walk over directory descriptors stands in where the kernel or a seccomp profile has
no openat2, and follows absolute links that point back inside, which openat2 refuses. Both stay on one mount.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from worker.workspace.faults import Outside

_SYS_OPENAT2 = 437
_NO_XDEV = 0x01
_NO_MAGICLINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08
_CACHED = 0x20
_CONFINED = _BENEATH | _NO_MAGICLINKS | _NO_XDEV
_MAX_LINKS = 40
_MAX_TRIES = 256
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t)
_HOW_BYTES = ctypes.sizeof(_How)


@functools.lru_cache(maxsize=64)
def _how(flags: int, resolve: int) -> Any:
    """For openat2, which only reads it. Making one costs more than the call."""
    return ctypes.byref(_How(flags, 0, resolve))


@dataclass(slots=True)
class Place:
    """Where a file is or will be: a descriptor of its directory and its name, which is no link; None for the root.

    `made` are the directories made on the way, each as its parent's descriptor and its name, for taking back.
    """

    dir_fd: int
    name: bytes | None
    made: list[tuple[int, bytes]] = field(default_factory=list)

    def close(self) -> None:
        """Gives the descriptors back; again does no harm."""
        for fd in (self.dir_fd, *(fd for fd, _ in self.made)):
            if fd >= 0:
                os.close(fd)
        self.dir_fd = -1
        self.made = []


class Opener:
    """Opens beneath one root. `spellings` are the absolute paths by which links may name the root."""

    def __init__(self, root_fd: int, spellings: tuple[bytes, ...]) -> None:
        self._root_fd = root_fd
        self._spellings = tuple([part for part in spelling.split(b"/") if part] for spelling in spellings)
        self.has_openat2 = _has_openat2()

    def open(self, parts: tuple[bytes, ...], flags: int) -> int:
        """A descriptor of what stands at the parts, links followed as long as they stay beneath the root.

        Raises:
            Outside: a link leads out, or another file system is mounted on the way.
            OSError: as open(2).
        """
        if self.has_openat2:
            try:
                return _openat2(self._root_fd, b"/".join(parts) or b".", flags, _CONFINED)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
        for _ in range(_MAX_TRIES):
            place = self.resolve(parts)
            try:
                return self.enter(place.dir_fd, place.name or b".", flags | os.O_NOFOLLOW)
            except OSError as error:
                # A link where there was none a moment ago: look again.
                if error.errno != errno.ELOOP:
                    raise
            finally:
                place.close()
        raise BlockingIOError(errno.EAGAIN, "the path keeps changing")

    def open_cached(self, parts: tuple[bytes, ...], flags: int, *, links: bool = True) -> int | None:
        """As `open`, if the kernel can do it without waiting for a disk or a network; else None.

        Without `links` also None where a link stands on the way: then the parts are the path of what was opened.
        """
        if not self.has_openat2:
            return None
        how = _how(flags | os.O_CLOEXEC, _CONFINED | _CACHED | (0 if links else _NO_SYMLINKS))
        fd: int = _syscall(_SYS_OPENAT2, self._root_fd, b"/".join(parts) or b".", how, _HOW_BYTES)
        return fd if fd >= 0 else None

    def resolve(self, parts: tuple[bytes, ...], *, make_parents: bool = False) -> Place:
        """The directory and the name that the parts lead to, after all links; the name itself may be missing.

        Raises:
            Outside: a link leads out, or another file system is mounted on the way.
            OSError: a directory on the way is missing, is none, or can't be entered.
        """
        todo = deque(parts)
        path = [os.dup(self._root_fd)]
        place = Place(-1, None)
        links = 0
        try:
            while todo:
                name = todo.popleft()
                if name == b"..":
                    if len(path) == 1:
                        raise Outside
                    os.close(path.pop())
                    continue
                link = _read_link(path[-1], name)
                if link is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    onward = [part for part in link.split(b"/") if part not in (b"", b".")]
                    if link.startswith(b"/"):
                        onward = self._inside(onward)
                        while len(path) > 1:
                            os.close(path.pop())
                    todo.extendleft(reversed(onward))
                elif todo:
                    path.append(self._step(path[-1], name, place if make_parents else None))
                else:
                    place.name = name
            place.dir_fd = path.pop()
        except BaseException:
            undo(place)
            raise
        finally:
            for fd in path:
                os.close(fd)
        return place

    def _inside(self, target: list[bytes]) -> list[bytes]:
        for spelling in self._spellings:
            if target[: len(spelling)] == spelling:
                return target[len(spelling) :]
        raise Outside

    def _step(self, dir_fd: int, name: bytes, making: Place | None) -> int:
        try:
            return self.enter(dir_fd, name, _STEP)
        except FileNotFoundError:
            if making is None:
                raise
        try:
            os.mkdir(name, dir_fd=dir_fd)
            making.made.append((os.dup(dir_fd), name))
        except FileExistsError:
            pass  # somebody else made it meanwhile
        return self.enter(dir_fd, name, _STEP)

    def enter(self, dir_fd: int, name: bytes, flags: int) -> int:
        """A descriptor of one name in a directory.

        Raises:
            Outside: it is a link that leads out, or another file system is mounted there.
            OSError: as open(2).
        """
        if self.has_openat2:
            try:
                return _openat2(dir_fd, name, flags, _CONFINED)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    raise Outside from None
                raise
        fd = os.open(name, flags | os.O_CLOEXEC, dir_fd=dir_fd)
        if _mount_of(fd) != _mount_of(self._root_fd):
            os.close(fd)
            raise Outside
        return fd


def undo(place: Place) -> None:
    """Removes the directories made for a place, as far as they are still empty, and forgets them."""
    for fd, name in reversed(place.made):
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError:
            pass  # somebody else uses it already
        os.close(fd)
    place.made = []


def _openat2(dir_fd: int, path: bytes, flags: int, resolve: int) -> int:
    how = _How(flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_MAX_TRIES):
        fd: int = _syscall(_SYS_OPENAT2, dir_fd, path, ctypes.byref(how), _HOW_BYTES)
        if fd >= 0:
            return fd
        # EAGAIN: something on the way was renamed during the look-up, and the kernel can't tell whether it got out.
        if (code := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code))
    raise BlockingIOError(errno.EAGAIN, "the path keeps changing")


@functools.cache
def _has_openat2() -> bool:
    root = os.open("/", _STEP)
    try:
        os.close(_openat2(root, b".", _STEP, _CONFINED))
    except OSError:
        return False  # ENOSYS before Linux 5.6, EPERM behind some seccomp profiles
    finally:
        os.close(root)
    return True


def _read_link(dir_fd: int, name: bytes) -> bytes | None:
    try:
        return os.readlink(name, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def _mount_of(fd: int) -> object:
    """What tells mounts apart: the mount's id, or the device where /proc is not mounted."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as info:
            return next(line for line in info if line.startswith(b"mnt_id:"))
    except (OSError, StopIteration):
        return os.fstat(fd).st_dev
