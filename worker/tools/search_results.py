"""What a search found, and what the engine needs to be handed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from contracts.tools import Match
from worker.tools.ripgrep import Ended
from worker.workspace import to_wire

IGNORED_WARNING = "there are matches among ignored files; ignore_files=false shows them"
IGNORED_BUDGET_S = 0.5
"""For looking whether there are any, when nothing else was found."""

_MAX_WARNINGS = 20


@dataclass(slots=True)
class Results:
    """The matches; `reason` if they are not all, with the kind of limit first. `opened` decides the answer's level."""

    matches: list[Match] = field(default_factory=list)
    total: int | None = None
    reason: str | None = None
    warnings: list[str] = field(default_factory=list)
    searched: str | None = None
    opened: list[str] = field(default_factory=list)

    def note(self, ended: Ended, base: tuple[bytes, ...]) -> None:
        """Takes over how the engine ended, which knows paths from the base only."""
        above = to_wire(b"/".join((*base, b"")))
        if ended.reason:
            self.reason = "time: the search was stopped before its end" if ended.reason == "time" else ended.reason
        shown = ended.unreadable[:_MAX_WARNINGS]
        self.warnings += [f"not searched: {above}{problem}" for problem in shown]
        if len(ended.unreadable) > len(shown):
            self.warnings.append(f"not searched: {len(ended.unreadable) - len(shown)} more")
        if ended.complaint:
            self.warnings.append(f"the engine said: {ended.complaint[:500]}")


@dataclass(frozen=True, slots=True)
class Handed:
    """Options for the engine and the descriptors they name."""

    options: Sequence[str] = ()
    fds: Sequence[int] = ()


@contextmanager
def memory_file(rules: bytes) -> Iterator[Handed]:
    """Ignore rules as a file in memory that the engine can read; nothing where there are no rules."""
    if not rules:
        yield Handed()
        return
    fd = os.memfd_create("ignore-rules")
    try:
        os.write(fd, rules + b"\n")
        yield Handed([f"--ignore-file=/proc/self/fd/{fd}"], [fd])
    finally:
        os.close(fd)
