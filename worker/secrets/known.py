"""Known secret values, and the forms in which they come back out of a tool."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

MIN_VALUE_CHARS = 6
_MIN_NEEDLE_CHARS = 6
_MIN_LINE_CHARS = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RUN = re.compile(r"[A-Za-z0-9_+/~%-]{20,}", re.ASCII)
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


class Needle(Struct, frozen=True):
    """One form of a value. `in_run`: all of it is one run of token characters; `is_base64`: its neighbours tell too."""

    text: str
    in_run: bool
    is_base64: bool

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the form stands in the text, one by one."""
        start = text.find(self.text)
        while start >= 0:
            end = start + len(self.text)
            # The base64 characters at both ends hold some bits of the value and some of what stands beside it.
            before = self.is_base64 and start > 0 and text[start - 1] in _BASE64
            after = self.is_base64 and end < len(text) and text[end] in _BASE64
            yield start - before, end + after
            start = text.find(self.text, end)


class KnownValue(Struct, frozen=True):
    """A secret's name, which stands in its place afterwards, and its forms."""

    name: str
    needles: tuple[Needle, ...]


def read_known(values: Mapping[str, str], rule_names: Iterable[str]) -> tuple[KnownValue, ...]:
    """The values by name, ready to be looked for.

    Raises:
        ValueError: a name or a value cannot be used; the message names the name, never the value.
    """
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name of a known secret must be letters, digits, '.', '_' or '-': {name[:80]!r}")
        if len(value) < MIN_VALUE_CHARS:
            raise ValueError(f"the known secret {name} is shorter than {MIN_VALUE_CHARS} characters")
        if any(value in f"[redacted:{word}]" for word in (*rule_names, *values)):
            raise ValueError(f"the known secret {name} is a part of what would be put in its place")
    return tuple(KnownValue(name, _needles(value)) for name, value in values.items())


def _needles(value: str) -> tuple[Needle, ...]:
    data = value.encode("utf-8", "surrogatepass")
    plain = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        *_long_lines(value),
    }
    encoded = {data.hex(), data.hex().upper()}
    for safe in ("", "/"):
        quoted = urllib.parse.quote(data, safe=safe)
        encoded |= {quoted, re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), quoted)}
    encoded.add(urllib.parse.quote_plus(data))
    in_base64 = {
        text for offset in range(3) for text in _base64_at(data, offset) if len(text) >= max(_MIN_NEEDLE_CHARS, 8)
    }
    forms = {text: False for text in sorted(plain | encoded) if len(text) >= _MIN_NEEDLE_CHARS}
    forms |= {text: True for text in sorted(in_base64) if text not in forms}
    # A longer form first: where one contains the other, the whole is found at once.
    return tuple(
        Needle(text, _RUN.fullmatch(text) is not None, is_base64)
        for text, is_base64 in sorted(forms.items(), key=lambda form: -len(form[0]))
    )


def _long_lines(value: str) -> list[str]:
    """The lines of a value of several lines that are telling by themselves: `head -3` of a key shows its third."""
    lines = [line.strip() for line in value.splitlines()]
    return [
        line for line in lines if len(lines) > 1 and len(line) >= _MIN_LINE_CHARS and re.fullmatch(r"[\w+/=-]+", line)
    ]


def _base64_at(data: bytes, offset: int) -> tuple[str, str]:
    """What base64 shows of the data when `offset` bytes (modulo 3) stand before it, whatever they and the next are."""
    first = -(-offset * 8 // 6)
    last = (offset + len(data)) * 8 // 6
    padded = b"\0" * offset + data + b"\0\0"
    return base64.b64encode(padded).decode()[first:last], base64.urlsafe_b64encode(padded).decode()[first:last]
