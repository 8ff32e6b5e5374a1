"""`{{secret:name}}` in a command: the value goes into its environment, never into its text or arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping

OPENING = "{{secret"
_PLACEHOLDER = re.compile(r"\{\{secret(-file)?:([A-Za-z0-9][A-Za-z0-9._-]{0,63})\}\}", re.ASCII)
_PREFIX = "TOOLREEF_SECRET_"


class NotGiven(Exception):
    """A placeholder names a secret that this tool is not given, or none at all. Which of the two is not told."""

    def __init__(self, placeholder: str) -> None:
        super().__init__(f"{placeholder[:80]} is not a secret that this tool may use")


class SecretStore:
    """The operator's secrets, and the tools that may use each. What no tool is named for, no tool gets.

    Raises:
        ValueError: a tool is named for a secret that is not there, or two names become one variable's.
    """

    def __init__(
        self, values: Mapping[str, str] | None = None, tools: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        self._values, self._tools = dict(values or {}), dict(tools or {})
        if missing := sorted(self._tools.keys() - self._values.keys()):
            raise ValueError(f"there is no secret {missing[0]}")
        variables = [_variable(name) for name in self._tools]
        if len(set(variables)) < len(variables):
            raise ValueError(
                "two secrets' names differ in capitals and marks only, so that one variable would hold both"
            )

    def check(self, tool: str, text: str) -> None:
        """Whether the tool may use every secret that the text names.

        Raises:
            NotGiven: it may not, or something looks like a placeholder and is none.
        """
        if OPENING not in text:
            return
        for found in _PLACEHOLDER.finditer(text):
            if tool not in self._tools.get(found[2], ()):
                raise NotGiven(found[0])
        if OPENING in (rest := _PLACEHOLDER.sub("", text)):
            raise NotGiven(rest[rest.index(OPENING) :])

    def resolve(self, tool: str, command: str) -> tuple[str, dict[str, str]]:
        """The command for bash, and what its environment must hold. The last step before it is run.

        `{{secret:name}}` becomes the variable's expansion, which bash does not expand inside single quotes;
        `{{secret-file:name}}` a file that can be read once.

        Raises:
            NotGiven: see `check`.
        """
        self.check(tool, command)
        environment: dict[str, str] = {}

        def expansion(found: re.Match[str]) -> str:
            variable = _variable(found[2])
            environment[variable] = self._values[found[2]]
            return f'<(printf %s "${{{variable}}}")' if found[1] else f"${{{variable}}}"

        return (_PLACEHOLDER.sub(expansion, command) if OPENING in command else command), environment


def read_secret_tools(text: str) -> dict[str, frozenset[str]]:
    """The setting: `name=tool+tool`, separated by commas.

    Raises:
        ValueError: an entry has no name or no tool.
    """
    found = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, equals, tools = entry.partition("=")
        named = frozenset(filter(None, map(str.strip, tools.split("+"))))
        if not equals or not name.strip() or not named:
            raise ValueError(f"not name=tool+tool: {entry!r}")
        found[name.strip()] = named
    return found


def _variable(name: str) -> str:
    return _PREFIX + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
