"""What becomes of a call that does not run: a repeat has the first outcome, another call of the same id conflicts."""

from __future__ import annotations

from typing import Any

from contracts import keys, wire
from contracts.calls import JobId
from contracts.codec import decode_entry, decode_reply, payload_digest
from contracts.replies import EFFECT_OF_CODE, Error, ErrorCode, Failed, Progress, TerminalReply

_LOOK = "look at the state of the workspace, then decide; a new call needs a new call id"


def failed(job: JobId, tool: str, code: ErrorCode, message: str, **more: Any) -> Failed:
    """A refusal that no worker has seen. `more` are fields of the error."""
    more.setdefault("effect", EFFECT_OF_CODE[code])
    more.setdefault("retryable", code == "unavailable")
    return Failed(session=job.session, call=job.call, tool=tool, error=Error(code=code, message=message, **more))


async def settle_repeat(redis: Any, job: JobId, tool: str, digest: str, done: bytes | None) -> TerminalReply:
    """The answer to a call whose id was used before. May raise redis.RedisError or OSError."""
    if done is None:
        mine = await wire.execute(redis, "GET", keys.job(job.queue, job.session, job.call))
        if mine is not None:
            if payload_digest(mine) != digest:
                return _conflict(job, tool)
            return failed(job, tool, "in_flight", "this call is on its way already", hint="follow it")
        done = await wire.execute(redis, "GET", keys.done(job.queue, job.session, job.call))
        if done is None:
            return _unknown(job, tool, "the call has ended; its outcome has expired")
    if done.split(b" ", 1)[0].decode() != digest:
        return _conflict(job, tool)
    return await stored_outcome(redis, job, done, tool)


async def stored_outcome(redis: Any, job: JobId, done: bytes, tool: str = "") -> TerminalReply:
    """The reply that an ended call left behind.

    Raises:
        ValueError, KeyError: it is none that this version can read.
        redis.RedisError, OSError: Redis is out of reach.
    """
    _digest, entry_id, reply = done.split(b" ", 2)
    if not reply:
        entries = await wire.execute(redis, "XRANGE", keys.replies(job.queue, job.session), entry_id, entry_id)
        if not entries:
            return _unknown(job, tool, "the call has ended; its reply has been trimmed")
        outcome = decode_entry(entries[0][1])
    else:
        outcome = decode_reply(reply)
    if isinstance(outcome, Progress):
        raise ValueError("a stored outcome is no terminal reply")
    return outcome


def _unknown(job: JobId, tool: str, message: str) -> Failed:
    return failed(job, tool, "unavailable", message, effect="unknown", retryable=False, hint=_LOOK)


def _conflict(job: JobId, tool: str) -> Failed:
    message = "this call id was used in this session for another call"
    return failed(job, tool, "conflict_call_id", message, hint="use a new call id")
