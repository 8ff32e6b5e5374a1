"""Names of files that match a glob."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from contracts.tools import Match, SearchFilesArgs
from worker.tools.ignore_rules import rules_above
from worker.tools.ripgrep import Engine
from worker.tools.search_base import Base, base_of, hiding_options
from worker.tools.search_results import IGNORED_BUDGET_S, IGNORED_WARNING, Results, memory_file
from worker.workspace import Outside, Spot, Workspace, is_hidden, to_wire

DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000
_MAX_DIRECTORIES_FOR_LINKS = 5000


def search_names(workspace: Workspace, spot: Spot, args: SearchFilesArgs, engine: Engine, budget_s: float) -> Results:
    """The matching paths, sorted by their bytes; with more than the limit, the first of all.

    Raises:
        CallFailed: invalid_call, unavailable, not_found if the pattern leads out of the workspace.
        OSError: the directory can't be opened.
    """
    limit = min(args.limit or DEFAULT_LIMIT, MAX_LIMIT)
    with workspace.look(spot) as there:
        if not stat.S_ISDIR(there.stat.st_mode):
            return _of_one_file(workspace, spot, args)
    base = base_of(workspace, spot, args)
    results = Results(warnings=base.warnings)
    if base.only is not None:
        match = _match(workspace, base.parts, base.only)
        results.matches = [match] if match else []
        results.total = len(results.matches)
        return results
    found = _Found(base, limit)
    with workspace.open_directory(Spot(base.parts)) as directory:
        results.searched = directory.wire_path
        with memory_file(rules_above(workspace, base.parts) if args.ignore_files else b"") as rules:
            options = ["--files", "--null", *hiding_options(base.parts, ignore_files=args.ignore_files)]
            ended = engine.run([*options, *rules.options], directory.fd, rules.fds, found.take, budget_s=budget_s)
            found.add_links(directory.fd)
            if not found.best()[1] and args.ignore_files and ended.clean:
                _look_among_ignored(engine, directory.fd, base, results)
    results.note(ended)
    paths, results.total = found.best()
    if not paths and base.directory and ended.clean:
        paths, results.total = [base.directory], 1
    matches = [_match(workspace, base.parts, path) for path in paths]
    results.matches = [match for match in matches if match]
    if results.reason:
        results.total = None
    elif results.total and results.total > len(paths):
        results.reason = f"count: {len(paths)} of {results.total} matches are shown"
    return results


def _of_one_file(workspace: Workspace, spot: Spot, args: SearchFilesArgs) -> Results:
    """The file itself, if its name matches."""
    name = spot.parts[-1]
    base = base_of(workspace, Spot(spot.parts[:-1]), args)
    matches = base.only == name or bool(base.matches and base.matches.fullmatch(os.fsdecode(name)))
    match = _match(workspace, spot.parts[:-1], name) if matches else None
    return Results(matches=[match] if match else [], total=int(match is not None), searched=to_wire(spot.relative))


class _Found:
    """Takes the engine's list of files as it comes and keeps the first matches, in a bounded list."""

    def __init__(self, base: Base, limit: int) -> None:
        self._main = base.matches
        self._other = base.otherwise
        self._base = base.parts
        self._limit = limit
        self._rest = b""
        self._kept: list[bytes] = []
        self._kept_other: list[bytes] = []
        self._directories = {b""}
        self.count = 0
        self._count_other = 0

    def take(self, data: bytes) -> str | None:
        pieces = (self._rest + data).split(b"\0")
        self._rest = pieces.pop()
        self._add(pieces)
        return None

    def _add(self, paths: Iterable[bytes]) -> None:
        main, other, directories = self._main, self._other, self._directories
        for path in paths:
            text = os.fsdecode(path)
            if main and main.fullmatch(text):
                self.count += 1
                self._kept.append(path)
            elif other and other.fullmatch(text):
                self._count_other += 1
                self._kept_other.append(path)
            if len(directories) < _MAX_DIRECTORIES_FOR_LINKS:
                directories.add(path.rpartition(b"/")[0])
        for kept in (self._kept, self._kept_other):
            if len(kept) > 4 * self._limit:
                kept.sort()
                del kept[self._limit :]

    def add_links(self, base_fd: int) -> None:
        """Links beside the files: the engine passes them over, as it does not follow them."""
        for directory in sorted(self._directories):
            try:
                fd = os.open(directory or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=base_fd)
            except OSError:
                continue
            try:
                with os.scandir(fd) as entries:
                    links = [os.fsencode(entry.name) for entry in entries if entry.is_symlink()]
            except OSError:
                continue
            finally:
                os.close(fd)
            self._add(directory + b"/" + link if directory else link for link in links)

    def best(self) -> tuple[list[bytes], int]:
        """The first matches in order, and how many there are."""
        kept, count = (self._kept, self.count) if self.count else (self._kept_other, self._count_other)
        return sorted(kept)[: self._limit], count


def _match(workspace: Workspace, base: tuple[bytes, ...], path: bytes) -> Match | None:
    """The match as told, if it is really there, beneath the root, by a look of our own."""
    parts = (*base, *(part for part in path.split(b"/") if part != b"."))
    whole = b"/".join(parts)
    if is_hidden(whole) and not (base and is_hidden(base[0])):
        return None
    try:
        with workspace.open_directory(Spot(parts[:-1])) as above:
            mode = os.stat(parts[-1], dir_fd=above.fd, follow_symlinks=False).st_mode
    except (OSError, Outside):
        return None
    shown = to_wire(whole)
    if stat.S_ISDIR(mode):
        return Match(path=shown + "/")
    return Match(path=shown, mark=_mark(workspace, parts) if stat.S_ISLNK(mode) else None)


def _mark(workspace: Workspace, parts: tuple[bytes, ...]) -> str:
    try:
        with workspace.look(Spot(parts)) as there:
            return "link to a directory" if stat.S_ISDIR(there.stat.st_mode) else "link"
    except Outside:
        return "link that leads outside of the workspace"
    except OSError:
        return "broken link"


def _look_among_ignored(engine: Engine, fd: int, base: Base, results: Results) -> None:
    """Says when only ignore files stand between the pattern and its matches."""
    again = _Found(base, 1)

    def take(data: bytes) -> str | None:
        again.take(data)
        return "enough" if again.count else None

    options = ["--files", "--null", *hiding_options(base.parts, ignore_files=False)]
    engine.run(options, fd, (), take, budget_s=IGNORED_BUDGET_S)
    if again.best()[1]:
        results.warnings.append(IGNORED_WARNING)
