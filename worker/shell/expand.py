"""Words to fields, as the shell does: braces, tilde, parameters, substitutions, splitting, quotes away."""

from __future__ import annotations

import re
from typing import Protocol

from worker.shell import braces, marks
from worker.shell.limits import MAX_FIELDS, TooComplex
from worker.shell.marks import UNKNOWN, UNSET
from worker.shell.nodes import Body, Token, Word
from worker.shell.parameters import Host, applied, value_of
from worker.shell.state import Value

_TILDE = re.compile(r"~([A-Za-z0-9_.+-]*)(?=/|$|:)")
_MAX_FIELD_CHARS = 64 * 1024


class Shell(Host, Protocol):
    """The walker, as far as expansion needs it."""

    def substituted(self, body: Body) -> str:
        """Walks a command substitution; what it prints, as far as known."""

    def process_substituted(self, op: str, body: Body) -> str:
        """Walks a process substitution; the path that stands for it."""


def fields(shell: Shell, word: Word) -> list[str]:
    """The fields of an argument.

    Raises:
        TooComplex: more or longer fields than the caps allow.
    """
    if isinstance(word, str):
        return [word]
    words = [word]
    if any(token.kind == "u" and "{" in token.value for token in word):
        words = braces.expand(word)
    found: list[str] = []
    for tokens in words:
        found += _fields(shell, tokens)
        if len(found) > MAX_FIELDS:
            raise TooComplex("a word stands for too many words")
    return found


def text(shell: Shell, word: Word) -> str:
    """The word as one text: values of assignments, targets of redirections, insides of quotes."""
    if isinstance(word, str):
        return word
    parts: list[str] = []
    for position, token in enumerate(word):
        if token.kind == "u":
            parts.append(_tilde(shell, token.value, _ends(word, position)) if position == 0 else token.value)
            if not token.quoted:
                parts[-1] = marks.as_glob(parts[-1])
        elif token.kind == "q":
            parts.append(token.value)
        else:
            value = _value(shell, token)
            parts.append(value if isinstance(value, str) else " ".join(value))
    joined = "".join(parts)
    if len(joined) > _MAX_FIELD_CHARS:
        raise TooComplex("a word gets too long")
    return joined


def _ends(tokens: list[Token], position: int) -> bool:
    """Whether a tilde's name that reaches the end of this token ends there."""
    following = tokens[position + 1] if position + 1 < len(tokens) else None
    return following is None or (following.kind == "u" and following.value[:1] in ("/", ":"))


def _tilde(shell: Shell, chunk: str, ends: bool) -> str:
    if "~" not in chunk:
        return chunk
    at = 0 if chunk[0] == "~" else chunk.find("=~") + 1
    found = _TILDE.match(chunk, at) if at or chunk[0] == "~" else None
    if not found or (found.end() == len(chunk) and not ends):
        return chunk
    name = found.group(1)
    if name == "":
        home = shell.state.value("HOME")
        path = home if isinstance(home, str) else shell.state.home
    elif name == "+":
        path = shell.state.cwd or UNKNOWN
    elif name == "-":
        path = UNKNOWN
    else:
        path = "/root" if name == "root" else f"/home/{name}"
    return chunk[:at] + path + chunk[found.end() :]


def _value(shell: Shell, token: Token) -> Value:
    if token.kind == "p":
        return applied(shell, token.value, value_of(shell, token.value))
    if token.kind == "s":
        return shell.substituted(token.value).rstrip("\n")
    if token.kind == "r":
        op, body = token.value
        return shell.process_substituted(op, body)
    inner = text(shell, token.value).strip()
    return _arithmetic(inner)


def _arithmetic(expression: str) -> str:
    if re.fullmatch(r"\d{1,9}", expression):
        return expression
    found = re.fullmatch(r"(-?\d{1,9})\s*([-+*])\s*(\d{1,9})", expression)
    if not found:
        return UNKNOWN
    left, op, right = int(found.group(1)), found.group(2), int(found.group(3))
    return str(left + right if op == "+" else left - right if op == "-" else left * right)


def _fields(shell: Shell, tokens: list[Token]) -> list[str]:
    found: list[str] = []
    current: str | None = None
    for position, token in enumerate(tokens):
        if token.kind == "q":
            current = (current or "") + token.value
            continue
        if token.kind == "u":
            chunk = _tilde(shell, token.value, _ends(tokens, position)) if position == 0 else token.value
            current = (current or "") + marks.as_glob(chunk)
            continue
        value = _value(shell, token)
        if token.kind == "r":
            current = (current or "") + str(value)
        elif token.quoted:
            current = _quoted(shell, token, value, found, current)
        else:
            current = _split(shell, value, found, current)
        if len(found) > MAX_FIELDS or len(current or "") > _MAX_FIELD_CHARS:
            raise TooComplex("a word gets too long")
    if current is not None:
        found.append(current)
    return found


def _quoted(shell: Shell, token: Token, value: Value, found: list[str], current: str | None) -> str | None:
    if isinstance(value, str):
        return (current or "") + value
    star = token.kind == "p" and (
        token.value.name == "*" or (token.value.subscript and token.value.subscript[0].value == "*")
    )
    if star:
        separator = shell.state.value("IFS")
        return (current or "") + (separator[:1] if isinstance(separator, str) else " ").join(value)
    if not value:
        return current
    for item in value[:-1]:
        found.append((current or "") + item)
        current = None
    return (current or "") + value[-1]


def _split(shell: Shell, value: Value, found: list[str], current: str | None) -> str | None:
    ifs = shell.state.value("IFS")
    separators = ifs if isinstance(ifs, str) else " \t\n"
    for index, item in enumerate((value,) if isinstance(value, str) else value):
        if index and current is not None:
            found.append(current)
            current = None
        if item == UNSET:
            current = (current or "") + UNSET
            continue
        if not item:
            continue
        parts = re.split(f"[{re.escape(separators)}]", item) if separators else [item]
        for number, part in enumerate(parts):
            if number and current is not None:
                found.append(current)
                current = None
            if part:
                current = (current or "") + marks.as_glob(part)
            elif number and number < len(parts) - 1 and not separators.isspace():
                found.append("")
    return current
