"""GNU option parsing: clusters, attached and separate values, abbreviated long options, options after operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Parsed(NamedTuple):
    """Options as (name, value) with the value empty where there is none, and the operands."""

    options: list[tuple[str, str]]
    operands: list[str]

    def has(self, *names: str) -> bool:
        """Whether one of the options was given."""
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[str]:
        """The values given to any of the options."""
        return [value for name, value in self.options if name in names]


def parse(
    arguments: Sequence[str],
    short_values: str = "",
    long_values: Iterable[str] = (),
    long_flags: Iterable[str] = (),
    *,
    permute: bool = True,
) -> Parsed:
    """Parses what follows a command's name.

    Args:
        short_values: letters of the short options that take a value.
        long_values, long_flags: long options with and without a value, for abbreviations; others are kept as written.
        permute: whether options may come after operands; otherwise the first operand ends them.
    """
    options: list[tuple[str, str]] = []
    operands: list[str] = []
    valued = tuple(long_values)
    known = valued + tuple(long_flags)
    at, end = 0, len(arguments)
    while at < end:
        argument = arguments[at]
        at += 1
        if argument == "--":
            operands += arguments[at:]
            break
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            name = full_name(name, known)
            if not equals and name in valued and at < end:
                value = arguments[at]
                at += 1
            options.append((name, value))
        elif argument.startswith("-") and len(argument) > 1:
            for position in range(1, len(argument)):
                letter = argument[position]
                if letter in short_values:
                    value = argument[position + 1 :]
                    if not value and at < end:
                        value = arguments[at]
                        at += 1
                    options.append((letter, value))
                    break
                options.append((letter, ""))
        elif permute:
            operands.append(argument)
        else:
            operands += arguments[at - 1 :]
            break
    return Parsed(options, operands)


def full_name(name: str, known: Sequence[str]) -> str:
    """The long option an abbreviation stands for; itself when it is none, or could be several."""
    if name in known or len(name) < 2:
        return name
    candidates = [option for option in known if option.startswith(name)]
    return candidates[0] if candidates else name
