"""What a command line has done so far: variables, directory, functions, files it wrote."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from worker.shell.limits import MAX_ALTERNATIVES
from worker.shell.marks import SELF, UNKNOWN
from worker.shell.nodes import Function
from worker.shell.paths import join

_MAX_GATHERED = 24

Value = str | tuple[str, ...]
"""A variable's value: text, or an array."""


@dataclass(slots=True)
class Call:
    """One command that may run: words expanded, wrappers still on. `stdin` is what is fed to it, as far as known.

    `background` counts the `&` it stands behind.
    """

    argv: tuple[str, ...]
    cwd: str | None
    trail: tuple[str, ...]
    redirects: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None
    assignments: dict[str, str] = field(default_factory=dict)
    background: int = 0


@dataclass(slots=True)
class State:
    """Variables hold alternatives, since a condition or a loop may give them one value or another."""

    cwd: str | None
    home: str
    variables: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    params: tuple[str, ...] | None = ()
    zero: str = SELF
    functions: dict[str, Function] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    expand_aliases: bool = False
    files: dict[str, str] = field(default_factory=dict)
    directories: tuple[str | None, ...] = ()
    conditional: int = 0
    choice: dict[str, int] = field(default_factory=dict)
    varied: set[str] = field(default_factory=set)

    def copy(self) -> State:
        """The state of a subshell, which keeps its changes to itself."""
        return replace(
            self,
            variables=dict(self.variables),
            functions=dict(self.functions),
            aliases=dict(self.aliases),
            choice=dict(self.choice),
            varied=set(),
        )

    def value(self, name: str) -> Value | None:
        """A variable's value in the alternative being looked at, or None when nobody set it."""
        values = self.variables.get(name)
        if values is None:
            return None
        if len(values) == 1:
            return values[0]
        self.varied.add(name)
        return values[min(self.choice.get(name, 0), len(values) - 1)]

    def assign(self, name: str, *values: Value, certain: bool = False) -> None:
        """Sets a variable to one of the values; inside a condition or loop the older values stay possible."""
        kept = MAX_ALTERNATIVES
        if self.conditional and not certain:
            values = self.variables.get(name, ()) + values
            kept = _MAX_GATHERED
        unique = tuple(dict.fromkeys(values)) or (UNKNOWN,)
        if len(unique) > kept:
            unique = (*unique[: kept // 2], UNKNOWN, *unique[-(kept // 2) :])
        self.variables[name] = unique

    def change_directory(self, path: str | None) -> None:
        """`cd`; None when it is not known where to."""
        self.assign("OLDPWD", self.cwd or UNKNOWN, certain=True)
        self.cwd = None if path is None else join(self.cwd, path)
