"""What `${...}` stands for."""

from __future__ import annotations

import fnmatch
import re
from typing import Protocol

from worker.shell import marks
from worker.shell.escapes import decode
from worker.shell.marks import SELF, UNKNOWN, UNSET
from worker.shell.nodes import Param, Token
from worker.shell.state import State, Value


class Host(Protocol):
    """What expansion needs of the walker."""

    state: State

    def text_of(self, tokens: list[Token]) -> str:
        """Tokens expanded as inside double quotes."""

    def prompt_expanded(self, text: str) -> str:
        """A value expanded once more, as `@P` does."""


def value_of(host: Host, param: Param) -> Value | None:
    """The parameter's value: text, an array (also `$@`), or None when it is unset."""
    state, name = host.state, param.name
    if param.prefix == "!":
        return _indirect(host, param)
    if name in ("@", "*"):
        return (UNKNOWN,) if state.params is None else state.params
    if name.isdigit():
        if name == "0":
            return state.zero
        if state.params is None:
            return UNKNOWN
        return state.params[int(name) - 1] if 0 < int(name[:6]) <= len(state.params) else None
    if name in _SPECIAL:
        return _SPECIAL[name]
    if param.subscript is not None:
        return _element(host, name, param.subscript)
    value = state.value(name)
    if value is None:
        return _builtin_value(state, name)
    if isinstance(value, tuple):
        return value[0] if value else None
    return value


_SPECIAL: dict[str, str] = {"#": UNKNOWN, "?": UNKNOWN, "$": UNKNOWN, "!": UNKNOWN, "-": "hB"}


def _builtin_value(state: State, name: str) -> str | None:
    if name == "HOME":
        return state.home
    if name == "PWD":
        return state.cwd or UNKNOWN
    if name == "IFS":
        return " \t\n"
    if name in ("BASH", "SHELL"):
        return "/bin/bash"
    if name == "BASH_SOURCE":
        return SELF
    if name == "BASH_COMMAND":
        return UNKNOWN
    if name in ("RANDOM", "SECONDS", "UID", "EUID", "PPID", "LINENO", "HOSTNAME", "BASHPID", "USER", "PATH", "REPLY"):
        return UNKNOWN
    if name == "TMPDIR":
        return "/tmp"  # noqa: S108
    return None


def _indirect(host: Host, param: Param) -> Value | None:
    named = value_of(host, Param(param.name, subscript=param.subscript))
    if named is None or not isinstance(named, str):
        return None
    found = re.fullmatch(r"([A-Za-z_]\w*|\d+|[@*])(?:\[(.*)\])?", named)
    if not found:
        return UNKNOWN
    subscript = None if found.group(2) is None else [Token("q", found.group(2))]
    return value_of(host, Param(found.group(1), subscript=subscript))


def _element(host: Host, name: str, subscript: list[Token]) -> Value | None:
    key = host.text_of(subscript).strip()
    value = host.state.value(name)
    if key in ("@", "*"):
        return value if isinstance(value, tuple) or value is None else (value,)
    entry = host.state.value(f"{name}[{key}]")
    if entry is not None:
        return entry
    if isinstance(value, tuple):
        try:
            return value[int(key)]
        except ValueError:
            return UNKNOWN
        except IndexError:
            return None
    return value if key == "0" else None


def applied(host: Host, param: Param, value: Value | None) -> Value:
    """The value after the operator; UNSET where nothing is known of a variable."""
    op = param.op
    if any(token.kind == "s" for token in param.argument):
        host.text_of(param.argument)
    if param.prefix == "#":
        return str(len(value)) if isinstance(value, str) and marks.is_known(value) else UNKNOWN
    if op in (":-", "-", ":=", "="):
        if value is None or (value == "" and ":" in op) or value == ():
            default = host.text_of(param.argument)
            if "=" in op and param.name.isidentifier():
                host.state.assign(param.name, default)
            return default
        return value
    if op in (":+", "+"):
        return host.text_of(param.argument) if value else ""
    if op in (":?", "?"):
        if value is None:
            return UNKNOWN
        return value
    if value is None:
        return UNSET
    if not op:
        return value
    if isinstance(value, tuple):
        if op == ":":
            return _sliced(host, param, value)
        return tuple(_edited(host, param, item) for item in value)
    return _edited(host, param, value)


def _numbers(host: Host, param: Param) -> list[int] | None:
    parts = [part.strip() for part in host.text_of(param.argument).split(":")]
    if not parts or len(parts) > 2 or not all(re.fullmatch(r"\(?-?\d{1,6}\)?", part) for part in parts):
        return None
    return [int(part.strip("()")) for part in parts]


def _sliced(host: Host, param: Param, values: tuple[str, ...]) -> tuple[str, ...]:
    numbers = _numbers(host, param)
    if numbers is None:
        return values
    offset = numbers[0]
    if param.name in "@*":
        if offset == 0:
            values = (SELF, *values)
        elif offset > 0:
            offset -= 1
    rest = values[offset:] if offset >= 0 or -offset <= len(values) else ()
    return rest[: numbers[1]] if len(numbers) == 2 else rest


def _edited(host: Host, param: Param, value: str) -> str:
    op = param.op
    if op == "@":
        kind = host.text_of(param.argument)
        if kind == "P":
            return host.prompt_expanded(value)
        if kind == "E":
            return decode(value)
        return {"U": value.upper(), "L": value.lower(), "u": value[:1].upper() + value[1:]}.get(kind, value)
    if op == ":":
        numbers = _numbers(host, param)
        if numbers is None or marks.has_value_mark(value):
            return UNKNOWN if marks.has_value_mark(value) or numbers is None else value
        offset = numbers[0] if numbers[0] >= 0 else max(0, len(value) + numbers[0])
        length = numbers[1] if len(numbers) == 2 else len(value)
        return value[offset : offset + length] if length >= 0 else value[offset:length]
    if op in ("^", "^^", ",", ",,", "~", "~~"):
        change = {"^": str.upper, ",": str.lower, "~": str.swapcase}[op[0]]
        return change(value) if len(op) == 2 else change(value[:1]) + value[1:]
    argument = host.text_of(param.argument)
    if len(value) > 4096 or len(argument) > 256:
        return UNKNOWN
    if op in ("/", "//"):
        return _replaced(op, value, argument)
    return _trimmed(op, value, argument)


def _pattern(glob: str) -> str:
    return fnmatch.translate(marks.literal_globs(glob))[4:].removesuffix(r")\Z").removesuffix(r")\z")


def _trimmed(op: str, value: str, glob: str) -> str:
    if glob.count("*") + glob.count(marks.STAR) > 3:
        return UNKNOWN
    pattern = re.compile(_pattern(glob), re.DOTALL)
    if op.startswith("#"):
        ends = range(len(value) + 1) if op == "#" else range(len(value), -1, -1)
        return next((value[end:] for end in ends if pattern.fullmatch(value, 0, end)), value)
    starts = range(len(value), -1, -1) if op == "%" else range(len(value) + 1)
    return next((value[:start] for start in starts if pattern.fullmatch(value, start)), value)


def _replaced(op: str, value: str, argument: str) -> str:
    glob, _, replacement = argument.partition("/")
    if glob.count("*") + glob.count(marks.STAR) > 1:
        return UNKNOWN
    anchor = glob[:1] if op == "/" and glob[:1] in ("#", "%") else ""
    body = _pattern(glob[1:] if anchor else glob)
    if not glob:
        return value
    expression = {"#": r"\A" + body, "%": body + r"\Z"}.get(anchor, body)
    return re.sub(expression, lambda _: replacement, value, count=0 if op == "//" else 1, flags=re.DOTALL)
