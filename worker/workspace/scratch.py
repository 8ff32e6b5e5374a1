"""A directory for one command's temporary files, beneath `.toolreef/tmp/`, where it has no /tmp of its own."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import suppress

from worker.workspace.beneath import Opener
from worker.workspace.faults import Outside
from worker.workspace.removal import remove_tree
from worker.workspace.spill import keep_from_git
from worker.workspace.temps import is_dead, is_temp, new_name

_HOME = (b".toolreef", b"tmp")
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o700
_STALE_S = 24 * 3600.0


class Scratch:
    """One command's directory; `path` is relative to the workspace. The flock on it says that the command lives."""

    def __init__(self, home_fd: int, fd: int, name: bytes) -> None:
        self._home_fd = home_fd
        self._fd = fd
        self._name = name
        self.path = b"/".join((*_HOME, name))

    def is_as_new(self, opener: Opener, root_fd: int) -> bool:
        """Whether it is empty, may be used by its owner alone, and is what its path leads to."""
        try:
            found = os.fstat(self._fd)
            if stat.S_IMODE(found.st_mode) != _MODE or os.listdir(self._fd):
                return False
            there = opener.enter(root_fd, self.path, _OPEN)
            try:
                return os.path.samestat(os.fstat(there), found)
            finally:
                os.close(there)
        except (OSError, Outside):
            return False

    def close(self) -> None:
        """Removes it if it is empty, else leaves it to a sweeper. Instead of `remove`."""
        with suppress(OSError):
            os.rmdir(self._name, dir_fd=self._home_fd)
        self._close()

    def _close(self) -> None:
        os.close(self._fd)
        os.close(self._home_fd)

    def remove(self, *, budget_s: float = 30.0) -> bool:
        """Removes it with all that is in it, as far as `budget_s` lasts; whether that is all. Blocking, once.

        What is left is a sweeper's.
        """
        try:
            return remove_tree(self._home_fd, self._name, budget_s=budget_s)
        finally:
            self._close()


def make_scratch(opener: Opener) -> Scratch:
    """A new empty directory.

    Raises:
        OSError: it can't be made.
        Outside: `.toolreef` was made to lead out of the workspace.
    """
    name = new_name()
    place = opener.resolve((*_HOME, name), make_parents=True)
    home = place.dir_fd
    try:
        for parent, made in place.made:
            if made == _HOME[0]:
                keep_from_git(parent)
        os.mkdir(name, _MODE, dir_fd=home)
        fd = os.open(name, _OPEN, dir_fd=home)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # no locks here, or a sweeper has it for a moment: the name's process id and start time tell the same
        return Scratch(os.dup(home), fd, name)
    finally:
        place.close()


def sweep_scratch(opener: Opener, root_fd: int, *, budget_s: float) -> int:
    """Removes the directories of commands whose worker died, and what else has lain there for a day; how many."""
    end = time.monotonic() + budget_s
    removed = 0
    try:
        # Step by step, since no link may lead to where old things are removed.
        above = opener.enter(root_fd, _HOME[0], _OPEN)
        try:
            home = opener.enter(above, _HOME[1], _OPEN)
        finally:
            os.close(above)
    except (OSError, Outside):
        return 0
    try:
        for name in map(os.fsencode, os.listdir(home)):
            left_s = end - time.monotonic()
            if left_s <= 0:
                break
            with suppress(OSError):
                removed += _remove_if_dead(home, name, left_s)
    finally:
        os.close(home)
    return removed


def _remove_if_dead(home: int, name: bytes, budget_s: float) -> bool:
    found = os.stat(name, dir_fd=home, follow_symlinks=False)
    is_old = time.time() - found.st_mtime > _STALE_S
    if not stat.S_ISDIR(found.st_mode):
        if is_old:
            os.unlink(name, dir_fd=home)
        return is_old
    if not is_temp(name):
        return is_old and remove_tree(home, name, budget_s=budget_s)
    fd = os.open(name, _OPEN, dir_fd=home)
    try:
        # The lock is held until it is gone, so that two sweepers do not meet in there.
        return is_dead(fd, name, found.st_mtime) and remove_tree(home, name, budget_s=budget_s)
    finally:
        os.close(fd)
