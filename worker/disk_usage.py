"""How much of the disk a directory's tree takes, found by looking at every file, and reckoned on between two looks."""

from __future__ import annotations

import os
import stat
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

MAX_ENTRIES = 2_000_000
"""One look takes in so many; a larger tree is judged by as much of it."""
SLACK_BYTES = 1024 * 1024
"""What a command may add where there is too much already: it writes a little in order to remove much."""

_BLOCK_BYTES = 512
_FRESH_S = 2.0
_FRESH_COSTS = 20.0
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOKING = ThreadPoolExecutor(max_workers=2, thread_name_prefix="usage")


class Usage:
    """Of one tree. Looks take a thread each; one that is under way is shared by all who ask for it."""

    _root_fd = -1

    def __init__(self, root_fd: int) -> None:
        self._root_fd = os.dup(root_fd)
        self._lock = threading.Lock()
        self._look: Future[int] | None = None
        self._looked_at = 0.0
        self._lowest_over: int | None = None
        self.bytes: int | None = None
        """As of the last look, and what was reckoned since; None before the first."""
        self.cost_s = 0.0
        """What the last look took."""

    def __del__(self) -> None:
        if self._root_fd >= 0:
            os.close(self._root_fd)

    @property
    def is_due(self) -> bool:
        """Whether the last look is so old that others may have changed much."""
        fresh_s = max(_FRESH_S, _FRESH_COSTS * self.cost_s)
        return self.bytes is None or time.monotonic() - self._looked_at > fresh_s

    def look(self) -> Future[int]:
        """The bytes that are allocated to all files and directories, each counted once however many names it has."""
        with self._lock:
            if self._look is None or self._look.done():
                self._look = _LOOKING.submit(self._measure)
            return self._look

    def reckon(self, more_bytes: int) -> None:
        """Notes what is about to be added, until the next look tells."""
        with self._lock:
            if self.bytes is not None:
                self.bytes += more_bytes

    def ceiling(self, allowed_bytes: int) -> int:
        """How much there may be: what is allowed, or where there is more already not much more than that was."""
        with self._lock:
            if self.bytes is None or self.bytes <= allowed_bytes:
                self._lowest_over = None
                return allowed_bytes
            # The lowest that was ever seen, so that the slack of many commands does not add up.
            self._lowest_over = min(self.bytes, self._lowest_over or self.bytes)
            return self._lowest_over + SLACK_BYTES

    def _measure(self) -> int:
        started = time.monotonic()
        found = tree_bytes(self._root_fd)
        now = time.monotonic()
        with self._lock:
            self.bytes, self.cost_s, self._looked_at = found, now - started, now
        return found


@dataclass(slots=True)
class _Level:
    """A directory on the way down, and those in it that are still to be looked at."""

    name: str
    identity: tuple[int, int]
    closed_mode: int | None = None
    """What its mode was if it had to be opened up, for as long as we are in it or below."""
    pending: list[str] = field(default_factory=list)


def tree_bytes(root_fd: int, *, max_entries: int = MAX_ENTRIES) -> int:
    """What a tree takes on its own file system. Follows no link, whatever is moved meanwhile.

    One descriptor however deep the tree is: the way back up is `..`, if that is still what it was.
    """
    walk = _Walk(root_fd, max_entries)
    try:
        return walk.total()
    finally:
        walk.close()


class _Walk:
    def __init__(self, root_fd: int, max_entries: int) -> None:
        self._root_fd = root_fd
        self._left = max_entries
        self._fd = os.open(".", _OPEN, dir_fd=root_fd)
        found = os.fstat(self._fd)
        self._device = found.st_dev
        self._bytes = found.st_blocks * _BLOCK_BYTES
        self._linked: set[int] = set()
        self._levels: list[_Level] = []
        self._arrive(_Level("", _identity(found)))

    def close(self) -> None:
        os.close(self._fd)

    def total(self) -> int:
        while self._levels:
            level = self._levels[-1]
            if level.pending and self._left > 0:
                self._down(level.pending.pop())
            else:
                self._up()
        return self._bytes

    def _arrive(self, level: _Level) -> None:
        self._levels.append(level)
        try:
            entries = os.scandir(self._fd)
        except OSError:
            return
        with entries:
            for entry in entries:
                self._left -= 1
                if self._left <= 0:
                    return
                try:
                    self._take(entry.name, entry.stat(follow_symlinks=False), level)
                except OSError:
                    continue  # gone meanwhile

    def _take(self, name: str, found: os.stat_result, level: _Level) -> None:
        if found.st_dev != self._device:
            return
        if stat.S_ISDIR(found.st_mode):
            level.pending.append(name)
        elif found.st_nlink > 1:
            if found.st_ino in self._linked:
                return
            self._linked.add(found.st_ino)
        self._bytes += found.st_blocks * _BLOCK_BYTES

    def _down(self, name: str) -> None:
        try:
            handle = os.open(name, _HANDLE, dir_fd=self._fd)
        except OSError:
            return  # gone, or replaced by a link
        try:
            found = os.fstat(handle)
            mode = stat.S_IMODE(found.st_mode)
            closed = mode & 0o500 != 0o500 and found.st_uid == os.geteuid() != 0
            if found.st_dev != self._device:
                return
            if closed:
                # Its owner, who is ourselves, keeps himself out: nothing is hidden from us in this way.
                os.chmod(f"/proc/self/fd/{handle}", mode | 0o500)
            fd = os.open(".", _OPEN, dir_fd=handle)
        except OSError:
            return
        finally:
            os.close(handle)
        os.close(self._fd)
        self._fd = fd
        self._arrive(_Level(name, _identity(found), mode if closed else None))

    def _up(self) -> None:
        left = self._levels.pop()
        if not self._levels:
            return
        below = self._fd
        try:
            self._fd = os.open("..", _OPEN, dir_fd=below)
        except OSError:
            self._fd = os.open(".", _OPEN, dir_fd=self._root_fd)
        try:
            if left.closed_mode is not None:
                os.fchmod(below, left.closed_mode)
        finally:
            os.close(below)
        if _identity(os.fstat(self._fd)) != self._levels[-1].identity:
            self._from_the_top()

    def _from_the_top(self) -> None:
        # A directory was moved while we were in it: on with the deepest one that still is where it was.
        os.close(self._fd)
        self._fd = os.open(".", _OPEN, dir_fd=self._root_fd)
        for depth, level in enumerate(self._levels[1:], 1):
            try:
                fd = os.open(level.name, _OPEN, dir_fd=self._fd)
            except OSError:
                del self._levels[depth:]
                return
            if _identity(os.fstat(fd)) != level.identity:
                os.close(fd)
                del self._levels[depth:]
                return
            os.close(self._fd)
            self._fd = fd


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
