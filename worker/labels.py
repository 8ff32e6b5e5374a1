"""Path rules: the level of what a call opened. (What the content itself gives away is judged in `worker.secrets`.)

A rule is a glob and a level. Rules only ever raise: the level of a path is the highest of its workspace's level and
of all rules that match it. Nothing that a file contains is read here.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from contracts.levels import Level, highest, read_level


class PathRule(Struct, frozen=True):
    """What matches `glob` has at least `level`. Made by `path_rule`."""

    glob: str
    level: Level
    pattern: re.Pattern[str]


def path_rule(glob: str, level: Level | str) -> PathRule:
    """A rule from its configured words. A word that is no level, or none at all, is RESTRICTED.

    The glob is matched against a path as it was opened: relative to the workspace, links resolved. `*` and `?` stand
    for characters within one name, `[abc]`, `[a-z]` and `[!a]` for one of a set, `**` as a whole name for any number of
    directories. A glob without a slash, other than at its end, matches in every directory. What matches a directory
    matches all that is beneath it. A glob that begins with `/` matches absolute paths (read-only roots). Case counts.

    Raises:
        ValueError: the glob is empty or has `.` or `..` as a name.
    """
    if not isinstance(level, Level):
        level = read_level(level) if level.strip() else Level.RESTRICTED
    return PathRule(glob, level, re.compile(_translate(glob), re.DOTALL))


def read_path_rules(text: str) -> tuple[PathRule, ...]:
    """Rules as configured in one text: `glob=LEVEL`, one a line or separated by commas.

    Raises:
        ValueError: a rule has no `=`, or its glob cannot be used.
    """
    rules = []
    for entry in re.split(r"[,\n]", text):
        if not entry.strip():
            continue
        glob, equals, level = entry.strip().rpartition("=")
        if not equals:
            raise ValueError(f"a path rule must be glob=LEVEL: {entry.strip()!r}")
        rules.append(path_rule(glob.strip(), level.strip()))
    return tuple(rules)


def level_of(paths: Iterable[str], workspace_level: Level, rules: Sequence[PathRule]) -> Level:
    """The highest level of the paths, never below the workspace's. A path that isn't canonical is RESTRICTED."""
    level = workspace_level
    if not rules:
        return level
    strictest_first = sorted(rules, key=lambda rule: -rule.level.rank)
    for path in paths:
        if level is Level.RESTRICTED:
            break
        level = max(level, _level_of_path(path, strictest_first), key=lambda each: each.rank)
    return level


def level_of_all(workspace_level: Level, rules: Iterable[PathRule]) -> Level:
    """The level of what may read all of the workspace, as a command may: the highest that any path can have."""
    return highest((workspace_level, *(rule.level for rule in rules)))


def rules_in_sight(root: str, rules: Sequence[PathRule]) -> frozenset[int]:
    """The places in `rules` of those that something in the workspace at `root` may match now.

    A rule is left out only where its fixed first names do not exist: `finance/**` without a `finance`.
    """
    seen = set()
    for place, rule in enumerate(rules):
        names = rule.glob.split("/")
        fixed = list(itertools.takewhile(lambda name: name and not set("*?[") & set(name), names))
        if len(names) == 1 or not fixed or os.path.lexists(os.path.join(root, *fixed)):
            seen.add(place)
    return frozenset(seen)


def _level_of_path(path: str, strictest_first: Sequence[PathRule]) -> Level:
    if path in ("", "."):
        return Level.PUBLIC
    names = path.removesuffix("/").removeprefix("/").split("/")
    if "\0" in path or any(name in ("", ".", "..") for name in names):
        return Level.RESTRICTED
    for rule in strictest_first:
        if rule.pattern.match(path):
            return rule.level
    return Level.PUBLIC


def _translate(glob: str) -> str:
    """The glob as a regular expression, matched from the path's beginning to the end of one of its names.

    Every star is followed by an atomic group that takes the first place where the rest up to the next star fits. That
    is enough, since a later place never lets more match, and it keeps the work linear in the path.
    """
    names = glob.removesuffix("/").removeprefix("/").split("/")
    if any(name in ("", ".", "..") for name in names):
        raise ValueError(
            f"a path rule's glob must be names separated by single slashes, without '.' and '..': {glob!r}"
        )
    if len(names) == 1 and not glob.startswith("/"):
        names.insert(0, "**")
    if names[-1] == "**" and len(names) > 1:
        names.pop()
        beneath_only = True
    else:
        beneath_only = False
    pieces: list[list[str]] = [[]]
    for name in names:
        if name == "**":
            pieces.append([])
        else:
            pieces[-1].append(rf"(?=[^/]){_translate_name(name)}(?:/|\Z)")
    pattern = "/" if glob.startswith("/") else "(?!/)"
    pattern += "".join(pieces[0])
    for piece in pieces[1:]:
        if piece:
            pattern += f"(?>(?:[^/]++/)*?{''.join(piece)})"
    return pattern + ("(?=[^/])" if beneath_only else "")


def _translate_name(name: str) -> str:
    literals: list[str] = [""]
    position = 0
    while position < len(name):
        character = name[position]
        closing = name.find("]", position + 2 + (name[position + 1 : position + 2] == "!")) if character == "[" else -1
        if character == "*":
            if literals[-1] or len(literals) == 1:
                literals.append("")
        elif character == "?":
            literals[-1] += "[^/]"
        elif closing > 0:
            inside = name[position + 1 : closing]
            negated = inside.startswith("!")
            members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside.removeprefix("!"))
            literals[-1] += f"(?!/)[{'^' if negated else ''}{members}]"
            position = closing
        else:
            literals[-1] += re.escape(character)
        position += 1
    pattern = literals[0]
    for literal in literals[1:-1]:
        pattern += f"(?>[^/]*?{literal})"
    if len(literals) > 1:
        pattern += f"[^/]*{literals[-1]}"
    return pattern
