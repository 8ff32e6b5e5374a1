"""What went wrong with a file, told with the path as the agent wrote it and nothing of the host."""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def naming(path: str, workspace: Workspace | None = None, *, writing: bool = False) -> Iterator[None]:
    """Turns what the workspace raises into CallFailed. With a workspace, a missing file gets a hint at its likes.

    Raises:
        CallFailed: with the path as it was written. An OSError that is in no table passes through.
    """
    shown = printable(path)
    try:
        yield
    except InvalidPath as error:
        raise CallFailed("invalid_call", f"{shown}: {error}") from None
    except Outside:
        if writing:
            raise CallFailed("forbidden", f"{shown}: outside of the workspace", effect="none") from None
        raise CallFailed("not_found", f"{shown}: {_MISSING}") from None
    except FileNotFoundError:
        likes = _alike(path, workspace) if workspace else []
        hint = f"there is {' and '.join(map(repr, likes))}; give the name exactly as listed" if likes else None
        raise CallFailed("not_found", f"{shown}: {_MISSING}", hint=hint) from None
    except (NotRegular, NotADirectory) as error:
        raise CallFailed("wrong_kind", f"{shown}: {error}") from None
    except HardLinked as error:
        hint = "to give it an inode of its own: cp -p FILE FILE.new && mv FILE.new FILE"
        message = f"{shown}: {error}, so writing it would change or split from another name; nothing was changed"
        raise CallFailed("wrong_kind", message, hint=hint) from None
    except ReadOnly as error:
        hint = "chmod u+w it first, if it is meant to change"
        raise CallFailed("permission", f"{shown}: {error}; nothing was changed", hint=hint) from None
    except Conflict as error:
        hint = "read the file again, then decide anew"
        raise CallFailed("conflict", f"{shown}: {error}", hint=hint) from None
    except Busy:
        raise CallFailed("conflict", f"{shown}: another writer is holding the file", retryable=True) from None
    except Stopped:
        raise CallFailed("cancelled", f"{shown}: cancelled before anything was changed", effect="none") from None
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise CallFailed("unavailable", f"{shown}: the path keeps changing", retryable=True) from None
        if not is_ordinary(error):
            raise
        row = classify(error)
        raise CallFailed(row.code, f"{shown}: {row.message}", hint=row.hint, retryable=row.retryable) from None


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
