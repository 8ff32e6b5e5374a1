"""Calls that wait for somebody's yes: what is asked, and what has been answered."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from contracts import keys
from contracts.levels import Level

MAX_ASKS = 1000
"""So many asks of a queue are kept, the newest; who asks more drives older ones out."""


class Ask(Struct, frozen=True, kw_only=True):
    """A call that was denied `approval_required`. `about` and `reason` are redacted; `digest` is what is approved."""

    session: str
    call: str
    digest: str
    tool: str
    about: str
    policy: str
    rule: str
    reason: str
    taint: Level = Level.PUBLIC
    workspace: str = ""


class PendingAsk(Struct, frozen=True, kw_only=True):
    """An ask that nobody has answered yet, and when it was last made, in ms."""

    asked_ms: int
    ask: Ask


class Permit(Struct, frozen=True, kw_only=True):
    """An approver's answer to one call of one session. `nonce` tells it from the answer before; one call may use it.

    `key` and `signature` are those of `contracts.signing`, where approvals are signed.
    """

    nonce: str
    verdict: Literal["approved", "rejected"]
    approver: str
    expires_ms: int
    reason: str = ""
    key: str = ""
    signature: str = ""


_read_ask = msgspec.json.Decoder(Ask)


async def read_pending(redis: Any, queue: str, session: str | None = None) -> list[PendingAsk]:
    """The asks of a queue, or of one session of it, that wait for an answer; the newest first. Three commands.

    For the users of the approver and the dashboard.
    """
    entries = await redis.xrevrange(keys.asks(queue), "+", "-", count=MAX_ASKS)
    newest: dict[tuple[str, str], PendingAsk] = {}
    for entry_id, fields in entries:
        ask = _read_ask.decode(fields[b"ask"])
        asked_ms = int(entry_id.split(b"-")[0])
        if session is None or ask.session == session:
            newest.setdefault((ask.session, ask.digest), PendingAsk(asked_ms=asked_ms, ask=ask))
    if not newest:
        return []
    async with redis.pipeline(transaction=False) as pipe:
        for name, digest in newest:
            pipe.hget(keys.permit(queue, name, digest), "nonce")
            pipe.get(keys.used(queue, name, digest))
        found = await pipe.execute()
    answers = zip(found[::2], found[1::2], strict=True)
    return [each for each, (nonce, used) in zip(newest.values(), answers, strict=True) if _waits(each, nonce, used)]


def _waits(pending: PendingAsk, nonce: bytes | None, used: bytes | None) -> bool:
    """No answer, or one that was used up before this was asked."""
    if nonce is None:
        return used is None or int(used.split(b" ")[2]) < pending.asked_ms
    if used is None or used.split(b" ")[0] != nonce:
        return False
    return int(used.split(b" ")[2]) < pending.asked_ms
