"""The audit stream, read from its end: the latest calls kept at hand, earlier ones page by page."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from contracts import keys
from worker.dashboard.reads import Entry, Reads, read_entries, read_entry, stream_ms

KEPT = 5000
"""Entries kept at hand a queue."""
CHUNK = 1000
MAX_CHUNKS = 5
"""A page looks at 5,000 entries at most, then offers to go on."""
FRESH_S = 0.5
STALE_S = 30.0
"""After so long without a look, reading on costs more than reading anew."""

Wanted = Callable[[Entry], bool]


class Found(Struct, frozen=True, kw_only=True):
    """Entries, latest first. `more` is where to go on, or None at the stream's end."""

    entries: list[Entry]
    looked_at: int
    looked_back_to_ms: int | None
    more: str | None


class AuditTail:
    """The latest entries of one queue's audit stream, shared by all pages that are made of them."""

    def __init__(self, reads: Reads, queue: str) -> None:
        self._reads, self._name = reads, keys.audit(queue)
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._last = ""
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def latest(self) -> list[Entry]:
        """The latest entries, oldest first. Reads what is new since the last look, at most twice a second."""
        async with self._lock:
            if time.monotonic() - self._read_at > FRESH_S:
                await self._refresh()
                self._read_at = time.monotonic()
            return list(self._entries)

    async def _refresh(self) -> None:
        if self._last and time.monotonic() - self._read_at < STALE_S:
            answer = await self._reads.redis.xrange(self._name, f"({self._last}", "+", count=CHUNK)
            if len(answer) < CHUNK:
                self._entries.extend(read_entries(answer))
                self._last = answer[-1][0].decode() if answer else self._last
                return
            # More ends than is read: only the latest are kept, so that what is kept has no gap in it.
            answer = await self._reads.redis.xrevrange(self._name, "+", "-", count=CHUNK)
        else:
            answer = await self._reads.redis.xrevrange(self._name, "+", "-", count=KEPT)
        self._entries.clear()
        self._entries.extend(reversed(read_entries(answer)))
        self._last = answer[0][0].decode() if answer else ""

    async def search(
        self, wanted: Wanted, *, limit: int, before: str = "", since_ms: int | None = None, needle: bytes = b""
    ) -> Found:
        """The latest entries that are wanted, from `before` back to `since_ms`.

        `needle` stands in the JSON of every wanted entry; what lacks it is not even decoded.
        """
        found: list[Entry] = []
        looked_at, back_to = 0, None
        end = f"({before}" if before else "+"
        if before and not await self._reads.redis.xrange(self._name, "-", end, count=1):
            # XREVRANGE would go through the whole stream to find the same.
            return _found([], 0, None, None)
        start = str(since_ms) if since_ms else "-"
        for _ in range(MAX_CHUNKS):
            answer = await self._reads.redis.xrevrange(self._name, end, start, count=CHUNK)
            for item in answer:
                looked_at += 1
                back_to = item[0].decode()
                if needle and needle not in item[1].get(b"entry", b""):
                    continue
                entry = read_entry(item)
                if entry is not None and wanted(entry):
                    found.append(entry)
                    if len(found) == limit:
                        return _found(found, looked_at, back_to, back_to)
            if len(answer) < CHUNK:
                return _found(found, looked_at, back_to, None)
            end = f"({back_to}"
        return _found(found, looked_at, back_to, back_to)

    async def at(self, stream_id: str, session: str, call: str) -> list[Entry]:
        """The entries of a call that ended in the millisecond of `stream_id`, or within the next few."""
        at_ms = stream_ms(stream_id)
        answer = await self._reads.redis.xrange(self._name, str(at_ms), str(at_ms + 5), count=CHUNK)
        return [entry for entry in read_entries(answer) if entry.session == session and entry.call == call]


def _found(entries: list[Entry], looked_at: int, back_to: str | None, more: str | None) -> Found:
    return Found(
        entries=entries, looked_at=looked_at, looked_back_to_ms=stream_ms(back_to) if back_to else None, more=more
    )
