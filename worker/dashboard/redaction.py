"""What may be shown of what agents and tools wrote: secrets replaced, and nothing above a level."""

from __future__ import annotations

from typing import Any

from contracts.levels import Level
from worker.dashboard.call_records import Payload
from worker.secrets import Redactor

MAX_SHOWN_CHARS = 32 * 1024
"""Of one text. What is longer keeps its head and its tail."""

_LOOKED_AT_CHARS = 4 * MAX_SHOWN_CHARS
_MAX_DEPTH = 24
_MAX_ITEMS = 1000


class Shown:
    """Decides by level, redacts by rule and by known value, and cuts to a size a page can carry.

    `ceiling` is the highest level whose payloads are shown; None shows none at all.
    """

    def __init__(self, redactor: Redactor, ceiling: Level | None) -> None:
        self._redactor = redactor
        self.ceiling = ceiling

    def __call__(self, value: Any, level: Level, *, note: str = "") -> Payload:
        """The value fit to be shown. Never raises."""
        if value is None:
            return Payload(note=note)
        if self.ceiling is None or level > self.ceiling:
            return Payload(withheld=level.value, note=note)
        hits: set[str] = set()
        omitted = [0]
        shown = self._walk(value, hits, omitted, 0)
        return Payload(value=shown, redacted=sorted(hits), omitted_chars=omitted[0], note=note)

    def line(self, text: str, level: Level, max_chars: int = 200) -> Payload:
        """One line for a table: line ends become spaces."""
        shown = self(text[:8192].replace("\n", " "), level)
        if isinstance(shown.value, str) and len(shown.value) > max_chars:
            return Payload(value=shown.value[: max_chars - 1] + "…", redacted=shown.redacted)
        return shown

    def _walk(self, value: Any, hits: set[str], omitted: list[int], depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, hits, omitted)
        if depth >= _MAX_DEPTH:
            return "…"
        if isinstance(value, dict):
            items = list(value.items())[:_MAX_ITEMS]
            return {
                self._text(str(name), hits, omitted): self._walk(item, hits, omitted, depth + 1) for name, item in items
            }
        if isinstance(value, list | tuple):
            walked = [self._walk(item, hits, omitted, depth + 1) for item in value[:_MAX_ITEMS]]
            return walked if len(value) <= _MAX_ITEMS else [*walked, f"… {len(value) - _MAX_ITEMS} more"]
        return value

    def _text(self, text: str, hits: set[str], omitted: list[int]) -> str:
        if len(text) <= MAX_SHOWN_CHARS:
            found = self._redactor.redact(text)
            hits.update(found.rules_hit)
            return found.text
        # More is looked at than is shown, so that a secret across the cut is still recognised.
        head, tail = (self._redactor.redact(part) for part in (text[:_LOOKED_AT_CHARS], text[-_LOOKED_AT_CHARS:]))
        hits.update(head.rules_hit, tail.rules_hit)
        half = MAX_SHOWN_CHARS // 2
        left_out = len(text) - 2 * half
        omitted[0] += left_out
        return f"{head.text[:half]}\n… {left_out} characters left out …\n{tail.text[-half:]}"
