"""list_directory: the entries of a directory, sorted by their bytes; one bad entry never spoils the rest."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from contracts.tools import EntryDetails, ListDirectoryArgs, ListDirectoryOutput
from worker.tools.context import ToolContext
from worker.tools.naming import naming
from worker.tools.offload import in_thread
from worker.workspace import NotADirectory, Opened, Outside, Spot, Workspace, is_hidden, kind_of, to_wire

DEFAULT_LIMIT = 2000
MAX_LIMIT = 20_000
_MAX_COUNTED = 1_000_000
_MAX_DEPTH = 64
_BUDGET_S = 5.0


async def run(args: ListDirectoryArgs, context: ToolContext) -> ListDirectoryOutput:
    """The names, directories with a slash at the end; `marks` says what is special about an entry.

    Raises:
        CallFailed: not_found, wrong_kind, permission, invalid_call.
    """

    def work() -> tuple[ListDirectoryOutput, str]:
        with naming(args.path, context.workspace):
            spot = context.workspace.locate(args.path)
            with _open(context.workspace, spot) as opened:
                return _Listing(context.workspace, args).of(opened), opened.wire_path

    output, path = await in_thread(work)
    context.opened.append(path)
    return output


def _open(workspace: Workspace, spot: Spot) -> Opened:
    try:
        return workspace.open_directory(spot)
    except NotADirectoryError:
        with workspace.look(spot) as there:
            raise NotADirectory(kind_of(there.stat.st_mode)) from None


@dataclass(slots=True)
class _Entry:
    """One entry: its path from the listed directory, from the root, and what is known of it."""

    path: bytes
    found: os.stat_result | None
    directory: bool = False
    target: bytes | None = None
    mark: str | None = None


class _Listing:
    def __init__(self, workspace: Workspace, args: ListDirectoryArgs) -> None:
        self._workspace = workspace
        self._depth = min(args.depth or 1, _MAX_DEPTH)
        self._limit = min(args.limit or DEFAULT_LIMIT, MAX_LIMIT)
        self._wants_details = args.details
        self._end = time.monotonic() + _BUDGET_S
        self._reason: str | None = None
        self._seen = 0

    def of(self, opened: Opened) -> ListDirectoryOutput:
        root = b"" if opened.path == b"." else opened.path + b"/"
        entries: list[str] = []
        marks: dict[str, str] = {}
        details: list[EntryDetails] = []
        for entry in self._walk(opened.fd, b"", root, self._depth):
            name = to_wire(entry.path) + ("/" if entry.directory else "")
            entries.append(name)
            if entry.mark:
                marks[name] = entry.mark
            if self._wants_details:
                details.append(_details(name, entry))
        if self._seen > len(entries) and self._reason is None:
            self._reason = f"count: {len(entries)} of {self._seen} entries are shown"
        return ListDirectoryOutput(
            entries=entries,
            total=self._seen,
            truncated=self._reason is not None,
            reason=self._reason,
            details=details if self._wants_details else None,
            marks=marks,
        )

    def _walk(self, dir_fd: int, prefix: bytes, root: bytes, depth: int) -> Iterator[_Entry]:
        """The entries beneath an open directory, each before its own; those past the limit are only counted."""
        own = is_hidden((root + prefix).rstrip(b"/"))
        names = sorted(
            name for name in map(os.fsencode, os.listdir(dir_fd)) if own or not is_hidden(root + prefix + name)
        )
        for name in names:
            self._seen += 1
            if self._seen >= _MAX_COUNTED or time.monotonic() > self._end:
                self._reason = self._reason or f"time: the listing was stopped after {self._seen} entries"
                return
            if self._seen > self._limit:
                if depth == 1:
                    self._seen += len(names) - names.index(name) - 1
                    return
                entry = self._look(dir_fd, name, prefix, root, quick=True)
            else:
                entry = self._look(dir_fd, name, prefix, root)
                yield entry
            if depth > 1 and entry.directory and entry.target is None and entry.mark is None:
                try:
                    below = self._workspace.enter_directory(dir_fd, name)
                except (OSError, Outside):
                    continue  # gone, or made something else since it was looked at
                try:
                    yield from self._walk(below, prefix + name + b"/", root, depth - 1)
                finally:
                    os.close(below)
            if self._reason:
                return

    def _look(self, dir_fd: int, name: bytes, prefix: bytes, root: bytes, *, quick: bool = False) -> _Entry:
        entry = _Entry(prefix + name, None)
        try:
            entry.found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except OSError as error:
            entry.mark = f"unreadable ({os.strerror(error.errno or 0)})"
            return entry
        mode = entry.found.st_mode
        if stat.S_ISLNK(mode):
            if not quick:
                self._follow(entry, dir_fd, name, root)
        elif stat.S_ISDIR(mode):
            entry.directory = True
            if not os.access(name, os.R_OK | os.X_OK, dir_fd=dir_fd, effective_ids=True):
                entry.mark = "unreadable"
        elif not stat.S_ISREG(mode):
            entry.mark = kind_of(mode)
        elif not quick and not os.access(name, os.R_OK, dir_fd=dir_fd, effective_ids=True):
            entry.mark = "unreadable"
        return entry

    def _follow(self, entry: _Entry, dir_fd: int, name: bytes, root: bytes) -> None:
        """Says where a link leads, as far as that is inside; of what is outside nothing is told."""
        try:
            entry.target = os.readlink(name, dir_fd=dir_fd)
            parts = tuple(part for part in (root + entry.path).split(b"/") if part)
            with self._workspace.look(Spot(parts)) as there:
                entry.directory = stat.S_ISDIR(there.stat.st_mode)
                what = "" if stat.S_ISREG(there.stat.st_mode) else f" ({kind_of(there.stat.st_mode)})"
                entry.mark = f"link to {to_wire(entry.target)}{what}"
        except Outside:
            entry.mark = "link that leads outside of the workspace"
        except FileNotFoundError:
            entry.mark = f"broken link to {to_wire(entry.target or b'')}"
        except OSError as error:
            entry.mark = f"broken link ({os.strerror(error.errno or 0)})"


def _details(name: str, entry: _Entry) -> EntryDetails:
    found = entry.found
    is_file = found is not None and stat.S_ISREG(found.st_mode)
    return EntryDetails(
        name=name,
        kind=kind_of(found.st_mode) if found else "unknown",
        bytes=found.st_size if found and is_file else None,
        modified=_time(found.st_mtime) if found else None,
        target=to_wire(entry.target) if entry.target is not None else None,
        problem=entry.mark if entry.mark and not entry.mark.startswith("link to") else None,
    )


def _time(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None  # a time that no calendar has
