"""Lines inside files that match a regular expression.

The engine says only where: path, line, offset. The text comes from the file itself, opened beneath the root by us, so
that nothing is ever shown that a link swapped in meanwhile led the engine to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from contracts.tools import Match, SearchFilesArgs
from worker.failures import CallFailed
from worker.tools.ignore_rules import may_ignore, rules_above
from worker.tools.line_source import LineSource
from worker.tools.ripgrep import Engine
from worker.tools.search_base import hiding_options
from worker.tools.search_results import IGNORED_BUDGET_S, IGNORED_WARNING, Results, memory_file
from worker.workspace import NotRegular, Opened, Outside, Spot, Workspace, to_wire

DEFAULT_LIMIT = 200
MAX_LIMIT = 5000
MAX_CONTEXT_LINES = 50
MAX_TEXT_CHARS = 512 * 1024
_MAX_BINARY_WARNINGS = 20

_PLACE = re.compile(rb"(\d+):(\d+):(\d+):")
_BINARY = re.compile(
    rb"([^\0]*?): (?:WARNING: stopped searching binary file after match|binary file matches)"
    rb" \(found [^\n]* around offset (\d+)\)\n"
)
_OPTIONS = ("--null", "--line-number", "--column", "--byte-offset", "--with-filename", "--no-heading")
_CLIPPED = ("--max-columns=1", "--crlf")


@dataclass(frozen=True, slots=True, order=True)
class _Hit:
    path: bytes
    line: int
    column: int
    offset: int


def search_content(workspace: Workspace, spot: Spot, args: SearchFilesArgs, engine: Engine, budget_s: float) -> Results:
    """The matching lines, by path and line; with more than the limit, those the engine came upon first.

    Raises:
        CallFailed: invalid_call, with where the expression is wrong; unavailable.
        OSError: the path can't be opened.
        Outside: a link leads out of the workspace.
    """
    limit = min(args.limit or DEFAULT_LIMIT, MAX_LIMIT)
    hits = _Hits(limit)
    options = [*_OPTIONS, *_CLIPPED, f"--max-count={limit + 1}"]
    if not args.case_sensitive:
        options.append("--ignore-case")
    if args.literal:
        options.append("--fixed-strings")
    results = Results()
    with _open(workspace, spot) as (directory, file), memory_file(_rules(workspace, spot, args)) as rules:
        results.searched = (file or directory).wire_path
        target = f"/proc/self/fd/{file.fd}" if file else "./"
        fds = [*rules.fds, *([file.fd] if file else [])]
        options += hiding_options(spot.parts, ignore_files=args.ignore_files)
        ended = engine.run(
            [*options, *rules.options, "-e", args.pattern, "--", target],
            directory.fd,
            fds,
            hits.take,
            budget_s=budget_s,
        )
        if not hits.found and ended.clean and not file and may_ignore(workspace, spot.parts, args):
            _look_among_ignored(engine, directory.fd, spot, options, args, results)
    if ended.complaint and not hits.found:
        raise _invalid(ended.complaint, args)
    results.note(ended, spot.parts)
    for name, at in hits.binary[:_MAX_BINARY_WARNINGS]:
        shown = to_wire(b"/".join(spot.parts if file else (*spot.parts, name.removeprefix(b"./"))))
        results.warnings.append(f"{shown} matches and is binary from byte {at} on; what follows is not shown")
    if len(hits.found) > limit:
        results.reason = f"count: there are more than {limit} matching lines"
    found = sorted(hits.found)[:limit]
    results.matches = _read(workspace, spot, file is not None, found, args.context_lines or 0, results)
    results.total = None if results.reason else len(results.matches)
    return results


def _look_among_ignored(
    engine: Engine, fd: int, spot: Spot, options: list[str], args: SearchFilesArgs, results: Results
) -> None:
    """Says when only ignore files stand between the expression and its matches."""
    hits = _Hits(0)
    everything = [*options, *hiding_options(spot.parts, ignore_files=False)]
    engine.run([*everything, "-e", args.pattern, "--", "./"], fd, (), hits.take, budget_s=IGNORED_BUDGET_S)
    if hits.found:
        results.warnings.append(IGNORED_WARNING)


class _Hits:
    """Takes the engine's output as it comes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self.found: list[_Hit] = []
        self.binary: list[tuple[bytes, int]] = []
        """Files that hold a NUL, and where: the lines from there on are not shown."""

    def take(self, data: bytes) -> str | None:
        buffer = self._rest + data
        at = 0
        while len(self.found) <= self._limit:
            if notice := _BINARY.match(buffer, at):
                self.binary.append((notice[1], int(notice[2])))
                at = notice.end()
            name_end = buffer.find(b"\0", at)
            end = buffer.find(b"\n", name_end) if name_end >= 0 else -1
            if end < 0:
                break
            place = _PLACE.match(buffer, name_end + 1)
            name = buffer[at:name_end]
            if place:
                self.found.append(_Hit(name, int(place[1]), int(place[2]), int(place[3])))
            at = end + 1
        self._rest = buffer[at:]
        return "count" if len(self.found) > self._limit else None


def _read(
    workspace: Workspace, spot: Spot, is_file: bool, hits: list[_Hit], context_lines: int, results: Results
) -> list[Match]:
    matches: list[Match] = []
    room = MAX_TEXT_CHARS
    around = min(context_lines, MAX_CONTEXT_LINES)
    for name, group in groupby(hits, key=lambda hit: hit.path):
        parts = spot.parts if is_file else (*spot.parts, *name.removeprefix(b"./").split(b"/"))
        shown = to_wire(b"/".join(parts))
        try:
            opened = workspace.open_file(Spot(parts))
        except (OSError, Outside, NotRegular):
            results.warnings.append(f"{shown} changed while it was searched")
            continue
        with opened:
            results.opened.append(opened.wire_path)
            source = LineSource(opened)
            for hit in group:
                line = source.line(hit.offset, hit.column)
                if line is None:
                    results.warnings.append(f"{shown} changed while it was searched")
                    break
                text, column, clipped = line
                before, after = source.before(hit.offset, around), source.after(hit.offset, around)
                room -= len(text) + sum(map(len, before)) + sum(map(len, after))
                if room < 0:
                    results.reason = f"bytes: {MAX_TEXT_CHARS} characters of text are the most for one answer"
                    return matches
                matches.append(
                    Match(
                        path=shown,
                        line=hit.line,
                        text=text,
                        column=column,
                        clipped=clipped,
                        before=before if around else None,
                        after=after if around else None,
                    )
                )
    return matches


@contextmanager
def _open(workspace: Workspace, spot: Spot) -> Iterator[tuple[Opened, Opened | None]]:
    """The directory to run in, and the one file to search if the spot is no directory."""
    try:
        with workspace.open_directory(spot) as directory:
            yield directory, None
            return
    except NotADirectoryError:
        pass
    with workspace.open_file(spot) as file, workspace.open_directory(Spot(())) as directory:
        yield directory, file


def _rules(workspace: Workspace, spot: Spot, args: SearchFilesArgs) -> bytes:
    return rules_above(workspace, spot.parts) if args.ignore_files else b""


def _invalid(complaint: str, args: SearchFilesArgs) -> CallFailed:
    """The engine's words about the expression, with the position in it, counted from 0."""
    lines = complaint.splitlines()
    message = next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), "")
    caret = next((line for line in lines if line.strip() and not line.strip("^ ")), None)
    where = ""
    if message and caret:
        # The engine indents by four and wraps the expression in (?:...), which an odd parenthesis upsets.
        odd = _odd_parenthesis(args.pattern)
        position = odd if odd >= 0 and "group" in message else caret.index("^") - 4 - len("(?:")
        where = f" at position {max(position, 0)}"
    if not message:
        message = lines[0].removeprefix("rg: ") if lines else complaint
    hint = None if args.literal else "to search for it as plain text, pass literal=true"
    return CallFailed("invalid_call", f"invalid regex: {message}{where}", hint=hint)


def _odd_parenthesis(pattern: str) -> int:
    """The first group that is closed but not opened, else the last that is opened but not closed; -1 if none is."""
    begun = []
    for found in re.finditer(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]", pattern, re.DOTALL):
        if found[0] == "(":
            begun.append(found.start())
        elif found[0] == ")":
            if not begun:
                return found.start()
            begun.pop()
    return begun[-1] if begun else -1
