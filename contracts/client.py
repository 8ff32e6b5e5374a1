"""The agents' client: submit, wait, follow, cancel. The only module of `contracts` that needs redis."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from contracts import keys
from contracts.calls import JobId, check_name
from contracts.codec import MAX_PAYLOAD_BYTES, content_digest, decode_reply, encode, encode_call, payload_digest
from contracts.connection import UNREACHABLE, QueueConnection
from contracts.replies import EFFECT_OF_CODE, AnyReply, Error, ErrorCode, Failed, Progress, TerminalReply
from contracts.streams import OnProgress, ReplyReader

PAYLOAD_LIFE_MS = 7 * 24 * 3600 * 1000
CANCEL_LIFE_MS = 3600 * 1000
CLOCK_LIFE_S = 60.0
RETRY_AFTER_MS = 1000


class Submitted(Struct, frozen=True):
    """A call on its way. `settled` is its reply where the call needed no run: a repeat, a conflict, a refusal."""

    session: str
    call: str
    settled: TerminalReply | None = None


class Client(QueueConnection):
    """Speaks for the sessions of one queue over one event loop. Use as `async with Client.connect(url) as client`.

    Submits of one loop turn share a pipeline, and one blocking XREAD serves all sessions.
    """

    def __init__(self, redis: Redis, *, queue: str = "default") -> None:
        super().__init__(redis, queue=queue)
        self._reader = ReplyReader(redis, self._queue)
        self._outbox: list[tuple[list[tuple[Any, ...]], asyncio.Future[list[Any]]]] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._clock_offset_ms = 0
        self._clock_read = float("-inf")
        self._last_score = 0.0

    async def close(self) -> None:
        """Stops reading and closes the connections. Calls that were accepted run on."""
        await self._reader.close()
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
            ValueError: a name is malformed.
            redis.RedisError, OSError: Redis is out of reach.
        """
        call_id = call_id or new_call_id()
        async with asyncio.timeout(timeout_s):
            waiter = self._reader.expect(session, call_id, on_progress)
            try:
                submitted = await self.submit(tool, args, session=session, call_id=call_id, **options)
                return submitted.settled or await self._reader.wait(waiter)
            finally:
                self._reader.forget(waiter)

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
        `conflict_call_id`. Repeating a submit whose fate is unknown is safe with the same call id.

        Raises:
            ValueError: a name is malformed.
            redis.RedisError, OSError: Redis is out of reach; the call may or may not have been accepted.
        """
        job = JobId(self._queue, check_name("session", session), check_name("call id", call_id or new_call_id()))
        await self._prepare(session)
        now_ms = self._now_ms()
        deadline_ms = None if deadline_s is None else now_ms + int(deadline_s * 1000)
        payload = encode_call(tool, args, enqueued_ms=now_ms, deadline_ms=deadline_ms, priority=priority, trace=trace)
        if len(payload) > MAX_PAYLOAD_BYTES:
            message = f"the call has {len(payload)} bytes, {MAX_PAYLOAD_BYTES} is the most"
            return Submitted(session, job.call, _failed(job, tool, "too_large", message, effect="none"))
        return Submitted(session, job.call, await self._push(job, tool, args, payload, deadline_s, priority))

    async def _push(
        self, job: JobId, tool: str, args: Any, payload: bytes, deadline_s: float | None, priority: str
    ) -> TerminalReply | None:
        queue = keys.batch(job.queue) if priority == "batch" else keys.queue(job.queue)
        life_ms = PAYLOAD_LIFE_MS + int((deadline_s or 0) * 1000)
        was_set, added, _rung, done = await self._send(
            ("SET", keys.job(job.queue, job.session, job.call), payload, "NX", "PX", life_ms),
            ("ZADD", queue, "NX", self._next_score(), str(job)),
            ("LPUSH", keys.bell(job.queue), 1),
            # Read after the SET: whoever removed the payload has stored the outcome in the same step.
            ("GET", keys.done(job.queue, job.session, job.call)),
        )
        # An unrung bell only delays a call that is accepted: workers look by themselves, too.
        for answer in (was_set, added, done):
            if isinstance(answer, OutOfMemoryError):
                message = "Redis has no memory for more calls"
                return _failed(job, tool, "unavailable", message, retry_after_ms=RETRY_AFTER_MS)
            if isinstance(answer, BaseException):
                raise answer
        if was_set and done is None:
            return None
        digest = content_digest(tool, encode(args))
        if done is None:
            mine = await self._redis.get(keys.job(job.queue, job.session, job.call))
            if mine is not None:
                if payload_digest(mine) != digest:
                    return _conflict(job, tool)
                return _failed(job, tool, "in_flight", "this call is on its way already", hint="follow it")
            done = await self._redis.get(keys.done(job.queue, job.session, job.call))
        return await self._first_outcome(job, tool, digest, done)

    async def _first_outcome(self, job: JobId, tool: str, digest: str, done: bytes | None) -> TerminalReply:
        if done is None:
            return _failed(job, tool, "unavailable", "the call's outcome has expired", hint="use a new call id")
        first, entry_id, reply = done.split(b" ", 2)
        if first.decode() != digest:
            return _conflict(job, tool)
        if not reply:
            entries = await self._redis.xrange(keys.replies(job.queue, job.session), entry_id, entry_id)
            if not entries:
                return _failed(job, tool, "unavailable", "the call has ended; its reply has been trimmed")
            reply = entries[0][1][b"reply"]
        outcome = decode_reply(reply)
        assert not isinstance(outcome, Progress)
        return outcome

    async def wait(self, session: str, call_id: str, *, timeout_s: float | None = None) -> TerminalReply:
        """The terminal reply of a call that was submitted here or elsewhere, now or earlier.

        Raises:
            TimeoutError: none within `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            waiter = self._reader.expect(session, call_id, None)
            try:
                await self._prepare(session)
                done = await self._redis.get(keys.done(self._queue, session, call_id))
                if done is not None:
                    return await self._first_outcome(
                        JobId(self._queue, session, call_id), "", done.split(b" ", 1)[0].decode(), done
                    )
                return await self._reader.wait(waiter)
            finally:
                self._reader.forget(waiter)

    async def is_served(self) -> bool:
        """Whether a worker of the queue has been heard of within its heartbeats' life."""
        (answer,) = await self._send(("EXISTS", keys.workers(self._queue)))
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
    ) -> AsyncIterator[tuple[str, AnyReply]]:
        """Yields (stream id, reply) of a session in order; with `follow`, for ever."""
        name = keys.replies(self._queue, check_name("session", session))
        while True:
            answer = await self._redis.xread({name: after}, count=100, block=2000 if follow else None)
            for _, entries in answer or ():
                for entry_id, fields in entries:
                    after = entry_id.decode()
                    yield after, decode_reply(fields[b"reply"])
            if not answer and not follow:
                return

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
        for (name, *_), answer in zip(wanted, await self._send(*wanted), strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if name == "TIME":
                seconds, micros = answer
                self._clock_offset_ms = int(seconds) * 1000 + int(micros) // 1000 - _local_ms()
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

    async def _send(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Commands of one caller, in order, in the pipeline of this loop turn. Errors come back as values."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        self._outbox.append((list(commands), future))
        if len(self._outbox) == 1:
            loop.call_soon(self._start_flush)
        return await future

    def _start_flush(self) -> None:
        task = asyncio.get_running_loop().create_task(self._flush())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for commands, _ in outbox:
                    for command in commands:
                        pipe.execute_command(*command)
                answers = await pipe.execute(raise_on_error=False)
        except UNREACHABLE as error:
            for _, future in outbox:
                if not future.done():
                    future.set_exception(error)
            return
        at = 0
        for commands, future in outbox:
            if not future.done():
                future.set_result(answers[at : at + len(commands)])
            at += len(commands)


def new_call_id() -> str:
    """A call id that nobody has used."""
    return uuid.uuid4().hex


def _local_ms() -> int:
    return time.time_ns() // 1_000_000


def _conflict(job: JobId, tool: str) -> Failed:
    message = "this call id was used in this session for another call"
    return _failed(job, tool, "conflict_call_id", message, hint="use a new call id")


def _failed(job: JobId, tool: str, code: ErrorCode, message: str, **more: Any) -> Failed:
    more.setdefault("effect", EFFECT_OF_CODE[code])
    error = Error(code=code, message=message, retryable=code == "unavailable", **more)
    return Failed(session=job.session, call=job.call, tool=tool, error=error)


__all__: Sequence[str] = ["Client", "Submitted", "new_call_id"]
