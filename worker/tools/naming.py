"""What went wrong with a file, told with the path as the agent wrote it and nothing of the host."""

from __future__ import annotations

import errno
import os
import unicodedata
from types import TracebackType

from worker.failures import CallFailed, classify, is_ordinary
from worker.workspace import (
    Busy,
    Conflict,
    HardLinked,
    InvalidPath,
    NotADirectory,
    NotRegular,
    Outside,
    ReadOnly,
    Spot,
    Stopped,
    Workspace,
    printable,
    to_wire,
)

_MISSING = "no such file or directory"
_MAX_LOOKED_AT = 20_000


class naming:  # noqa: N801 - used as a word: `with naming(path)`
    """Turns what the workspace raises into CallFailed. With a workspace, a missing file gets a hint at its likes.

    Raises:
        CallFailed: with the path as it was written. An OSError that is in no table passes through.
    """

    __slots__ = ("_path", "_workspace", "_writing")

    def __init__(self, path: str, workspace: Workspace | None = None, *, writing: bool = False) -> None:
        self._path, self._workspace, self._writing = path, workspace, writing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None or (told := _told(error, self._path, self._workspace, writing=self._writing)) is None:
            return
        try:
            raise told from None
        finally:
            # An error that its own traceback leads to would keep what was opened open until the next collection.
            del told, error


def _told(error: BaseException, path: str, workspace: Workspace | None, *, writing: bool) -> CallFailed | None:
    shown = printable(path)
    match error:
        case InvalidPath():
            return CallFailed("invalid_call", f"{shown}: {error}")
        case Outside() if writing:
            return CallFailed("forbidden", f"{shown}: outside of the workspace", effect="none")
        case Outside():
            return CallFailed("not_found", f"{shown}: {_MISSING}")
        case FileNotFoundError():
            likes = _alike(path, workspace) if workspace else []
            hint = f"there is {' and '.join(map(repr, likes))}; give the name exactly as listed" if likes else None
            return CallFailed("not_found", f"{shown}: {_MISSING}", hint=hint)
        case NotRegular() | NotADirectory():
            return CallFailed("wrong_kind", f"{shown}: {error}")
        case HardLinked():
            hint = "to give it an inode of its own: cp -p FILE FILE.new && mv FILE.new FILE"
            message = f"{shown}: {error}, so writing it would change or split from another name; nothing was changed"
            return CallFailed("wrong_kind", message, hint=hint)
        case ReadOnly():
            hint = "chmod u+w it first, if it is meant to change"
            return CallFailed("permission", f"{shown}: {error}; nothing was changed", hint=hint)
        case Conflict():
            return CallFailed("conflict", f"{shown}: {error}", hint="read the file again, then decide anew")
        case Busy():
            return CallFailed("conflict", f"{shown}: another writer is holding the file", retryable=True)
        case Stopped():
            return CallFailed("cancelled", f"{shown}: cancelled before anything was changed", effect="none")
        case OSError(errno=errno.EAGAIN):
            return CallFailed("unavailable", f"{shown}: the path keeps changing", retryable=True)
        case OSError() if is_ordinary(error):
            row = classify(error)
            return CallFailed(row.code, f"{shown}: {row.message}", hint=row.hint, retryable=row.retryable)
    return None


def _alike(path: str, workspace: Workspace) -> list[str]:
    """Entries beside a missing file whose names a reader would take for its own."""
    try:
        spot = workspace.locate(path)
        if not spot.parts:
            return []
        wanted = spot.parts[-1]
        folded = _fold(wanted)
        with workspace.open_directory(Spot(spot.parts[:-1])) as directory, os.scandir(directory.fd) as entries:
            names = [os.fsencode(entry.name) for entry, _ in zip(entries, range(_MAX_LOOKED_AT), strict=False)]
    except (OSError, Outside, InvalidPath):
        return []
    return [to_wire(name) for name in sorted(names) if name != wanted and _fold(name) == folded][:3]


def _fold(name: bytes) -> str:
    text = unicodedata.normalize("NFKC", name.decode("utf-8", "replace")).casefold()
    return "".join(_PLAIN.get(char, char) for char in text if not char.isspace())


_PLAIN = {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‐": "-", "‑": "-", "−": "-"}
