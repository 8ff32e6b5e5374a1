"""Output as it is shown while the command runs: coalesced, bounded, what was dropped counted and said."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable
from typing import Literal

from worker.capture import strip_escapes

Stream = Literal["stdout", "stderr"]
Send = Callable[[Stream, str, int], Awaitable[None]]
"""(stream, text, dropped_bytes)"""

_EACH_S = 0.2
_CHUNK_BYTES = 32 * 1024


class _Pending:
    """What one stream has to say: whole characters without escape codes, at most `_CHUNK_BYTES`."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.data = bytearray()
        self.dropped = 0

    def take(self, *, final: bool) -> tuple[str, int]:
        text, self._held = strip_escapes(self._held + self._decoder.decode(bytes(self.data), final), final=final)
        dropped = self.dropped
        self.data.clear()
        self.dropped = 0
        return text, dropped


class Relay:
    """Both streams of one command on their way to `send`.

    A piece goes out every 0.2 s or when 32 KiB have come together. What comes faster than `send` takes it, and all
    beyond `budget_bytes`, is dropped and counted into the next entry.
    """

    def __init__(self, send: Send, budget_bytes: int) -> None:
        self._send = send
        self._budget_bytes = budget_bytes
        self._pending: dict[Stream, _Pending] = {"stdout": _Pending(), "stderr": _Pending()}
        self._something = asyncio.Event()
        self._enough = asyncio.Event()
        self._closing = False

    def add(self, stream: Stream, chunk: bytes) -> None:
        """The next bytes of a stream."""
        pending = self._pending[stream]
        room = min(_CHUNK_BYTES - len(pending.data), self._budget_bytes)
        taken = chunk[:room] if room > 0 else b""
        pending.data += taken
        pending.dropped += len(chunk) - len(taken)
        self._budget_bytes -= len(taken)
        if taken:
            self._something.set()
        if len(pending.data) >= _CHUNK_BYTES:
            self._enough.set()

    def close(self) -> None:
        """No more is coming: `run` ends once the rest is sent."""
        self._closing = True
        self._something.set()
        self._enough.set()

    async def run(self) -> None:
        """Send until closed."""
        while not self._closing:
            await self._something.wait()
            try:
                await asyncio.wait_for(self._enough.wait(), _EACH_S)
            except TimeoutError:
                pass
            if not self._closing:
                self._something.clear()
                self._enough.clear()
                await self._flush(final=False)
        await self._flush(final=True)

    async def _flush(self, *, final: bool) -> None:
        for stream, pending in self._pending.items():
            if not final and not pending.data:
                continue
            text, dropped = pending.take(final=final)
            if text or dropped:
                await self._send(stream, text, dropped)
