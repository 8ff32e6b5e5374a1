"""Finds secrets in a text and puts the name of the rule in their place."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import re2
from msgspec import Struct

from contracts.levels import Level, highest
from worker.secrets.known import KnownValue, read_known
from worker.secrets.private_keys import NEEDLE, PRIVATE_KEY, find_private_keys
from worker.secrets.rules import RULES, Rule

PRIVATE_LEVEL = Level.RESTRICTED
"""Of private keys and of known values."""

_KEPT_CHARACTERS = 4096
_MAX_KEPT = 1024
_MAX_PASSES = 4
_RUN_CHARS = 20
_RUN = b"x" * _RUN_CHARS
_BEFORE_RUN_CHARS = 32
_TO_RUNS = bytes(120 if chr(code).isalnum() or chr(code) in "_+/~%-" else 46 for code in range(128)) + b"." * 128
_TO_SHAPES = bytes(
    48 if 48 <= code < 58 else 65 if 65 <= code < 91 else 32 if code in b" -" else 46 for code in range(256)
)
_CLASS_OF_SHAPE = {"0": "[0-9]", "A": "[A-Z]", " ": "[ -]"}
_DIGITS = re.compile(b"0*+")

_RAREST_FIRST = b'"=~:/._-0123456789QZXJKVWYBGFHUPDCMLRNSOITAEzqjxkvwybgfhupdcmlrnsoitae'

Find = Callable[[str], Iterator[tuple[int, int]]]


class Span(Struct, frozen=True):
    """A secret at `[start, end)` of a text. `tail` matches what may still belong to it behind `end`."""

    start: int
    end: int
    rule: str
    level: Level
    tail: re.Pattern[str] | None = None


class Redacted(Struct, frozen=True):
    """A text without its secrets, the level that they give it (PUBLIC if none), and the rules that hit, sorted."""

    text: str
    level: Level = Level.PUBLIC
    rules_hit: tuple[str, ...] = ()


class Redactor:
    """The rules and the known values, compiled once. Safe to share: nothing in it changes afterwards.

    `known` maps a name to a secret's value: it is found as it is and as base64 (at any alignment), hex, URL-encoded
    and inside JSON. `on_request` names rules that are off by default, `off` names rules to leave out.

    Raises:
        ValueError: a known value is too short to look for, or there is no such rule.
    """

    def __init__(
        self, known: Mapping[str, str] | None = None, *, on_request: Iterable[str] = (), off: Iterable[str] = ()
    ) -> None:
        wanted, unwanted, names = frozenset(on_request), frozenset(off), {rule.name for rule in RULES} | {PRIVATE_KEY}
        if not wanted | unwanted <= names:
            raise ValueError(f"no such rule: {', '.join(sorted((wanted | unwanted) - names))}")
        rules = [rule for rule in RULES if rule.name not in unwanted and (rule.by_default or rule.name in wanted)]
        values: tuple[KnownValue, ...] = read_known(known or {}, names)
        self._text_rules = [(needle, rule) for rule in rules if rule.where == "text" for needle in rule.needles]
        self._run_rules = _by_rarest_byte(
            (needle.encode(), rule) for rule in rules if rule.where == "run" for needle in rule.needles
        )
        self._shape_rules = [(shape.encode(), rule) for rule in rules if rule.shapes for shape in rule.shapes]
        needles = [(needle, value.name) for value in values for needle in value.needles]
        self._text_values = [(needle, name) for needle, name in needles if not needle.in_run]
        self._run_values = [(needle.text.encode(), needle, name) for needle, name in needles if needle.in_run]
        self._has_private_keys = PRIVATE_KEY not in unwanted
        words = [NEEDLE, *(needle.text for needle, _ in needles), *(word for rule in rules for word in rule.needles)]
        self._clean: set[str] = set()
        self._hint = _hint(words, [shape for rule in rules for shape in rule.shapes])
        self.longest_of_lines = max(
            (len(needle.text) for needle, _ in needles if set(needle.text) & set("\r\n")), default=0
        )

    def redact(self, text: str) -> Redacted:
        """The text with every secret replaced by `[redacted:<rule>]`. Never raises; doing it again changes nothing."""
        spans = self.spans(text)
        if not spans:
            return Redacted(text)
        found: set[str] = set()
        level = Level.PUBLIC
        # What comes out is looked at again: a replacement may be the boundary that the secret beside it was missing.
        for _ in range(_MAX_PASSES):
            found.update(span.rule for span in spans)
            level = highest((level, *(span.level for span in spans)))
            text = replace(text, spans)
            spans = self.spans(text)
            if not spans:
                break
        return Redacted(text, level, tuple(sorted(found)))

    def is_clean(self, text: str) -> bool:
        """Whether nothing in the text even looks like a secret. False says only that `redact` must look closer."""
        if text in self._clean:
            return True
        if self._hint is None or self._hint.search(text.encode("utf-8", "replace")) is not None:
            return next(self._suspects(text), None) is None
        # The same arguments and small files come again and again. What holds a secret is not kept.
        if len(text) <= _KEPT_CHARACTERS:
            if len(self._clean) >= _MAX_KEPT:
                self._clean.clear()
            self._clean.add(text)
        return True

    def spans(self, text: str) -> list[Span]:
        """Every secret in the text, in order; of overlapping ones the union, under the name of the first."""
        found = [
            Span(*place, name, level, tail) for name, level, tail, places in self._suspects(text) for place in places
        ]
        found.sort(key=lambda span: (span.start, -span.end))
        merged: list[Span] = []
        for span in found:
            if merged and span.start < merged[-1].end:
                merged[-1] = _union(merged[-1], span)
            else:
                merged.append(span)
        return merged

    def _suspects(self, text: str) -> Iterator[tuple[str, Level, re.Pattern[str] | None, Iterator[tuple[int, int]]]]:
        """The rules and values one of whose needles is in the text, each with what it finds there."""
        if self._has_private_keys and NEEDLE in text:
            yield PRIVATE_KEY, PRIVATE_LEVEL, None, find_private_keys(text)
        for form, name in self._text_values:
            if form.text in text:
                yield name, PRIVATE_LEVEL, None, form.find(text)
        for word, rule in self._text_rules:
            if word in text:
                yield rule.name, rule.level, rule.tail, _at_places(rule, _places(word, text), text)
        # One byte a character, whatever the text holds, so that places in one are places in the other.
        raw = text.encode("ascii", "replace")
        runs = _runs(raw)
        if runs.joined:
            for key, form, name in self._run_values:
                if key in runs.joined:
                    yield name, PRIVATE_LEVEL, None, form.find(text)
            for byte, keyed in self._run_rules:
                if byte in runs.joined:
                    for key, rule in keyed:
                        if key in runs.joined:
                            yield rule.name, rule.level, rule.tail, _at_places(rule, runs.places(key), text)
        shapes = raw.translate(_TO_SHAPES)
        for key, rule in self._shape_rules:
            if key in shapes:
                yield rule.name, rule.level, rule.tail, _at_shapes(rule, key, shapes, text)


def _by_rarest_byte(keyed: Iterable[tuple[bytes, Rule]]) -> list[tuple[bytes, list[tuple[bytes, Rule]]]]:
    """The keys grouped by a byte that each of them has: most texts lack most of these, and one look tells."""
    groups: dict[bytes, list[tuple[bytes, Rule]]] = {}
    for key, rule in keyed:
        groups.setdefault(bytes([min(key, key=_RAREST_FIRST.find)]), []).append((key, rule))
    return list(groups.items())


def _hint(words: Iterable[str], shapes: Iterable[str]) -> Any:
    """One pattern for all that the rules and values look for, so that a text without any of it is read once.

    It may hit where no rule does, never the other way round. None where there are too many values for one pattern.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    forms = ["".join(_CLASS_OF_SHAPE.get(character, character) for character in shape) for shape in shapes]
    alternatives = [*(re2.escape(word.encode()) for word in words), *(form.encode() for form in forms)]
    try:
        return re2.compile(b"|".join(alternatives), options)
    except re2.error:
        return None


def replace(text: str, spans: list[Span]) -> str:
    """The text with the name of its rule in the place of each span."""
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += (text[done : span.start], "[redacted:", span.rule, "]")
        done = span.end
    return "".join((*pieces, text[done:]))


def _union(first: Span, second: Span) -> Span:
    last = second if second.end >= first.end else first
    return Span(first.start, last.end, first.rule, max(first.level, second.level), last.tail)


class _Runs(Struct):
    """The runs of a text joined by newlines; where each begins there, and in the text."""

    joined: bytes
    starts: list[int]
    starts_in_text: list[int]

    def places(self, key: bytes) -> Iterator[int]:
        """Where the key stands in the text, in order; it may come twice where one run stands just before another."""
        at = self.joined.find(key)
        while at >= 0:
            run = bisect.bisect_right(self.starts, at) - 1
            yield self.starts_in_text[run] + at - self.starts[run]
            at = self.joined.find(key, at + 1)


def _runs(raw: bytes) -> _Runs:
    """All runs of token characters that are long enough for a token, each with a little of what stands before it.

    They are a few hundredths of ordinary text, so that seventy needles can be looked for in the time of a few.
    """
    marks = raw.translate(_TO_RUNS)
    start = marks.find(_RUN)
    pieces, starts, starts_in_text, length = [], [], [], 0
    while start >= 0:
        end = marks.find(b".", start + _RUN_CHARS)
        if end < 0:
            end = len(raw)
        start = max(start - _BEFORE_RUN_CHARS, 0)
        pieces.append(raw[start:end])
        starts.append(length)
        starts_in_text.append(start)
        length += end - start + 1
        start = marks.find(_RUN, end)
    return _Runs(b"\n".join(pieces), starts, starts_in_text)


def _places(needle: str, text: str) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def _at_places(rule: Rule, places: Iterator[int], text: str) -> Iterator[tuple[int, int]]:
    done = 0
    for at in places:
        # What stands inside the last match is not tried again, or a text of nothing but needles would take long.
        if at >= done and at >= rule.back and (place := _match(rule, text, at - rule.back)):
            yield place
            done = place[1]


def _at_shapes(rule: Rule, shape: bytes, shapes: bytes, text: str) -> Iterator[tuple[int, int]]:
    at = shapes.find(shape)
    while at >= 0:
        if place := _match(rule, text, at):
            yield place
            end = place[1]
        else:
            found = _DIGITS.match(shapes, at)
            end = max(at + 1, found.end() if found else 0)
        at = shapes.find(shape, end)


def _match(rule: Rule, text: str, at: int) -> tuple[int, int] | None:
    found = rule.pattern.match(text, at)
    if found is None:
        return None
    group = 1 if found.re.groups and not rule.whole else 0
    if rule.check and not rule.check(found.group(group)):
        return None
    return found.span(group)
