"""Owners and modes: of roots and system files, setuid bits."""

from __future__ import annotations

import re

from worker.policies.denylist.match import Match
from worker.policies.denylist.place import Place
from worker.shell import marks
from worker.shell.marks import UNSET
from worker.shell.options import parse
from worker.shell.paths import contains
from worker.shell.state import Call

_LONG = ("recursive", "changes", "verbose", "silent", "quiet", "no-preserve-root", "preserve-root", "reference", "from")
_SETUID = re.compile(r"0*[4-7][0-7]{3}")
_SYMBOLIC = re.compile(r"(?!g[+=])[ugoa]*[+=][rwxXt]*s[rwxXst]*")
_SETGID = re.compile(r"0*[2367][0-7]{3}|g[+=][rwxXt]*s[rwxXst]*")


def judge(name: str, call: Call, place: Place) -> Match | None:
    """chmod, chown, chgrp, chattr, setfacl on what must keep its modes, and setuid bits."""
    if name in ("install", "mkdir"):
        parsed = parse(call.argv[1:], "mogtS", ("mode", "owner", "group", "target-directory", "suffix"))
        if any(_sets_id(mode) for mode in parsed.values("m", "mode")):
            return Match("setuid", "it sets a setuid or setgid bit") if name == "install" else None
        return None
    if name not in ("chmod", "chown", "chgrp", "chattr", "setfacl", "chcon", "restorecon"):
        return None
    arguments = list(call.argv[1:])
    mode = ""
    if name == "chmod":
        for at, word in enumerate(arguments):
            if re.fullmatch(r"-[rwxXst]+", word) or not word.startswith("-"):
                mode = arguments.pop(at)
                break
    if name == "chattr":
        arguments = [word for word in arguments if not re.fullmatch(r"[+=-][a-zA-Z]+", word) or word == "-R"]
    parsed = parse(arguments, "", ("reference", "from", "modify", "set"), _LONG)
    operands = parsed.operands if name == "chmod" and not parsed.has("reference") else parsed.operands[1:]
    if name in ("chattr", "setfacl", "restorecon"):
        operands = parsed.operands
    if name == "chmod" and _SETGID.fullmatch(mode):
        # On a directory of the workspace it only says which group new files get.
        for operand in operands:
            path = place.resolve(call.cwd, operand)
            if path is not None and not any(contains(root, path) for root in place.workspace_roots):
                return Match("setuid", "it sets a setgid bit outside the workspace")
    if name == "chmod" and _sets_id(mode):
        return Match("setuid", "it sets a setuid or setgid bit")
    recursive = parsed.has("R", "recursive", "r")
    for operand in operands:
        if marks.only_marks(operand) or operand.startswith(UNSET):
            continue
        lost = place.destroyed(call.cwd, operand, recursive=True)
        if (
            lost
            and "workspace" not in lost
            and (recursive or "system directory" in lost or "root" in lost or "part of" in lost)
        ):
            return Match("modes", f"it would change owners or modes of {lost}")
        if lost and recursive and "parent" in lost:
            return Match("modes", f"it would change owners or modes of {lost}")
        if (
            lost
            and recursive
            and "workspace itself" in lost
            and name == "chmod"
            and re.fullmatch(r"0*0?00|[ugoa]*-[rwx]*r[rwx]*|a=", mode)
        ):
            return Match("modes", "it would make the workspace unreadable")
    return None


def _sets_id(mode: str) -> bool:
    return bool(_SETUID.fullmatch(mode)) or any(_SYMBOLIC.fullmatch(part) for part in mode.split(","))
