"""Private keys in armour (PEM, OpenSSH, PGP): whole, cut short, indented, quoted, or with their newlines escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator

PRIVATE_KEY = "private-key"
NEEDLE = "PRIVATE KEY"

_BEGIN = "-----BEGIN "
_MAX_GAP_CHARS = 256

_HEADER = r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
# What stands between two pieces of base64: newlines, indents, quotes, plus signs, but never the footer's hyphens.
_BETWEEN = r"(?:\\[nrt]|[^A-Za-z0-9+/=-]|-(?!-)|\+(?=\s)){0,64}+"
_FIELDS = rf"(?:{_BETWEEN}[A-Z][A-Za-z-]{{3,16}}: [^\n\\]{{0,128}}+){{0,4}}+"
_BEFORE = rf"{_BETWEEN}(?:[0-9]{{1,6}}[:-])?+{_BETWEEN}"
_DATA = rf"(?:{_BEFORE}[A-Za-z0-9+/=]{{16,}}+)++"
_END = "-----END [A-Z0-9 ]{0,48}-----"
# The last line is a short one. Where no footer follows it must be a line by itself, or prose would be taken for it.
_LAST_DATA = (
    rf"(?:{_BEFORE}[A-Za-z0-9+/=]{{1,15}}+(?={_BEFORE}{_END})"
    r"|(?:\r?\n|\\n)[ \t]{0,32}[A-Za-z0-9+/=]{1,15}+(?=[\r\n\\\"']|\Z))?+"
)

_START = re.compile(_HEADER + _FIELDS, re.ASCII)
_KEY = re.compile(rf"{_HEADER}{_FIELDS}{_DATA}{_LAST_DATA}(?:{_BEFORE}({_END}))?+", re.ASCII)
MORE_KEY = re.compile(r"[A-Za-z0-9+/=\s\\\"',>|:]*+", re.ASCII)
"""What goes on with a key of which the beginning was already replaced."""


def find_private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Every key, header to footer, or to its last data where it was cut short.

    A header that no data follows belongs to a program or a page that speaks of keys, and is left alone.
    """
    start = text.find(_BEGIN)
    while start >= 0:
        key = _KEY.match(text, start)
        if key:
            yield key.span()
        start = text.find(_BEGIN, key.end() if key else start + 1)


def open_key_start(text: str) -> int:
    """Where a key begins whose rest may still be to come; -1 if there is none."""
    start = text.rfind(_BEGIN)
    if start < 0:
        return -1
    key = _KEY.match(text, start)
    if key and key.group(1):
        return -1
    known = key or _START.match(text, start)
    return start if known and len(text) - known.end() <= _MAX_GAP_CHARS else -1
