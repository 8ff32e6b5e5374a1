"""A workspace: wire path -> open file beneath the root. Nothing else opens an agent's files."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from dataclasses import dataclass
from types import TracebackType

from worker.disk_usage import Usage
from worker.workspace.beneath import Opener, Place
from worker.workspace.faults import NotRegular, Outside, kind_of
from worker.workspace.names import Spot, locate_checked, to_wire
from worker.workspace.scratch import Scratch, make_scratch, sweep_scratch
from worker.workspace.spill import Spills
from worker.workspace.temps import is_temp, sweep_tree

STATE_DIRECTORY = b".toolreef"
"""In a workspace's root: the worker's own, hidden from listings and searches that don't name it."""

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_SCRATCHES = 8
_LOCAL_FILE_SYSTEMS = {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1}
"""ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS: a look-up that is cached there waits for nobody."""


@dataclass(slots=True)
class Opened:
    """A descriptor, what fstat said of it, and its canonical path from the root as bytes (`.` for the root)."""

    fd: int
    stat: os.stat_result
    path: bytes

    @property
    def wire_path(self) -> str:
        """The path as it travels."""
        return to_wire(self.path)

    def close(self) -> None:
        """Gives the descriptor back; again does no harm."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A cancelled call may have left a thread working on the descriptor: it holds this object, and ends it.
        if kind is None or issubclass(kind, Exception):
            self.close()

    def __del__(self) -> None:
        self.close()


class Workspace:
    """The tree that a session's files live in. Opened once by the trusted side; the name is never resolved again.

    `root` is its canonical absolute path; `roots` are all spellings that an absolute path may begin with.
    """

    def __init__(self, root_fd: int, root: str, roots: tuple[str, ...]) -> None:
        self._root_fd = root_fd
        self.root = root
        self.roots = roots
        self._opener = Opener(root_fd, tuple(map(os.fsencode, roots)))
        self._local = _file_system_of(root_fd) in _LOCAL_FILE_SYSTEMS
        self.spills = Spills(self._opener)
        self._usage: Usage | None = None
        self._scratches: list[Scratch] = []

    @classmethod
    def open(cls, root: str, *, create: bool = True) -> Workspace:
        """The workspace in the directory `root`, which may be a link; made if it is missing and `create` is true.

        Raises:
            OSError: it is missing, no directory, or can't be made or opened.
        """
        spelled = os.path.abspath(root)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            fd = os.open(spelled, flags)
        except FileNotFoundError:
            if not create:
                raise
            os.makedirs(spelled, exist_ok=True)
            fd = os.open(spelled, flags)
        try:
            canonical = _path_of(fd) or os.path.realpath(spelled)
            return cls(fd, canonical, (canonical,) if spelled == canonical else (canonical, spelled))
        except BaseException:
            os.close(fd)
            raise

    def close(self) -> None:
        """Gives the root's descriptor back, and what was kept for commands."""
        while self._scratches:
            self._scratches.pop().close()
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1

    def __del__(self) -> None:
        # Opened anew for each call, and still in use where a thread outlives it.
        self.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def usage(self) -> Usage:
        """How much all of it takes on disk."""
        if self._usage is None:
            self._usage = Usage(self._root_fd)
        return self._usage

    def locate(self, path: str) -> Spot:
        """Where a wire path points, by its text alone.

        Raises:
            InvalidPath: it can't name anything.
            Outside: it does not point beneath the root.
        """
        return locate_checked(path, self.roots)

    def open_file(self, spot: Spot) -> Opened:
        """The regular file at the spot, open for reading. Never waits for a FIFO or a device.

        Raises:
            NotRegular: a FIFO, socket or device.
            Outside: a link leads out of the workspace.
            OSError: as open(2); IsADirectoryError for a directory.
        """
        try:
            fd = self._opener.open(spot.parts, _READ)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise NotRegular(self._kind_at(spot)) from None
            raise
        return self._regular(fd, spot)

    def open_file_cached(self, spot: Spot) -> Opened | None:
        """As `open_file`, if it can be done without waiting for a disk or a network; else None.

        Raises:
            NotRegular: a FIFO, socket or device.
            OSError: IsADirectoryError for a directory.
        """
        if not self._local:
            return None
        fd = self._opener.open_cached(spot.parts, _READ, links=False)
        if fd is not None:
            return self._regular(fd, spot, spot.relative)
        fd = self._opener.open_cached(spot.parts, _READ)
        return None if fd is None else self._regular(fd, spot)

    def open_directory(self, spot: Spot) -> Opened:
        """The directory at the spot, open for reading.

        Raises:
            Outside: a link leads out of the workspace.
            OSError: as open(2); NotADirectoryError for anything else.
        """
        fd = self._opener.open(spot.parts, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return Opened(fd, os.fstat(fd), self._canonical(fd, spot))

    def look(self, spot: Spot) -> Opened:
        """What stands at the spot, links followed, as a descriptor that reads nothing (O_PATH).

        Raises:
            Outside: a link leads out of the workspace.
            OSError: as open(2).
        """
        fd = self._opener.open(spot.parts, os.O_PATH | os.O_CLOEXEC)
        return Opened(fd, os.fstat(fd), self._canonical(fd, spot))

    def place(self, spot: Spot, *, make_parents: bool = False) -> Place:
        """The directory and the name that writing to the spot means, links followed.

        Raises:
            Outside: a link leads out of the workspace.
            IsADirectoryError: the spot is the root, or ends in a slash.
            OSError: a directory on the way is missing, is none, or can't be made or entered.
        """
        place = self._opener.resolve(spot.parts, make_parents=make_parents)
        if place.name is None or spot.directory:
            place.close()
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return place

    def enter(self, place: Place, flags: int) -> int:
        """A descriptor of what stands at the place now.

        Raises:
            Outside: another file system is mounted there.
            OSError: as open(2).
        """
        return self._opener.enter(place.dir_fd, place.name or b".", flags)

    def enter_directory(self, dir_fd: int, name: bytes) -> int:
        """A descriptor, for reading, of a directory that stands in another under that name and is no link.

        Raises:
            Outside: another file system is mounted there.
            OSError: as open(2).
        """
        return self._opener.enter(dir_fd, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def sweep(self, *, budget_s: float = 5.0) -> int:
        """Removes temporary files of writers and commands that died; how many. Blocking, about `budget_s` at most."""
        swept = sweep_scratch(self._opener, self._root_fd, budget_s=budget_s / 2)
        return swept + sweep_tree(self._root_fd, budget_s=budget_s / 2)

    def make_scratch(self) -> Scratch:
        """A directory for one command's temporary files.

        Raises:
            OSError: it can't be made.
            Outside: `.toolreef` was made to lead out of the workspace.
        """
        while self._scratches:
            scratch = self._scratches.pop()
            if scratch.is_as_new(self._opener, self._root_fd):
                return scratch
            scratch.close()
        return make_scratch(self._opener)

    def keep_scratch(self, scratch: Scratch) -> bool:
        """Keeps it for the next command, whether it could be; else it is to be removed.

        To make one and remove it takes some file systems half a millisecond.
        """
        if len(self._scratches) < _MAX_SCRATCHES and scratch.is_as_new(self._opener, self._root_fd):
            self._scratches.append(scratch)
            return True
        return False

    def path_of(self, place: Place) -> bytes:
        """The canonical path of a place, from the root."""
        above = self._canonical(place.dir_fd, Spot(()))
        return place.name or b"." if above == b"." else above + b"/" + (place.name or b".")

    def _regular(self, fd: int, spot: Spot, canonical: bytes | None = None) -> Opened:
        try:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(found.st_mode):
                raise NotRegular(kind_of(found.st_mode))
            if spot.directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            return Opened(fd, found, self._canonical(fd, spot) if canonical is None else canonical)
        except BaseException:
            os.close(fd)
            raise

    def _kind_at(self, spot: Spot) -> str:
        with self.look(spot) as opened:
            return kind_of(opened.stat.st_mode)

    def _canonical(self, fd: int, spot: Spot) -> bytes:
        """The opened object's path by the kernel's word, so that links in the way it was asked for do not count."""
        try:
            path = os.readlink(f"/proc/self/fd/{fd}".encode())
            root = os.readlink(f"/proc/self/fd/{self._root_fd}".encode())
        except OSError:
            return spot.relative  # no /proc: the spelling is all there is
        if path == root:
            return b"."
        inside = path.removeprefix(root.rstrip(b"/") + b"/")
        if inside == path:
            raise Outside  # moved out since it was opened
        return inside.removesuffix(b" (deleted)") if os.fstat(fd).st_nlink == 0 else inside


def is_hidden(path: bytes) -> bool:
    """Whether a path from the root is the worker's own: its state directory, or a file that is being written."""
    first, _, _ = path.partition(b"/")
    return first == STATE_DIRECTORY or is_temp(path.rpartition(b"/")[2])


def _path_of(fd: int) -> str | None:
    """The directory's canonical path by the kernel's word; None where /proc is not mounted."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return None


class _Statfs(ctypes.Structure):
    _fields_ = (("type", ctypes.c_long), ("rest", ctypes.c_char * 512))


_fstatfs = ctypes.CDLL(None, use_errno=True).fstatfs
_fstatfs.argtypes = (ctypes.c_int, ctypes.POINTER(_Statfs))


def _file_system_of(fd: int) -> int:
    found = _Statfs()
    return int(found.type) if _fstatfs(fd, ctypes.byref(found)) == 0 else 0
