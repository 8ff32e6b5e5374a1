"""What people did through the dashboard: written before it is done, read by the pages."""

from __future__ import annotations

from typing import Any

from contracts import keys
from worker.dashboard.call_records import Action
from worker.dashboard.reads import Reads, stream_ms, text

KEPT = 10_000
LIFE_MS = 365 * 24 * 3600 * 1000
LOOKED_AT = 500


async def read_actions(reads: Reads, queue: str, session: str = "", call: str = "") -> list[Action]:
    """The latest actions of a queue, of one session, or on one call, latest first."""
    answer = await reads.redis.xrevrange(keys.actions(queue), "+", "-", count=LOOKED_AT)
    actions = [_read(item, queue) for item in answer]
    return [
        each for each in actions if (not session or each.session == session) and (not call or each.call in (call, ""))
    ]


async def write_action(redis: Any, queue: str, action: Action) -> None:
    """Records an action with the connection of the role that will carry it out. May raise redis.RedisError."""
    name = keys.actions(queue)
    fields = {field: getattr(action, field) for field in ("actor", "action", "session", "call", "reason", "digest")}
    async with redis.pipeline(transaction=False) as pipe:
        pipe.xadd(name, fields, maxlen=KEPT)
        pipe.pexpire(name, LIFE_MS)
        await pipe.execute()


def _read(item: Any, queue: str) -> Action:
    stream_id, fields = item
    values = {
        name: text(fields.get(name.encode()))[:512]
        for name in ("actor", "action", "session", "call", "reason", "digest")
    }
    return Action(at_ms=stream_ms(stream_id.decode()), queue=queue, **values)
