"""Long outputs kept in files beneath `.toolreef/spill/`, where `read_file` can page them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress

from worker.workspace.beneath import Opener

_HOME = (b".toolreef", b"spill")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Spills:
    """The spill files of one workspace. Commands may write there too, so everything is opened beneath the root."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    def create(self, name: str) -> tuple[int, str]:
        """A new empty file: its descriptor, open for both, and its path relative to the workspace.

        Raises:
            ValueError: the name is not 1 to 200 letters, digits, dots, underscores or hyphens.
            OSError: it exists, or can't be made.
            Outside: `.toolreef` was made to lead out of the workspace.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a spill file's name: {name[:80]!r}")
        place = self._opener.resolve((*_HOME, name.encode()), make_parents=True)
        try:
            for parent, made in place.made:
                if made == _HOME[0]:
                    keep_from_git(parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(place.name or b".", flags, 0o600, dir_fd=place.dir_fd)
        finally:
            place.close()
        return fd, f"{b'/'.join(_HOME).decode()}/{name}"

    def remove(self, prefix: str) -> int:
        """Removes the files whose names begin with the prefix (of a session, say); how many those were."""
        return self._sweep(lambda name, _: name.startswith(prefix))

    def trim(self, *, max_bytes: int, max_age_s: float) -> int:
        """Removes what is older than `max_age_s`, then the oldest until the rest fits `max_bytes`; how many."""
        oldest = time.time() - max_age_s
        left = max_bytes

        def is_over(_: str, found: os.stat_result) -> bool:
            nonlocal left
            left -= found.st_size
            return left < 0 or found.st_mtime < oldest

        return self._sweep(is_over)

    def _sweep(self, is_due: Callable[[str, os.stat_result], bool]) -> int:
        try:
            home = self._opener.open(_HOME, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return 0
        removed = 0
        try:
            with os.scandir(home) as entries:
                files = [
                    (entry.name, entry.stat(follow_symlinks=False))
                    for entry in entries
                    if not entry.is_dir(follow_symlinks=False)
                ]
            for name, found in sorted(files, key=lambda file: file[1].st_mtime, reverse=True):
                if is_due(name, found):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=home)
                        removed += 1
        finally:
            os.close(home)
        return removed


def keep_from_git(parent_fd: int) -> None:
    """Has git overlook the state directory that was just made in an open directory."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError), os.fdopen(os.open(b".toolreef/.gitignore", flags, 0o644, dir_fd=parent_fd), "wb") as file:
        file.write(b"*\n")
