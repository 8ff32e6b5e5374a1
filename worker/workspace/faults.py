"""What Python's own OSErrors do not say about paths."""

from __future__ import annotations

import stat

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


class InvalidPath(ValueError):
    """The path can't name anything: NUL, too long, too deep, or no bytes stand for it."""


class Outside(Exception):
    """The path, or a link on its way, leads out of the workspace. Never says to what."""


class NotRegular(Exception):
    """Something else than a regular file; `kind` says what, in words."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"is a {kind}, not a regular file")
        self.kind = kind


class NotADirectory(Exception):
    """Something else than the directory that was asked for; `kind` says what, in words."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"is a {kind}, not a directory")
        self.kind = kind


class HardLinked(Exception):
    """A file with more than one name: writing it would change, or split from, a file that may lie elsewhere."""

    def __init__(self, links: int) -> None:
        super().__init__(f"has {links} hard links")
        self.links = links


class ReadOnly(Exception):
    """A file that may be read but not written, by its mode or by who we are."""

    def __init__(self, mode: int) -> None:
        super().__init__(f"is read-only (mode {stat.S_IMODE(mode):04o})")


class Conflict(Exception):
    """The file is not what the writer took it for; the message names what differs."""


class Busy(Exception):
    """Another writer held the file for as long as this one was willing to wait."""


class Stopped(Exception):
    """The call was cancelled before anything was changed."""


def kind_of(mode: int) -> str:
    """A stat mode's kind in words."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")
