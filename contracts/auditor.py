"""The auditor's side: what the audit stream in Redis says of the workers' audit logs, to hold their files against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from contracts import keys
from contracts.calls import check_name
from contracts.connection import QueueConnection

_CHUNK = 1000


class Head(Struct, frozen=True):
    """A record of a worker's audit log by its number and hash: as long as it has this hash, all before it are there."""

    worker: str
    seq: int
    hash: str


class TaintStep(Struct, frozen=True, kw_only=True):
    """When a session's taint rose to a level, and by which call; `orchestrator` where it was raised from outside."""

    level: str
    at_ms: int
    by: str


_read_entry = msgspec.json.Decoder(Head)


class Auditor(QueueConnection):
    """Reads what one queue keeps for auditors, with their Redis user. Methods may raise redis.RedisError."""

    async def heads(self) -> list[Head]:
        """Every record that the stream still names, and the last of each worker."""
        found = [
            Head(worker.decode(), int(seq), hash_.decode())
            for worker, text in (await self._redis.hgetall(keys.heads(self._queue))).items()
            for seq, hash_ in [text.split(b" ")[:2]]
        ]
        last = "-"
        while entries := await self._redis.xrange(keys.audit(self._queue), last, "+", count=_CHUNK):
            found += _heads(entries)
            last = f"({entries[-1][0].decode()}"
        return found

    async def taint_steps(self, session: str) -> list[TaintStep]:
        """How the session's taint rose, as its record tells; empty for one that is closed.

        Raises:
            ValueError: the name is malformed.
        """
        record = await self._redis.hgetall(keys.session(self._queue, check_name("session", session)))
        steps = []
        for field, text in record.items():
            name, _, level = field.decode(errors="replace").partition(":")
            if name == "taint" and level:
                at_ms, _, by = text.decode(errors="replace").partition(" ")
                steps.append(TaintStep(level=level, at_ms=int(at_ms), by=by))
        return sorted(steps, key=lambda step: step.at_ms)


def _heads(entries: list[Any]) -> Iterator[Head]:
    for _, fields in entries:
        try:
            head = _read_entry.decode(fields.get(b"entry", b""))
        except (msgspec.MsgspecError, RecursionError):
            continue  # not a worker's entry; it vouches for nothing
        yield head
