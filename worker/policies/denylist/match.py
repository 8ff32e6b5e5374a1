"""What a rule answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from worker.policies.denylist.place import Place
from worker.shell.state import Call


class Match(NamedTuple):
    """A rule that applies, and why in a few words."""

    rule: str
    why: str


Rule = Callable[[str, Call, Place], Match | None]
"""(name of the command, the call, where) -> a match, or None."""
