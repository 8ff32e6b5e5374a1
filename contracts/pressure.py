"""How full a queue is: what workers publish of it, and whether a client should hold its calls back.

An agent's Redis user can run no script, so the limits hold as far as clients keep to them; what is hard stands in
`claim.lua` (calls of one session) and in Redis itself (maxmemory).
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from contracts import keys

RETRY_AFTER_MS = 1000
LOOK_EVERY_S = 1.0


class Pressure(Struct, frozen=True, kw_only=True):
    """`reef:{q}:pressure` as a worker wrote it, its fields in their order there. Limits have the workers' defaults.

    What waits for its session is `parked`; what no worker has seen yet is counted by asking the queue itself.
    """

    at_ms: int = 0
    parked_calls: int = 0
    parked_bytes: int = 0
    mean_bytes: int = 0
    used_memory: int = 0
    max_memory: int = 0
    """0 where Redis has no limit."""
    max_calls: int = 100_000
    max_bytes: int = 512 * 1024 * 1024
    max_memory_percent: int = 80
    session_calls: int = 1000
    session_bytes: int = 64 * 1024 * 1024


def read_pressure(text: bytes | None) -> Pressure:
    """The numbers; the defaults where no worker has written any, or what stands there is none of ours."""
    try:
        numbers = [int(word) for word in (text or b"").split()]
    except ValueError:
        numbers = []
    return Pressure(**dict(zip(Pressure.__struct_fields__, numbers, strict=False)))


class Gauge:
    """One client's view of one queue: looked at once a second, with what it has pushed since on top."""

    def __init__(self, queue: str) -> None:
        self._commands: tuple[tuple[Any, ...], ...] = (
            ("GET", keys.pressure(queue)),
            ("ZCARD", keys.queue(queue)),
            ("ZCARD", keys.batch(queue)),
        )
        self._looked_s = float("-inf")
        self._pressure = Pressure()
        self._unseen = 0
        self._calls = 0
        self._bytes = 0

    def commands(self) -> Sequence[tuple[Any, ...]]:
        """What to ask Redis, to be sent along with something else; nothing if the last look is fresh."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return ()
        self._looked_s = now_s
        return self._commands

    def learn(self, answers: Sequence[Any]) -> None:
        """The answers to `commands`. A refused command counts as empty: Redis' users may be older than this."""
        if not answers:
            return
        text, *depths = answers
        self._pressure = read_pressure(text if isinstance(text, bytes) else None)
        self._unseen = sum(depth for depth in depths if isinstance(depth, int))
        self._calls = self._bytes = 0

    def note(self, payload_bytes: int) -> None:
        """A call was pushed since the last look."""
        self._calls += 1
        self._bytes += payload_bytes

    def refusal(self, payload_bytes: int) -> str | None:
        """Why the queue takes no call of this size now; None if it does."""
        seen = self._pressure
        calls = self._unseen + seen.parked_calls + self._calls
        if calls >= seen.max_calls:
            return f"{calls} calls wait in the queue, {seen.max_calls} is the most"
        waiting = self._unseen * seen.mean_bytes + seen.parked_bytes + self._bytes
        if waiting + payload_bytes > seen.max_bytes:
            return f"about {waiting} bytes of calls wait in the queue, {seen.max_bytes} is the most"
        used = seen.used_memory + self._bytes + payload_bytes
        if seen.max_memory and used * 100 > seen.max_memory * seen.max_memory_percent:
            return f"Redis uses more than {seen.max_memory_percent} % of its memory"
        return None

    @property
    def session_calls(self) -> int:
        """How many calls of one session may be unanswered."""
        return self._pressure.session_calls


def retry_after_ms() -> int:
    """When to try again; not the same for all, so that a fleet does not return as one."""
    return RETRY_AFTER_MS + random.randrange(RETRY_AFTER_MS)
