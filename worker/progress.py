"""Progress entries: classified like the final answer, and never before the session's taint has risen to their level."""

from __future__ import annotations

from typing import Literal

from contracts.codec import encode
from contracts.levels import highest
from contracts.replies import Progress
from worker.broker import Broker
from worker.claims import Claimed
from worker.hooks.post_tool_response import PostToolResponse, Sight
from worker.secrets import StreamRedactor

StreamName = Literal["stdout", "stderr"]


class ProgressWriter:
    """Writes one call's progress. What Redis will not take is counted into the next entry's `dropped_bytes`."""

    def __init__(self, claim: Claimed, broker: Broker, classify: PostToolResponse, sight: Sight) -> None:
        self._claim, self._broker, self._sight = claim, broker, sight
        self._streams: dict[StreamName, StreamRedactor] = {"stdout": classify.stream(), "stderr": classify.stream()}
        self._seq = 0
        self._unsaid = 0

    async def write(self, stream: StreamName, text: str, dropped_bytes: int) -> None:
        """Appends one piece of output. `dropped_bytes` were left out before it."""
        await self._append(stream, self._streams[stream].feed(text), dropped_bytes)

    async def finish(self) -> None:
        """Appends what was held back to look for secrets across pieces. Nothing, if nothing was ever written."""
        for stream, redactor in self._streams.items():
            if rest := redactor.finish():
                await self._append(stream, rest, 0)

    async def _append(self, stream: StreamName, text: str, dropped_bytes: int) -> None:
        if not text and not dropped_bytes:
            return
        level = highest((self._sight.level(), self._streams[stream].level))
        job = self._claim.job
        entry = Progress(
            session=job.session,
            call=job.call,
            seq=self._seq + 1,
            stream=stream,
            text=text,
            dropped_bytes=dropped_bytes + self._unsaid,
            level=level,
        )
        if await self._broker.progress(self._claim, level.value, [encode(entry)]):
            self._seq += 1
            self._unsaid = 0
        else:
            self._unsaid += dropped_bytes + len(text.encode(errors="replace"))
