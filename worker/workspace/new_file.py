"""A file on its way into a directory: without a name where the file system allows that, else with a temporary one."""

from __future__ import annotations

import errno
import fcntl
import os

from worker.workspace.temps import new_name

_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class NewFile:
    """`fd` is open for writing. `put_new` or `put_over` gives it its name; `close` without either leaves nothing.

    Raises:
        OSError: no file can be made in the directory.
    """

    def __init__(self, dir_fd: int, mode: int) -> None:
        self._dir_fd = dir_fd
        self._name: bytes | None = None
        self.fd = -1
        try:
            self.fd = os.open(b".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode, dir_fd=dir_fd)
        except OSError as error:
            if error.errno not in _NO_UNNAMED:
                raise
        if self.fd >= 0 and not os.access(self._unnamed, os.F_OK):
            self.close()  # without /proc it could never get a name
        if self.fd >= 0:
            self._lock()
        else:
            self._open_named(mode)

    def put_new(self, name: bytes) -> None:
        """Gives it a name that nothing has yet.

        Raises:
            FileExistsError: something has it.
        """
        if self._name is None:
            self._link(name)
            return
        try:
            os.link(self._name, name, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if _exists(self._dir_fd, name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            self._rename(name)
        else:
            os.unlink(self._name, dir_fd=self._dir_fd)
            self._name = None

    def put_over(self, name: bytes) -> None:
        """Gives it a name that another file has, which loses it in the same instant."""
        if self._name is None:
            temporary = new_name()
            self._link(temporary)
            self._name = temporary
        self._rename(name)

    def close(self) -> None:
        """Closes it, and removes its temporary name if it still has one; again does no harm."""
        if self._name is not None:
            os.unlink(self._name, dir_fd=self._dir_fd)
            self._name = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def _unnamed(self) -> bytes:
        return b"/proc/self/fd/%d" % self.fd

    def _link(self, name: bytes) -> None:
        os.link(self._unnamed, name, dst_dir_fd=self._dir_fd, follow_symlinks=True)

    def _rename(self, name: bytes) -> None:
        os.rename(self._name or b"", name, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        self._name = None

    def _open_named(self, mode: int) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        while self._name is None:
            name = new_name()
            self.fd = os.open(name, flags, mode, dir_fd=self._dir_fd)
            self._lock()
            # A sweeper may have come between the two lines above.
            if os.fstat(self.fd).st_nlink:
                self._name = name
            else:
                os.close(self.fd)

    def _lock(self) -> None:
        """Tells sweepers that the writer lives."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # no locks here, or a sweeper has it for a moment: the name's process id and start time tell the same


def _exists(dir_fd: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
