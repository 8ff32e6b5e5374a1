r"""Backslash escapes: of `$'...'`, of `printf`, of `echo -e`."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|(0?[0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_SIMPLE = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _one(match: re.Match[str]) -> str:
    byte, short, long, octal, control, char = match.groups()
    number = byte or short or long
    if number is not None:
        code = int(number, 16)
        return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else ""
    if octal is not None:
        return chr(int(octal, 8) & 0xFF)
    if control is not None:
        return chr(ord(control) & 0x1F)
    return _SIMPLE.get(char, char if char in "\\'\"?" else "\\" + char)


def decode(text: str) -> str:
    """The text with its escapes carried out."""
    return _ESCAPE.sub(_one, text) if "\\" in text else text


def close_single(text: str, start: int) -> int:
    r"""Where a `$'...'` that begins at `start` ends (its closing quote), or the end of the text."""
    at = start
    while at < len(text) and text[at] != "'":
        at += 2 if text[at] == "\\" else 1
    return min(at, len(text))
