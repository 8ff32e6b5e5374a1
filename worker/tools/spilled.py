"""Files of the workspace that take what a reply can't hold; whoever finds them later finds no secret in them."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator

from worker.relay import Stream
from worker.secrets import Redactor
from worker.tools.context import ToolContext
from worker.tools.offload import in_thread
from worker.workspace import Outside

_SPILLS_BYTES = 512 * 1024**2
_SPILLS_AGE_S = 24 * 3600.0
_AT_ONCE_BYTES = 512 * 1024


class Spill:
    """The spill files of one command. `redact` when nobody writes to them any more; `close` in any case."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._trimmed = False
        self._open: list[int] = []

    def create(self, stream: Stream) -> tuple[int, str] | None:
        """One stream's file."""
        spills = self._context.workspace.spills
        name = f"{self._context.session.name}.{self._context.call}.{stream}"
        try:
            if not self._trimmed:
                self._trimmed = True
                spills.trim(max_bytes=self._max_bytes(), max_age_s=_SPILLS_AGE_S)
            try:
                made = spills.create(name)
            except FileExistsError:
                made = spills.create(f"{name}.{secrets.token_hex(4)}")
        except (OSError, Outside):
            return None  # a full disk, or a command that made .toolreef something else: the reply says what is missing
        self._open.append(os.dup(made[0]))
        return made

    def _max_bytes(self) -> int:
        # A small workspace is not to be filled by what is kept for the agent's convenience.
        allowed = self._context.limits.workspace_bytes
        return min(_SPILLS_BYTES, allowed // 8) if allowed else _SPILLS_BYTES

    async def redact(self) -> None:
        """Puts the names of secrets in their places."""
        if self._open and self._context.redactor is not None:
            await in_thread(self._redact)

    def close(self) -> None:
        """Gives the files free. One that could not be looked through, since the call was stopped, is emptied."""
        for fd in self._taken():
            if self._context.redactor is not None:
                with contextlib.suppress(OSError):
                    if os.fstat(fd).st_size <= _AT_ONCE_BYTES:
                        _redact_file(fd, self._context.redactor)
                    else:
                        os.ftruncate(fd, 0)

    def _redact(self) -> None:
        assert self._context.redactor is not None
        for fd in self._taken():
            try:
                _redact_file(fd, self._context.redactor)
            except OSError:
                os.ftruncate(fd, 0)
                raise

    def _taken(self) -> Iterator[int]:
        while self._open:
            fd = self._open.pop()
            try:
                yield fd
            finally:
                os.close(fd)


def _redact_file(fd: int, redactor: Redactor) -> None:
    pieces, at = [], 0
    while piece := os.pread(fd, 1 << 20, at):
        pieces.append(piece)
        at += len(piece)
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    redacted = redactor.redact(text)
    if not redacted.rules_hit:
        return
    data, at = redacted.text.encode("utf-8", "surrogateescape"), 0
    while at < len(data):
        at += os.pwrite(fd, data[at : at + (1 << 20)], at)
    os.ftruncate(fd, len(data))
