"""Locks that the kernel drops with their holder (flock), and the private files beside them."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL_S = 0.002


def make_private(home: Path) -> None:
    """Makes the directory, and its parents, for nobody else to enter.

    Raises:
        OSError: it can't be made, is something else, or belongs to somebody else.
    """
    try:
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, f"{error.filename} is not a directory") from None
    found = home.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"it belongs to user {found.st_uid}, not {os.geteuid()}")
    if found.st_mode & 0o077:
        home.chmod(0o700)


def make_short_directory() -> Path:
    """A new private directory whose path is short: where a socket's path would be too long in its own place."""
    own = Path(f"/run/user/{os.geteuid()}")
    base = own if os.access(own, os.W_OK) else Path("/tmp")  # noqa: S108 (mkdtemp makes a private one in it)
    return Path(tempfile.mkdtemp(prefix="toolreef-", dir=base))


def is_private(directory: Path) -> bool:
    """Whether it is a directory of ours that nobody else may enter."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def open_log(path: Path, max_bytes: int) -> int:
    """A descriptor to append to the log by; a log that has grown past `max_bytes` begins anew."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if path.exists() and path.stat().st_size > max_bytes:
        flags |= os.O_TRUNC
    return os.open(path, flags, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Writes the whole file or nothing, so that a reader or a crash never sees half of it."""
    scratch = path.with_name(path.name + ".new")
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    scratch.replace(path)


def read_or_make_secret(path: Path) -> str:
    """The secret in the file, 48 hex digits where it is made now. Call it under a lock."""
    with suppress(FileNotFoundError):
        return path.read_text(encoding="ascii")
    write_private(path, secrets.token_hex(24).encode())
    return path.read_text(encoding="ascii")


def open_lock(path: Path) -> int:
    """A descriptor to lock by. Each opening is a holder of its own, also within one process."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def try_lock(descriptor: int) -> bool:
    """Whether the exclusive lock could be had, now. A shared lock held by the same descriptor turns into it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int, deadline: float) -> bool:
    """Whether the exclusive lock could be had until the deadline, on the clock of time.monotonic()."""
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


@contextmanager
def exclusive(path: Path, deadline: float) -> Iterator[None]:
    """Holds the lock meanwhile.

    Raises:
        TimeoutError: somebody else held it until the deadline.
    """
    descriptor = open_lock(path)
    try:
        if not wait_for_lock(descriptor, deadline):
            raise TimeoutError(errno.ETIMEDOUT, f"{path} is held by another process")
        yield
    finally:
        os.close(descriptor)
