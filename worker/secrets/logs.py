"""Log lines without secrets, tracebacks included."""

from __future__ import annotations

import logging

from worker.secrets.redactor import Redactor


class RedactingFormatter(logging.Formatter):
    """What another formatter makes of a record, redacted."""

    def __init__(self, inner: logging.Formatter, redactor: Redactor) -> None:
        super().__init__()
        self.inner, self._redactor = inner, redactor

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return self._redactor.redact(self.inner.format(record)).text


def redact_logs(redactor: Redactor) -> None:
    """From now on nothing that this process' handlers write has a secret in it."""
    for handler in (*logging.getLogger().handlers, *logging.getLogger("toolreef").handlers):
        inner = handler.formatter or logging.Formatter()
        if isinstance(inner, RedactingFormatter):
            inner = inner.inner
        handler.setFormatter(RedactingFormatter(inner, redactor))
