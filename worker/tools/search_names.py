"""Names of files that match a glob."""

from __future__ import annotations

import os
import re
import stat
import time
from itertools import groupby

from contracts.tools import Match, SearchFilesArgs
from worker.tools.ignore_rules import may_ignore, rules_above
from worker.tools.ripgrep import Engine
from worker.tools.search_base import Base, base_of, hiding_options
from worker.tools.search_results import IGNORED_BUDGET_S, IGNORED_WARNING, Results, memory_file
from worker.workspace import Outside, Spot, Workspace, to_wire

DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000
_MAX_DIRECTORIES_FOR_LINKS = 5000
_LINKS_BUDGET_S = 0.5


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
        results.matches = _matches(workspace, base.parts, [base.only])
        results.total = len(results.matches)
        return results
    found = _Found(base, limit)
    with workspace.open_directory(Spot(base.parts)) as directory:
        results.searched = directory.wire_path
        with memory_file(rules_above(workspace, base.parts) if args.ignore_files else b"") as rules:
            options = ["--files", "--null", *hiding_options(base.parts, ignore_files=args.ignore_files)]
            ended = engine.run([*options, *rules.options], directory.fd, rules.fds, found.take, budget_s=budget_s)
            found.add_links(directory.fd)
            if not found.count and ended.clean and may_ignore(workspace, base.parts, args):
                _look_among_ignored(engine, directory.fd, base, results)
    results.note(ended, base.parts)
    paths, results.total = found.best(), found.count
    if not paths and base.directory and ended.clean:
        paths, results.total = [base.directory], 1
    results.matches = _matches(workspace, base.parts, paths)
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
    found = _matches(workspace, spot.parts[:-1], [name]) if matches else []
    return Results(matches=found, total=len(found), searched=to_wire(spot.relative))


class _Found:
    """Takes the engine's list of files as it comes and keeps the first matches, in bounded lists."""

    def __init__(self, base: Base, limit: int) -> None:
        self._main = _Kept(base.matches, limit)
        self._other = _Kept(base.otherwise, limit)
        self._rest = b""
        self._directories = {""}

    def take(self, data: bytes) -> str | None:
        whole, _, self._rest = (self._rest + data).rpartition(b"\0")
        if whole:
            self._add(os.fsdecode(whole).split("\0"))
        return None

    def _add(self, paths: list[str]) -> None:
        self._main.add(paths)
        self._other.add(paths)
        if len(self._directories) < _MAX_DIRECTORIES_FOR_LINKS:
            self._directories.update([path.rpartition("/")[0] for path in paths])

    def add_links(self, base_fd: int) -> None:
        """Links beside the files: the engine passes them over, as it does not follow them."""
        end = time.monotonic() + _LINKS_BUDGET_S
        for directory in sorted(self._directories):
            if time.monotonic() > end:
                return
            try:
                fd = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=base_fd)
            except OSError:
                continue
            try:
                with os.scandir(fd) as entries:
                    links = [entry.name for entry in entries if entry.is_symlink()]
            except OSError:
                continue
            finally:
                os.close(fd)
            paths = [f"{directory}/{link}" if directory else link for link in links]
            self._main.add(paths)
            self._other.add(paths)

    @property
    def count(self) -> int:
        """How many match."""
        return self._main.count or self._other.count

    def best(self) -> list[bytes]:
        """The first matches, in order."""
        return (self._main if self._main.count else self._other).first()


class _Kept:
    """The first `limit` of the paths that match a pattern, and how many there are in all."""

    def __init__(self, pattern: re.Pattern[str] | None, limit: int) -> None:
        self._matches = pattern.fullmatch if pattern else None
        self._limit = limit
        self._paths: list[str] = []
        self._last: str | None = None
        self.count = 0

    def add(self, paths: list[str]) -> None:
        if self._matches is None:
            return
        found = [path for path in paths if self._matches(path)]
        self.count += len(found)
        last = self._last
        self._paths += found if last is None else [path for path in found if path < last]
        if len(self._paths) > 4 * self._limit:
            self._paths.sort()
            del self._paths[self._limit :]
            self._last = self._paths[-1]

    def first(self) -> list[bytes]:
        return sorted(map(os.fsencode, self._paths))[: self._limit]


def _matches(workspace: Workspace, base: tuple[bytes, ...], paths: list[bytes]) -> list[Match]:
    """The matches as told: those that are really there, beneath the root, by a look of our own."""
    matches = []
    for above, group in groupby(paths, key=lambda path: path.rpartition(b"/")[0]):
        parts = (*base, *(part for part in above.split(b"/") if part not in (b"", b".")))
        try:
            with workspace.open_directory(Spot(parts)) as directory:
                for path in group:
                    match = _match(workspace, directory.fd, (*parts, path.rpartition(b"/")[2]))
                    if match:
                        matches.append(match)
        except (OSError, Outside):
            continue
    return matches


def _match(workspace: Workspace, dir_fd: int, parts: tuple[bytes, ...]) -> Match | None:
    whole = b"/".join(parts)
    try:
        mode = os.stat(parts[-1], dir_fd=dir_fd, follow_symlinks=False).st_mode
    except OSError:
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
    if again.count:
        results.warnings.append(IGNORED_WARNING)
