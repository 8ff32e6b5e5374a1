"""Redaction of text that comes in pieces, so that no secret slips through where two of them meet."""

from __future__ import annotations

import re

from contracts.levels import Level
from worker.secrets.private_keys import MORE_KEY, PRIVATE_KEY, find_private_keys, open_key_start
from worker.secrets.redactor import Redactor

MAX_HELD_CHARS = 32 * 1024
"""What is held back at most: more than this without the end of a line is cut between secrets."""
_KEPT_CHARS = 16 * 1024
"""What stays held back then: longer than the longest secret of bounded length that a rule knows."""


class StreamRedactor:
    """Redacts one stream. Whole lines go out at once; the last, unfinished line is held back, and so is a private key
    of which the end has not come. `level` and `rules_hit` are those of all that went out so far.

    A known value of several lines holds back as many characters as it has.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._dropping: re.Pattern[str] | None = None
        self.level = Level.PUBLIC
        self.rules_hit: set[str] = set()

    def feed(self, chunk: str) -> str:
        """What may go out now that the chunk has come; often less than the chunk, sometimes nothing."""
        held = self._held + self._drop(chunk)
        cut = max(held.rfind("\n"), held.rfind("\r")) + 1
        if self._redactor.longest_of_lines:
            cut = self._before_values_of_lines(held, cut)
        key = open_key_start(held[:cut]) if cut else -1
        if key >= 0:
            cut = _line_start(held, key)
            for start, end in reversed(list(find_private_keys(held))):
                if start < cut < end:
                    cut = _line_start(held, start)
        if len(held) - cut > MAX_HELD_CHARS:
            return self._cut_between_secrets(held, max(cut, len(held) - _KEPT_CHARS))
        self._held = held[cut:]
        return self._redact(held[:cut])

    def finish(self) -> str:
        """The rest."""
        held, self._held = self._held, ""
        return self._redact(held)

    def _before_values_of_lines(self, held: str, cut: int) -> int:
        """A cut at the start of a line that no known value of several lines goes across, come or still to come."""
        cut = min(cut, _line_start(held, max(len(held) - self._redactor.longest_of_lines, 0)))
        for span in reversed(self._redactor.spans(held)) if cut else ():
            if span.start < cut < span.end:
                cut = _line_start(held, span.start)
        return cut

    def _cut_between_secrets(self, held: str, cut: int) -> str:
        for span in self._redactor.spans(held):
            if span.start < cut < span.end:
                cut = span.end
                if cut == len(held):
                    self._dropping = MORE_KEY if span.rule == PRIVATE_KEY else span.tail
        self._held = held[cut:]
        return self._redact(held[:cut])

    def _drop(self, chunk: str) -> str:
        if self._dropping is None:
            return chunk
        found = self._dropping.match(chunk)
        dropped = found.end() if found else 0
        if dropped < len(chunk):
            self._dropping = None
        return chunk[dropped:]

    def _redact(self, text: str) -> str:
        redacted = self._redactor.redact(text)
        self.level = max(self.level, redacted.level, key=lambda level: level.rank)
        self.rules_hit.update(redacted.rules_hit)
        return redacted.text


def _line_start(text: str, place: int) -> int:
    return max(text.rfind("\n", 0, place), text.rfind("\r", 0, place)) + 1
