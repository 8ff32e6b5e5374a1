"""The agents' client: submit, wait, follow, cancel. The only module of `contracts` that needs redis."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from contracts import keys, wire
from contracts.calls import JobId, check_name
from contracts.codec import MAX_PAYLOAD_BYTES, content_digest, encode, encode_call
from contracts.connection import QueueConnection, clock_ms
from contracts.pressure import Gauge, retry_after_ms
from contracts.pushing import COMMANDS, Push, commands_of, is_new, settle
from contracts.replies import AnyReply, TerminalReply
from contracts.settling import failed, settle_repeat, stored_outcome
from contracts.streams import Missed, ReplyReader, read_replies
from contracts.tasks import until
from contracts.waiting import OnProgress, Waiter, Waiters

CANCEL_LIFE_MS = 3600 * 1000
CLOCK_LIFE_S = 60.0
MAX_DEADLINE_S = 1e9


class Submitted(Struct, frozen=True):
    """A call on its way. `settled` is its reply where the call needed no run: a repeat, a conflict, a refusal."""

    session: str
    call: str
    settled: TerminalReply | None = None


class Client(QueueConnection):
    """Speaks for the sessions of one queue over one event loop. Use as `async with Client.connect(url) as client`.

    All submits share one connection, and one blocking XREAD on another serves all sessions.
    """

    def __init__(self, redis: Redis, *, queue: str = "default") -> None:
        super().__init__(redis, queue=queue)
        self._waiters = Waiters()
        self._reader = ReplyReader(redis, self._queue, self._waiters)
        self._gauge = Gauge(self._queue)
        self._clock_offset_ms = 0
        self._clock_read = float("-inf")
        self._last_score = 0.0

    async def close(self) -> None:
        """Stops reading and closes the connections. Calls that were accepted run on; waits end by a ConnectionError."""
        self._waiters.close(RedisConnectionError(wire.CLOSED))
        await self._reader.close()
        wire.close(self._redis)
        await super().close()

    # -- calls

    async def call(
        self,
        tool: str,
        args: Any,
        *,
        session: str,
        call_id: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> TerminalReply:
        """Submits a call and waits for its terminal reply. `options` are those of `submit`.

        Raises:
            TimeoutError: no terminal reply within `timeout_s`; the call may still run, and can be waited for again.
            ValueError: a name is malformed, or the deadline is no number of seconds.
            redis.RedisError, OSError: Redis is out of reach.
        """
        call_id = new_call_id() if call_id is None else call_id
        waiter = self._waiters.expect(session, call_id, on_progress, timeout_s)
        try:
            push = await self._begin(tool, args, session, call_id, waiter, **options)
            # Nobody needs the answers to a push whose reply comes.
            reply = push.settled or await waiter.future
            while reply is None:
                if (reply := await until(waiter.ends, settle(self._redis, push))) is None:
                    waiter.again()
                    reply = await waiter.future
            return reply
        finally:
            self._waiters.forget(waiter)

    async def submit(
        self,
        tool: str,
        args: Any,
        *,
        session: str,
        call_id: str | None = None,
        deadline_s: float | None = None,
        priority: str = "interactive",
        trace: str | None = None,
    ) -> Submitted:
        """Pushes a call. `args` is the tool's struct or a plain object; `deadline_s` counts from now.

        A call id used before in the session is settled here by comparing content: the first outcome, `in_flight`, or
        `conflict_call_id`. Repeating a submit whose fate is unknown is safe with the same call id. Where the queue is
        full it is `unavailable`, and was not pushed: the same call id may be used after `retry_after_ms`.

        Raises:
            ValueError: a name is malformed, or the deadline is no number of seconds.
            redis.RedisError, OSError: Redis is out of reach; the call may or may not have been accepted.
        """
        options: dict[str, Any] = {"deadline_s": deadline_s, "priority": priority, "trace": trace}
        call_id = new_call_id() if call_id is None else call_id
        push = await self._begin(tool, args, session, call_id, None, **options)
        return Submitted(session, push.job.call, push.settled or await settle(self._redis, push))

    async def _begin(
        self,
        tool: str,
        args: Any,
        session: str,
        call_id: str,
        waiter: Waiter | None,
        *,
        deadline_s: float | None = None,
        priority: str = "interactive",
        trace: str | None = None,
    ) -> Push:
        """Pushes a call. The waiter is called off unless Redis takes it as a new one."""
        job = JobId(self._queue, check_name("session", session), check_name("call id", call_id))
        if deadline_s is not None and not -MAX_DEADLINE_S <= deadline_s <= MAX_DEADLINE_S:
            raise ValueError(f"a deadline is a number of seconds up to {MAX_DEADLINE_S:.0e}, not {deadline_s}")
        ends = waiter.ends if waiter is not None else None
        if not self._reader.knows(session) or time.monotonic() - self._clock_read > CLOCK_LIFE_S:
            await until(ends, self._prepare(session))
        now_ms = self._now_ms()
        deadline_ms = None if deadline_s is None else now_ms + int(deadline_s * 1000)
        payload = encode_call(tool, args, enqueued_ms=now_ms, deadline_ms=deadline_ms, priority=priority, trace=trace)
        size = len(payload)
        push = Push(job, tool, args)
        if size > MAX_PAYLOAD_BYTES:
            message = f"the call has {size} bytes, {MAX_PAYLOAD_BYTES} is the most"
            push.settled = failed(job, tool, "too_large", message, effect="none")
        elif self._why_not(session, size) is not None:
            push.settled = await until(ends, self._held_back(push, size))
        if push.settled is not None:
            return push
        if waiter is not None:
            # Before Redis has answered: the reply may be there as soon as that.
            self._reader.begin(session)
        pushing = commands_of(job, payload, priority, self._next_score(), deadline_s)
        push.commands = [*pushing, *self._gauge.commands()]

        def note(answers: list[Any]) -> None:
            self._gauge.learn(answers[COMMANDS:])
            self._gauge.note(size)
            if waiter is None:
                return
            if is_new(answers):
                waiter.confirm()
            else:
                waiter.call_off()

        push.sent = await wire.send(self._redis, push.commands, note, ends)
        return push

    def _why_not(self, session: str, payload_bytes: int) -> str | None:
        """Why this call must wait, going by the last look."""
        if self._waiters.calls_of(session) > self._gauge.session_calls:
            return f"more than {self._gauge.session_calls} calls of this session are unanswered"
        return self._gauge.refusal(payload_bytes)

    async def _held_back(self, push: Push, payload_bytes: int) -> TerminalReply | None:
        """The refusal of a call that must wait. Looked at again before: nothing else looks while nothing is sent.

        A repeat is settled even now: it costs the queue nothing.
        """
        if commands := self._gauge.commands():
            self._gauge.learn(await self._send(*commands))
        job = push.job
        if (why := self._why_not(job.session, payload_bytes)) is None:
            return None
        key, outcome = keys.job(job.queue, job.session, job.call), keys.done(job.queue, job.session, job.call)
        done, is_known = await self._ask(("GET", outcome), ("EXISTS", key))
        if done is not None or is_known:
            return await settle_repeat(self._redis, job, push.tool, content_digest(push.tool, encode(push.args)), done)
        return failed(job, push.tool, "unavailable", why, hint="try again later", retry_after_ms=retry_after_ms())

    async def wait(self, session: str, call_id: str, *, timeout_s: float | None = None) -> TerminalReply:
        """The terminal reply of a call that was submitted here or elsewhere, now or earlier.

        Raises:
            TimeoutError: none within `timeout_s`.
            ValueError: a name is malformed.
            redis.RedisError, OSError: Redis is out of reach.
        """
        job = JobId(self._queue, check_name("session", session), check_name("call id", call_id))
        waiter = self._waiters.expect(session, call_id, None, timeout_s)
        waiter.confirm()
        try:
            reply = await until(waiter.ends, self._stored(job))
            if reply is None:
                self._reader.begin(session)
                reply = await waiter.future
            assert reply is not None
            return reply
        finally:
            self._waiters.forget(waiter)

    async def _stored(self, job: JobId) -> TerminalReply | None:
        """The outcome of a call that has ended. Looked for once the stream's position is known: none is missed."""
        await self._prepare(job.session)
        (done,) = await self._ask(("GET", keys.done(job.queue, job.session, job.call)))
        return None if done is None else await stored_outcome(self._redis, job, done)

    async def now_ms(self) -> int:
        """Redis' clock, Unix time in ms."""
        (answer,) = await self._ask(("TIME",))
        return clock_ms(answer)

    async def is_served(self) -> bool:
        """Whether a worker of the queue has been heard of within its heartbeats' life."""
        (answer,) = await self._ask(("EXISTS", keys.workers(self._queue)))
        return bool(answer == 1)

    async def cancel(self, session: str, call_id: str) -> None:
        """Asks for the end of a call, whether it waits or runs. Its terminal reply tells what became of it.

        Raises:
            ValueError: a name is malformed.
            redis.RedisError, OSError: Redis is out of reach or has no memory; the wish may or may not be heard.
        """
        check_name("session", session), check_name("call id", call_id)
        noted, _ = await self._send(
            ("SET", keys.cancel(self._queue, session, call_id), 1, "PX", CANCEL_LIFE_MS),
            ("PUBLISH", keys.cancel_channel(self._queue), f"{session}:{call_id}"),
        )
        if isinstance(noted, BaseException):
            raise noted

    async def replies(
        self, session: str, *, follow: bool = False, after: str = "0"
    ) -> AsyncIterator[tuple[str, AnyReply | Missed]]:
        """Yields (stream id, reply) of a session in order; with `follow`, for ever.

        `Missed` comes first wherever the stream no longer has the entry that was read last: what came after it may have
        been trimmed away with it. Outcomes that were missed are told by `wait`.

        Raises:
            ValueError: the session's name or `after` is malformed, or an entry is none that this version can read.
            redis.RedisError, OSError: Redis is out of reach; a follower that has read once waits for it.
        """
        check_name("session", session)
        async for each in read_replies(self._redis, self._queue, session, follow=follow, after=after):
            yield each

    # -- the wire

    async def _prepare(self, session: str) -> None:
        """Learns where the session's stream stands, and Redis' clock, before the first call in a while."""
        wanted: list[tuple[Any, ...]] = []
        if not self._reader.knows(session):
            wanted.append(("XREVRANGE", keys.replies(self._queue, session), "+", "-", "COUNT", 1))
        if time.monotonic() - self._clock_read > CLOCK_LIFE_S:
            wanted.append(("TIME",))
        if not wanted:
            return
        answers = await self._send(*wanted, *self._gauge.commands())
        self._gauge.learn(answers[len(wanted) :])
        for (name, *_), answer in zip(wanted, answers, strict=False):
            if isinstance(answer, BaseException):
                raise answer
            if name == "TIME":
                self._clock_offset_ms = clock_ms(answer) - _local_ms()
                self._clock_read = time.monotonic()
            else:
                self._reader.learn(session, answer[0][0].decode() if answer else "0-0")

    def _next_score(self) -> float:
        """Redis' time in ms, and later than every score before: Redis sorts equal scores by name, not by arrival."""
        now = time.time_ns() / 1_000_000 + self._clock_offset_ms
        self._last_score = max(now, self._last_score + 0.001)
        return round(self._last_score, 3)

    def _now_ms(self) -> int:
        return _local_ms() + self._clock_offset_ms

    async def _ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """What `_send` gives. Raises its first error."""
        answers = await self._send(*commands)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _send(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Commands of one caller, in order and in one go. Errors come back as values."""
        return await wire.execute_all(self._redis, commands)


def new_call_id() -> str:
    """A call id that nobody has used."""
    return os.urandom(16).hex()


def _local_ms() -> int:
    return time.time_ns() // 1_000_000


__all__: Sequence[str] = ["Client", "Missed", "Submitted", "new_call_id"]
