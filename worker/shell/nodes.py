"""The parts of a command line as read. Words are text, or tokens where something has to be expanded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Token(NamedTuple):
    """A piece of a word.

    Kinds: `u` unquoted text, `q` quoted text, `p` parameter (Param), `s` command substitution (Body), `r` process
    substitution (operator, Body), `a` arithmetic (list of tokens).
    """

    kind: str
    value: Any
    quoted: bool = False


Word = str | list[Token]


@dataclass(slots=True)
class Param:
    """`${prefix name [subscript] op argument}`; `bare` without the braces."""

    name: str
    prefix: str = ""
    subscript: list[Token] | None = None
    op: str = ""
    argument: list[Token] = field(default_factory=list)
    bare: bool = False


@dataclass(slots=True)
class Redirect:
    """`fd op target`; a heredoc has its body as target, expanded unless `literal`."""

    op: str
    target: Word
    fd: str = ""
    literal: bool = False


@dataclass(slots=True)
class Assignment:
    """`name[subscript]=value`, or an array of words."""

    name: str
    value: Word
    subscript: list[Token] | None = None
    append: bool = False
    array: list[Word] | None = None


@dataclass(slots=True)
class Simple:
    """A simple command; declarations keep their assignments as arguments too."""

    start: int
    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)


class Item(NamedTuple):
    """One pipeline of a list and the operator in front of it: `;`, `&&` or `||`."""

    op: str
    node: Any
    background: bool


Body = list[Item]


@dataclass(slots=True)
class Pipeline:
    parts: list[Any]


@dataclass(slots=True)
class Compound:
    """`kind` is group, subshell, if, while, until, for, select, cfor, case, test or arith; unused fields are empty."""

    kind: str
    bodies: list[Body] = field(default_factory=list)
    conditions: list[Body] = field(default_factory=list)
    name: str = ""
    words: list[Word] | None = None
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    name: str
    body: Any


Node = Simple | Pipeline | Compound | Function
