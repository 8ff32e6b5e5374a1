"""Replacing a file as a whole or not at all, with other writers kept out meanwhile.

The lock is a flock on the file that is being replaced, so it belongs to the inode and not to a spelling, holds between
processes and between hosts that share the volume, and is gone with its holder. Whoever gets it looks whether the name
still means the inode it locked. A file that does not exist yet is not locked: it is put in place by a link, which
fails if somebody else was first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time

from worker.workspace.beneath import Place, undo
from worker.workspace.faults import Busy, Conflict, HardLinked, NotRegular, ReadOnly, Stopped, kind_of
from worker.workspace.metadata import keep
from worker.workspace.new_file import NewFile
from worker.workspace.root import Workspace
from worker.workspace.temps import sweep_directory

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
_SWEEP_EVERY_S = 5.0
_swept: dict[tuple[int, int], float] = {}


class Replacement:
    """One attempt at replacing the file at a place: `begin`, `write`, `commit`, and `close` in any case.

    After `begin`, `fd` and `stat` are of the file as it is, or None where there is none. Blocking: call it from a
    thread. `stop` set by another thread ends the waiting, and forbids the commit.
    """

    def __init__(self, workspace: Workspace, place: Place, stop: threading.Event, *, wait_s: float = 10.0) -> None:
        self._workspace = workspace
        self._place = place
        self._stop = stop
        self._wait_s = wait_s
        self._new: NewFile | None = None
        self._committed = False
        self._committed_stat: os.stat_result | None = None
        self.fd: int | None = None
        self.stat: os.stat_result | None = None
        self.notes: list[str] = []

    def begin(self) -> None:
        """Opens and locks the file as it is.

        Raises:
            NotRegular, HardLinked, IsADirectoryError, ReadOnly: it may not be replaced.
            Busy: another writer has held it for `wait_s`.
            Stopped: `stop` was set.
        """
        _sweep_sometimes(self._place.dir_fd)
        end = time.monotonic() + self._wait_s
        while self._open():
            self._lock(end)
            if self._is_still_there():
                self._check()
                return
            self._release()
            self.stat = None
            if time.monotonic() > end:
                raise Busy

    def write(self, data: bytes) -> None:
        """Adds data to the new file.

        Raises:
            OSError: no space, quota, size limit.
        """
        view = memoryview(data)
        fd = self.open_temp()
        while view:
            view = view[os.write(fd, view) :]

    def open_temp(self) -> int:
        """The descriptor of the new file, not yet in place."""
        return self._new_file().fd

    def commit(self) -> None:
        """Puts the new file in place; it is on disk when this returns. `notes` says what could not be kept.

        Raises:
            Conflict: the file changed meanwhile under a writer that does not lock.
            FileExistsError: there was no file, and now there is one.
            Stopped: `stop` was set.
            OSError: nothing was changed.
        """
        name = self._place.name or b""
        new = self._new_file()
        if self.fd is not None:
            self.notes += keep(self.fd, new.fd)
        os.fsync(new.fd)
        if self._stop.is_set():
            raise Stopped
        if self.fd is None:
            new.put_new(name)
        else:
            self._refuse_if_changed()
            new.put_over(name)
        self._committed = True
        self._committed_stat = os.fstat(new.fd)
        for dir_fd in (self._place.dir_fd, *(fd for fd, _ in self._place.made)):
            _sync_directory(dir_fd)

    @property
    def committed_stat(self) -> os.stat_result:
        """What fstat says of the new file, in its place.

        Raises:
            RuntimeError: it was not committed.
        """
        if self._committed_stat is None:
            raise RuntimeError("commit comes first")
        return self._committed_stat

    def close(self) -> None:
        """Gives up locks and descriptors; what was not committed is gone, with the directories made for it."""
        if self._new:
            self._new.close()
        self._release()
        if not self._committed:
            undo(self._place)
        self._place.close()

    def __del__(self) -> None:
        # A cancelled call leaves it to whatever thread still holds this object.
        self.close()

    def _open(self) -> bool:
        try:
            self.fd = self._workspace.enter(self._place, _OPEN)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise NotRegular("socket") from None
            raise
        self._check()
        return True

    def _check(self) -> None:
        fd = self.fd if self.fd is not None else -1
        found = self.stat = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular(kind_of(found.st_mode))
        if found.st_nlink > 1:
            # A writer that died between its last two steps leaves a second name, which is ours to remove.
            sweep_directory(self._place.dir_fd)
            found = self.stat = os.fstat(fd)
            if found.st_nlink > 1:
                raise HardLinked(found.st_nlink)
        # Also for root, whom the kernel lets write everything: who takes the bits away means it.
        allowed = found.st_mode & 0o222 and os.access(
            self._place.name or b".", os.W_OK, dir_fd=self._place.dir_fd, effective_ids=True, follow_symlinks=False
        )
        if not allowed:
            raise ReadOnly(found.st_mode)

    def _lock(self, end: float) -> None:
        pause = 0.0005
        while True:
            try:
                fcntl.flock(self.fd if self.fd is not None else -1, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno == errno.EBADF:  # NFS wants a descriptor that may write
                    writable = self._workspace.enter(self._place, _OPEN & ~os.O_RDONLY | os.O_RDWR)
                    self._release()
                    self.fd = writable
                    continue
                if error.errno in _NO_LOCKS:
                    self.notes.append("this file system has no locks: other writers were not kept out")
                    return
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
            if time.monotonic() > end:
                raise Busy
            if self._stop.wait(pause):
                raise Stopped
            pause = min(pause * 2, 0.02)

    def _is_still_there(self) -> bool:
        try:
            now = os.stat(self._place.name or b".", dir_fd=self._place.dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(now, os.fstat(self.fd if self.fd is not None else -1))

    def _refuse_if_changed(self) -> None:
        before = self.stat
        try:
            now = os.stat(self._place.name or b".", dir_fd=self._place.dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            raise Conflict("the file was removed or renamed meanwhile") from None
        if before is None or not os.path.samestat(now, before):
            raise Conflict("another file was put in its place meanwhile")
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise Conflict(f"the file was written meanwhile: it had {before.st_size} bytes, it has {now.st_size}")
        if now.st_nlink > 1:
            raise HardLinked(now.st_nlink)

    def _new_file(self) -> NewFile:
        if self._new is None:
            self._new = NewFile(self._place.dir_fd, 0o600 if self.fd is not None else 0o666)
        return self._new

    def _release(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
        self.fd = None


def _sync_directory(dir_fd: int) -> None:
    try:
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    except PermissionError:
        return  # a directory that may be written but not read
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems have nothing to sync
            raise
    finally:
        os.close(fd)


def _sweep_sometimes(dir_fd: int) -> None:
    found = os.fstat(dir_fd)
    key = (found.st_dev, found.st_ino)
    now = time.monotonic()
    if now - _swept.get(key, -_SWEEP_EVERY_S) < _SWEEP_EVERY_S:
        return
    if len(_swept) > 4096:
        _swept.clear()
    _swept[key] = now
    try:
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return
    try:
        sweep_directory(fd)
    finally:
        os.close(fd)
