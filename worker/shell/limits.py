"""How much work a command line may cost to read. Every cap fails closed."""

from __future__ import annotations

MAX_COMMAND_CHARS = 64 * 1024
MAX_DEPTH = 40
MAX_STEPS = 16_000
MAX_FIELDS = 1_024
MAX_ALTERNATIVES = 256
MAX_TEXT_CHARS = 256 * 1024


class TooComplex(Exception):
    """The line nests deeper, expands wider or takes longer to follow than the caps allow."""


class Meter:
    """Counts steps and text down to zero over one whole judgement."""

    __slots__ = ("chars", "steps")

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.chars = MAX_TEXT_CHARS

    def step(self, count: int = 1) -> None:
        """Raises TooComplex when the steps are used up."""
        self.steps -= count
        if self.steps < 0:
            raise TooComplex("it takes too many steps to follow")

    def read(self, length: int) -> None:
        """Raises TooComplex when the text read over and over is used up."""
        self.chars -= length
        if self.chars < 0:
            raise TooComplex("it holds too much text inside text")
