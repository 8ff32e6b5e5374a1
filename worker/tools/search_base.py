"""Where a search begins, and what a glob says from there."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field

from contracts.tools import SearchFilesArgs
from worker.failures import CallFailed
from worker.tools.globs import InvalidGlob, compile_glob, compile_literal, has_meta
from worker.workspace import STATE_DIRECTORY, Outside, Spot, Workspace, from_wire, locate, printable

ENGINE_BUDGET_S = 20.0


@dataclass(slots=True)
class Base:
    """The directory to search and the patterns for paths from it: `matches` first, `otherwise` if that finds none.

    `only` is the one path that the pattern names literally; `directory` one that it names if no file matches;
    `warnings` are for the answer.
    """

    parts: tuple[bytes, ...]
    matches: re.Pattern[str] | None = None
    otherwise: re.Pattern[str] | None = None
    only: bytes | None = None
    directory: bytes | None = None
    warnings: list[str] = field(default_factory=list)


def hiding_options(parts: tuple[bytes, ...], *, ignore_files: bool) -> list[str]:
    """Engine options that say what a search of the directory leaves out, the same for names and content."""
    options = ["--hidden", "--glob=!.toolreef-tmp.*"]
    if not parts:
        options.append(f"--glob=!/{STATE_DIRECTORY.decode()}")
    if b".git" not in parts:
        options.append("--glob=!.git")
    if ignore_files:
        return [*options, "--no-require-git", "--no-ignore-global", "--no-ignore-parent"]
    return [*options, "--no-ignore"]


def base_of(workspace: Workspace, spot: Spot, args: SearchFilesArgs) -> Base:
    """The base of a search for names beneath `spot`. An existing literal path wins over a glob's meaning.

    Raises:
        CallFailed: not_found if the pattern leads out of the workspace, invalid_call for an unsupported construct.
    """
    try:
        parts, names = _start(workspace, spot, from_wire(args.pattern))
    except Outside:
        raise CallFailed("not_found", f"{printable(args.pattern)}: no such file or directory") from None
    base = Base(parts)
    if not names:
        raise CallFailed("invalid_call", "the pattern names no file")
    literal = b"/".join(names)
    is_directory = args.pattern.endswith("/")
    kind = _kind(workspace, (*parts, *names)) if is_directory or has_meta(_text(literal)) else None
    if kind == stat.S_IFDIR or (kind is not None and not is_directory):
        base.only = literal
        return base
    anchored = False
    while len(names) > 1 and names[0] != b"**":
        if _kind(workspace, (*base.parts, names[0])) != stat.S_IFDIR:
            if args.case_sensitive and not has_meta(_text(names[0])):
                base.warnings.append(f"there is no directory {_text(names[0])!r} where the pattern wants one")
            break
        base.parts = (*base.parts, names.pop(0))
        anchored = True
    if _kind(workspace, (*base.parts, *names)) == stat.S_IFDIR:
        base.directory = b"/".join(names)
    pattern = _text(b"/".join(names)) + ("/" if is_directory else "")
    options: dict[str, bool] = {"anchored": anchored, "case_sensitive": args.case_sensitive}
    try:
        base.matches = compile_literal(pattern, **options) if args.literal else compile_glob(pattern, **options)
        if "[" in pattern and not args.literal:
            base.otherwise = compile_glob(pattern, brackets=False, **options)
    except InvalidGlob as error:
        where = f" at position {error.position}" if error.position is not None else ""
        hint = "literal=true takes it as text"
        raise CallFailed("invalid_call", f"invalid glob: {error}{where}", hint=hint) from None
    return base


def _start(workspace: Workspace, spot: Spot, pattern: bytes) -> tuple[tuple[bytes, ...], list[bytes]]:
    """Where the pattern starts, after its root or leading `..`, and its components from there."""
    parts = list(spot.parts)
    names = [name for name in pattern.split(b"/") if name not in (b"", b".")]
    if pattern.startswith(b"/"):
        absolute = locate(_wire(pattern), workspace.roots)
        if absolute is None:
            raise Outside
        parts, names = [], list(absolute.parts)
    while names and names[0] == b"..":
        if not parts:
            raise Outside
        parts.pop()
        names.pop(0)
    if b".." in names:
        raise CallFailed("invalid_call", "'..' may stand only at the beginning of a pattern")
    return tuple(parts), names


def _kind(workspace: Workspace, parts: tuple[bytes, ...]) -> int | None:
    try:
        with workspace.look(Spot(parts)) as there:
            return stat.S_IFMT(there.stat.st_mode)
    except (OSError, Outside):
        return None


def _text(name: bytes) -> str:
    return os.fsdecode(name)


def _wire(pattern: bytes) -> str:
    return pattern.decode("utf-8", "surrogateescape")
