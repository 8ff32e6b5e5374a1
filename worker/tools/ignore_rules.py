"""The rules of ignore files above a searched directory, rewritten for it.

The engine reads those inside by itself. Left to find those above, it would go on past the workspace's root, where a
stranger's file could hide everything.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase

from contracts.tools import SearchFilesArgs
from worker.workspace import NotRegular, Outside, Spot, Workspace

_NAMES = (b".gitignore", b".ignore", b".rgignore")
_MAX_BYTES = 1024 * 1024


def may_ignore(workspace: Workspace, base: tuple[bytes, ...], args: SearchFilesArgs) -> bool:
    """Whether a search of the base may have passed something over: there is an ignore file in it or above it."""
    places = [(*base[:depth], name) for depth in range(len(base) + 1) for name in _NAMES]
    return args.ignore_files and any(_exists(workspace, place) for place in places)


def _exists(workspace: Workspace, parts: tuple[bytes, ...]) -> bool:
    try:
        workspace.look(Spot(parts)).close()
    except (OSError, Outside):
        return False
    return True


def rules_above(workspace: Workspace, base: tuple[bytes, ...]) -> bytes:
    """One ignore file's text that says for `base` what those from the root down to its parent say."""
    rules: list[str] = []
    for depth in range(len(base)):
        below = [part.decode("utf-8", "surrogateescape") for part in base[depth:]]
        for name in _NAMES:
            lines = _read(workspace, (*base[:depth], name)).splitlines()
            rules += filter(None, (_rewritten(line, below) for line in lines))
    return "\n".join(rules).encode("utf-8", "surrogateescape")


def _read(workspace: Workspace, parts: tuple[bytes, ...]) -> str:
    try:
        with workspace.open_file(Spot(parts)) as opened:
            return os.pread(opened.fd, _MAX_BYTES, 0).decode("utf-8", "surrogateescape")
    except (OSError, Outside, NotRegular):
        return ""


def _rewritten(line: str, below: list[str]) -> str | None:
    """The rule as it reads from the base, which lies `below` the file's directory; None if it does not reach there."""
    rule = line.rstrip("\r")
    if not rule.strip() or rule.startswith("#"):
        return None
    negation = "!" if rule.startswith("!") else ""
    body = rule.removeprefix("!")
    if "/" not in body.rstrip("/ ") or body.startswith("**/"):
        return rule
    parts = body.lstrip("/").split("/")
    for number, name in enumerate(below):
        if number >= len(parts) or not parts[number]:
            return None  # it ignores the base itself or what the base lies in, and the base was named
        if parts[number] == "**":
            return negation + "/".join(parts[number:])
        if not fnmatchcase(name, parts[number]):
            return None
    rest = "/".join(parts[len(below) :])
    return f"{negation}/{rest}" if rest.strip("/") else None
