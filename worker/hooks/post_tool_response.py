"""POST_TOOL_RESPONSE: what leaves the worker gets its level and loses its secrets, or does not leave."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct

from contracts.calls import Session
from contracts.levels import Level, highest
from contracts.replies import Error
from contracts.tools import Output, RunCommandOutput
from worker.labels import PathRule, level_of, level_of_all
from worker.secrets import Redactor, StreamRedactor, redact_output

log = logging.getLogger("toolreef")


class Withheld(Exception):
    """The hook failed, so the output does not leave."""


class Classified(Struct, frozen=True):
    """What may leave, and how sensitive it is."""

    output: Output | None
    error: Error | None
    level: Level


class PostToolResponse:
    """Built once a worker, from the path rules and the redactor."""

    def __init__(self, rules: Sequence[PathRule], redactor: Redactor) -> None:
        self._rules = tuple(rules)
        self._redactor = redactor

    def __call__(
        self, output: Output | None, error: Error | None, opened: Sequence[str], session: Session
    ) -> Classified:
        """The output and error without secrets, and their level.

        Whatever a tool opened counts, also where the answer is an error: its message may quote the file. A call that
        opened nothing and brings no output reveals nothing.

        Raises:
            Withheld: any step failed.
        """
        try:
            found = Level.PUBLIC
            level = Level.PUBLIC
            if isinstance(output, RunCommandOutput):
                level = self.level_of_command(session)
            elif opened or output is not None:
                level = level_of(opened, session.workspace_level, self._rules)
            if output is not None:
                output, found, _ = redact_output(output, self._redactor)
            if error is not None:
                error, seen, _ = redact_output(error, self._redactor)
                found = highest((found, seen))
        except Exception as failure:
            log.error("POST_TOOL_RESPONSE failed, output withheld", exc_info=failure)
            raise Withheld from failure
        return Classified(output, error, highest((level, found)))

    def stream(self) -> StreamRedactor:
        """A redactor for the pieces of one output stream, in order."""
        return StreamRedactor(self._redactor)

    def level_of_command(self, session: Session) -> Level:
        """The level of what a command prints: the highest of all that its sandbox lets it see."""
        return level_of_all(session.workspace_level, self._rules)
