"""Brace expansion over tokens, bounded."""

from __future__ import annotations

import re

from worker.shell.limits import MAX_FIELDS, TooComplex
from worker.shell.marks import UNKNOWN
from worker.shell.nodes import Param, Token

_SPLIT = re.compile(r"([{},])")
_SEQUENCE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")
_NAME_PART = re.compile(r"\w+")
_MAX_SEQUENCE = 64

Tokens = list[Token]


def expand(tokens: Tokens) -> list[Tokens]:
    """The words a word stands for.

    Raises:
        TooComplex: more than the cap.
    """
    flat: Tokens = []
    for token in tokens:
        if token.kind == "u":
            flat += [Token("u", part) for part in _SPLIT.split(token.value) if part]
        else:
            flat.append(token)
    words, _ = _sequence(flat, 0, False, 0)
    return [_renamed(word) for word in words]


def _renamed(word: Tokens) -> Tokens:
    """Braces come before parameters: `$x{a,b}` is `$xa $xb`."""
    found: Tokens = []
    for token in word:
        before = found[-1] if found else None
        if token.kind == "u" and before is not None and before.kind == "p" and not before.quoted:
            param = before.value
            more = _NAME_PART.match(token.value) if param.bare and param.name.isidentifier() else None
            if more:
                found[-1] = Token("p", Param(param.name + more.group(), bare=True))
                token = Token("u", token.value[more.end() :])
        if token.value or token.kind != "u":
            found.append(token)
    return found


def _is(token: Token, char: str) -> bool:
    return token.kind == "u" and token.value == char


def _sequence(tokens: Tokens, at: int, inside: bool, depth: int) -> tuple[list[Tokens], int]:
    words: list[Tokens] = [[]]
    while at < len(tokens):
        token = tokens[at]
        if inside and (_is(token, ",") or _is(token, "}")):
            break
        group = _group(tokens, at, depth) if _is(token, "{") and depth < 12 else None
        if group is None:
            words = [[*word, token] for word in words]
            at += 1
            continue
        choices, at = group
        words = [word + choice for word in words for choice in choices]
        if len(words) > MAX_FIELDS:
            raise TooComplex("braces stand for too many words")
    return words, at


def _group(tokens: Tokens, at: int, depth: int) -> tuple[list[Tokens], int] | None:
    end = _closing(tokens, at)
    if end < 0:
        return None
    inner = tokens[at + 1 : end]
    if all(token.kind == "u" for token in inner):
        found = _SEQUENCE.fullmatch("".join(str(token.value) for token in inner))
        if found:
            return _range(*found.groups()), end + 1
    choices: list[Tokens] = []
    commas = 0
    cursor = at + 1
    while True:
        words, cursor = _sequence(tokens, cursor, True, depth + 1)
        choices += words
        if len(choices) > MAX_FIELDS:
            raise TooComplex("braces stand for too many words")
        if cursor >= len(tokens):
            return None
        if _is(tokens[cursor], "}"):
            break
        commas += 1
        cursor += 1
    if not commas:
        return None
    return choices, cursor + 1


def _closing(tokens: Tokens, at: int) -> int:
    level = 0
    for position in range(at, len(tokens)):
        if _is(tokens[position], "{"):
            level += 1
        elif _is(tokens[position], "}"):
            level -= 1
            if not level:
                return position
    return -1


def _range(first: str, last: str, step: str | None) -> list[Tokens]:
    if first.isalpha() != last.isalpha():
        return [[Token("u", f"{{{first}..{last}}}")]]
    if len(first) > 9 or len(last) > 9 or len(step or "") > 9:
        return [[Token("q", UNKNOWN)]]
    start, stop = (ord(first), ord(last)) if first.isalpha() else (int(first), int(last))
    stride = max(1, abs(int(step or 1)))
    numbers = range(start, stop + 1, stride) if start <= stop else range(start, stop - 1, -stride)
    if len(numbers) > _MAX_SEQUENCE:
        return [[Token("q", UNKNOWN)]]
    return [[Token("u", chr(n) if first.isalpha() else str(n))] for n in numbers]
