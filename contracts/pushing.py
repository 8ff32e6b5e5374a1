"""One call's way onto its queue: what is sent to Redis, and what its answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from contracts import keys, wire
from contracts.calls import JobId
from contracts.codec import content_digest, encode
from contracts.pressure import retry_after_ms
from contracts.pump import Command
from contracts.replies import TerminalReply
from contracts.settling import failed, settle_repeat

PAYLOAD_LIFE_MS = 7 * 24 * 3600 * 1000
COMMANDS = 4


class Push:
    """A call that is to be pushed: settled already, or sent, and then the answers come with `sent`."""

    __slots__ = ("args", "commands", "job", "sent", "settled", "tool")

    def __init__(self, job: JobId, tool: str, args: Any) -> None:
        self.job, self.tool, self.args = job, tool, args
        self.settled: TerminalReply | None = None
        self.commands: Sequence[Command] = ()
        self.sent: asyncio.Future[list[Any]] | None = None


def commands_of(job: JobId, payload: bytes, priority: str, score: float, deadline_s: float | None) -> list[Command]:
    """The COMMANDS that push a call, to where its priority belongs."""
    queue = keys.batch(job.queue) if priority == "batch" else keys.queue(job.queue)
    return [
        (
            "SET",
            keys.job(job.queue, job.session, job.call),
            payload,
            "NX",
            "PX",
            PAYLOAD_LIFE_MS + int(max(0.0, deadline_s or 0.0) * 1000),
        ),
        ("ZADD", queue, "NX", score, str(job)),
        ("LPUSH", keys.bell(job.queue), 1),
        # Read after the SET: whoever removed the payload has stored the outcome in the same step.
        ("GET", keys.done(job.queue, job.session, job.call)),
    ]


def is_new(answers: Sequence[Any]) -> bool:
    """Whether Redis took the call, and as one that it had not seen before."""
    return bool(answers[0] == b"OK" and type(answers[1]) is int and answers[3] is None)


async def settle(redis: Redis, push: Push) -> TerminalReply | None:
    """The reply to a push that started nothing new, None if it did.

    Raises:
        redis.RedisError, OSError: the call may or may not have been accepted.
    """
    assert push.sent is not None
    job, tool = push.job, push.tool
    was_set, added, _rung, done, *_ = await wire.resend_moved(redis, push.commands, await push.sent)
    # An unrung bell only delays a call that is accepted: workers look by themselves, too.
    for answer in (was_set, added, done):
        if isinstance(answer, OutOfMemoryError):
            message = "Redis has no memory for more calls"
            return failed(job, tool, "unavailable", message, retry_after_ms=retry_after_ms())
        if isinstance(answer, BaseException):
            raise answer
    if was_set and done is None:
        return None
    return await settle_repeat(redis, job, tool, content_digest(tool, encode(push.args)), done)
