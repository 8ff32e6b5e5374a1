"""The classification levels and their order."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Level(enum.Enum):
    """How sensitive something is. Travels by name; compares by rank, ascending in the order written here."""

    PUBLIC = "PUBLIC"
    INTERNAL = "INTERNAL"
    CONFIDENTIAL = "CONFIDENTIAL"
    RESTRICTED = "RESTRICTED"

    rank: int
    """0 for PUBLIC to 3 for RESTRICTED."""
    word: str
    """The value, without the half microsecond that an enum's property takes."""

    def __lt__(self, other: Level) -> bool:
        return self.rank < other.rank

    def __le__(self, other: Level) -> bool:
        return self.rank <= other.rank

    def __gt__(self, other: Level) -> bool:
        return self.rank > other.rank

    def __ge__(self, other: Level) -> bool:
        return self.rank >= other.rank


for _rank, _level in enumerate(Level):
    _level.rank, _level.word = _rank, _level.value


def highest(levels: Iterable[Level]) -> Level:
    """The highest of the levels; PUBLIC when there are none."""
    found = Level.PUBLIC
    for level in levels:
        if level.rank > found.rank:
            found = level
    return found


def read_level(text: str | None) -> Level:
    """A level as stored in Redis. Nothing stored is PUBLIC; a word that is no level is RESTRICTED, never lower."""
    if not text:
        return Level.PUBLIC
    try:
        return Level(text)
    except ValueError:
        return Level.RESTRICTED
