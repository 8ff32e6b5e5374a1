"""POST_TOOL_RESPONSE: what leaves the worker gets its level and loses its secrets, or does not leave."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from contracts.calls import Session
from contracts.codec import encode
from contracts.levels import Level, highest
from contracts.replies import Error
from contracts.tools import Output, WriteFileOutput
from worker.labels import PathRule, level_of, level_of_all, rules_in_sight
from worker.secrets import Redactor, Redacts, StreamRedactor, redact_output

log = logging.getLogger("toolreef")


class Withheld(Exception):
    """The hook failed, so the output does not leave."""


def reveals(output: Output | None, opened: Sequence[str]) -> bool:
    """Whether an answer tells something of the workspace. What was written tells its writer nothing new."""
    if isinstance(output, WriteFileOutput):
        return output.diff is not None
    return bool(opened) or output is not None


def _cut(value: Any, max_chars: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if len(value) <= max_chars else f"{value[:max_chars]}... ({len(value)} characters)"
    if kind is dict:
        return {name: _cut(item, max_chars) for name, item in value.items()}
    return [_cut(item, max_chars) for item in value[:16]] if kind is list else value


class Classified(Struct, frozen=True):
    """What may leave, and how sensitive it is."""

    output: Output | None
    error: Error | None
    level: Level
    about: str = ""


class Sight:
    """The highest level of all that a command's sandbox lets it see, from its start on. It only rises."""

    def __init__(self, workspace_root: str, workspace_level: Level, rules: Sequence[PathRule]) -> None:
        self._root, self._workspace_level, self._rules = workspace_root, workspace_level, rules
        self._seen = rules_in_sight(workspace_root, rules)

    def level(self) -> Level:
        """The level now."""
        self._seen |= rules_in_sight(self._root, self._rules)
        return level_of_all(self._workspace_level, (self._rules[place] for place in self._seen))


class PostToolResponse:
    """Built once a worker, from the path rules and the redactor."""

    def __init__(self, rules: Sequence[PathRule], redactor: Redactor) -> None:
        self._rules = tuple(rules)
        self.redactor = self._redactor = redactor

    def __call__(
        self,
        output: Output | None,
        error: Error | None,
        *,
        opened: Sequence[str],
        session: Session,
        seen_by_command: Level | None,
        about: str = "",
    ) -> Classified:
        """The output and error without secrets, and their level. `seen_by_command` is that of a command's sandbox.

        `about` is a line on the call for the audit stream; the agent wrote it, so it raises no level.

        Whatever a tool opened counts, also where the answer is an error: its message may quote the file. A call that
        opened nothing and brings no output reveals nothing.

        Raises:
            Withheld: any step failed.
        """
        try:
            level = Level.PUBLIC
            if seen_by_command is not None:
                level = seen_by_command
            elif reveals(output, opened):
                level = level_of(opened, session.workspace_level, self._rules)
            # One look tells that all is clean, as it nearly always is.
            given, found = (output, error, about), Level.PUBLIC
            if redact_output(given, self._redactor)[0] is not given:
                (output, error), found, _ = redact_output((output, error), self._redactor)
                about = redact_output(about, self._redactor)[0]
            if output is None and not opened and seen_by_command is None:
                found = Level.PUBLIC  # the error can only quote what the agent itself wrote
        except Exception as failure:
            log.error("POST_TOOL_RESPONSE failed, output withheld", exc_info=failure)
            raise Withheld from failure
        return Classified(output, error, highest((level, found)), about)

    def args_text(self, args: Any, blanker: Redacts | None = None) -> str:
        """A call's arguments for the audit log: as JSON, without secrets, long texts cut. Empty if that fails.

        `blanker` is what the operator's rules take out besides.
        """
        try:
            raw = encode(args)
            # Without escapes each text stands in the JSON as it is, so one look tells whether all are clean.
            plain = blanker is None and len(raw) <= 512 and b"\\" not in raw
            if plain and self._redactor.is_clean(text := raw.decode()):
                return text
            # Longer than what is kept, so that a secret across the end is still recognised.
            seen = redact_output(_cut(msgspec.to_builtins(args), 4096), self._redactor)[0]
            if blanker is not None:
                seen = redact_output(seen, blanker)[0]
            return encode(_cut(seen, 512)).decode()
        except Exception as failure:
            log.error("arguments could not be redacted, so they are left out of the audit log", exc_info=failure)
            return ""

    def clean(self, texts: Sequence[str]) -> list[str]:
        """Texts without secrets."""
        return [self._redactor.redact(text).text for text in texts]

    def stream(self) -> StreamRedactor:
        """A redactor for the pieces of one output stream, in order."""
        return StreamRedactor(self._redactor)

    def sight_of_command(self, session: Session, workspace_root: str) -> Sight:
        """What a command can see; ask again when it has ended, for what came and went meanwhile."""
        return Sight(workspace_root, session.workspace_level, self._rules)
