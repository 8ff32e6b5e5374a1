"""Reads the reply streams of many sessions with one blocking command, and hands each reply to who waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from contracts import keys, wire
from contracts.calls import JobId
from contracts.codec import decode_entry
from contracts.pump import Command
from contracts.replies import AnyReply
from contracts.settling import stored_outcome
from contracts.tasks import end_all
from contracts.waiting import Waiters

BLOCK_MS = 5000
FOLLOW_MS = 2000
LOOK_AT_ONCE = 256
CROWDED = 64
Entries = list[tuple[bytes, list[bytes]]]

WATCH_LIFE_S = 30.0
"""How long a session's stream is read on after its last call: joining a blocked read costs a reconnection."""

_ENTRY_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?|\$")


class Missed(Struct, frozen=True, kw_only=True, tag_field="kind", tag="missed"):
    """Said to a reader whose last entry is no longer in the stream: what followed it may have been trimmed as well."""

    v: int = 1
    session: str
    after: str
    """The stream id that was read last."""
    next: str
    """The stream id that comes now."""


async def read_replies(
    redis: Redis, queue: str, session: str, *, follow: bool, after: str
) -> AsyncIterator[tuple[str, AnyReply | Missed]]:
    """Yields (stream id, reply) in order. A follower waits for ever, and over an outage once it has been answered.

    Raises:
        ValueError: `after` is no stream id, or an entry can't be read.
        redis.RedisError, OSError: Redis is out of reach.
    """
    if not _ENTRY_ID.fullmatch(after):
        raise ValueError(f"{after[:64]!r} is no stream id")
    name = keys.replies(queue, session)
    over = wire.another(redis, name, FOLLOW_MS / 1000) if follow else wire.shared(redis, name)
    failures, answered = 0, False
    try:
        while True:
            try:
                entries, lost = await _read_after(over, name, after, ("BLOCK", FOLLOW_MS) if follow else ())
                failures, answered = 0, True
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                if not (follow and answered) or over.closed or isinstance(error, AuthenticationError):
                    raise
                failures += 1
                await asyncio.sleep(min(2.0, 0.05 * 2 ** min(failures, 6)))
                continue
            if lost:
                yield after, Missed(session=session, after=after, next=entries[0][0].decode())
            for entry_id, fields in entries:
                after = entry_id.decode()
                yield after, decode_entry(fields)
            if not entries and not follow:
                return
    finally:
        if follow:
            over.close()


async def _read_after(over: wire.Wire, name: str, after: str, block: tuple[Any, ...]) -> tuple[Entries, bool]:
    """What stands in a stream after an id, and whether the entry of that id was lost. May raise like `read_replies`."""
    commands: list[Command] = [("XREAD", "COUNT", 100, *block, "STREAMS", name, after)]
    # A bare time is no entry that could be missing.
    if known := "-" in after and after != "0-0":
        # Asked after the reading: a position that is there now was there before.
        commands.append(("XRANGE", name, after, after))
    answers = await (await over.connected()).send(commands)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    entries = [entry for _, found in _streams_in(answers[0]) for entry in found]
    return entries, bool(entries) and known and not answers[1]


def _streams_in(answer: Any) -> list[tuple[bytes, Entries]]:
    # By RESP3, which a URL may ask for, it is a map.
    return list(answer.items()) if isinstance(answer, dict) else answer or []


@dataclass(slots=True)
class _Session:
    position: str
    used: float


class ReplyReader:
    """Reads the sessions that are waited for or were called lately: what is read already delays no call."""

    def __init__(self, redis: Redis, queue: str, waiters: Waiters) -> None:
        self._redis = redis
        self._queue = queue
        self._waiters = waiters
        self._sessions: dict[str, _Session] = {}
        self._task: asyncio.Task[None] | None = None
        # What the blocked read goes over, and what the next one would where a session joins.
        self._wire: wire.Wire | None = None
        self._spare: wire.Wire | None = None
        self._ready_since = float("-inf")
        self._readying: asyncio.Task[None] | None = None
        self._joined = self._cut = self._closed = False
        self._blocked_on: frozenset[str] | None = None
        self._looked = time.monotonic()
        self._crowded = CROWDED

    def knows(self, session: str) -> bool:
        """Whether the stream's position is known and still followed."""
        return session in self._sessions

    def learn(self, session: str, position: str) -> None:
        """Replies after this stream id are new."""
        if len(self._sessions) >= self._crowded:
            # Nobody else forgets them while nothing is read.
            self._forget_unused()
            self._crowded = max(CROWDED, 2 * len(self._sessions))
        self._sessions.setdefault(session, _Session(position, time.monotonic()))

    def begin(self, session: str) -> None:
        """Reads, from now on, what comes for a session whose position is known."""
        if self._closed:
            raise RedisConnectionError(wire.CLOSED)
        self._sessions[session].used = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif self._blocked_on is not None and session not in self._blocked_on and self._wire is not None:
            # A blocked read can't be told of another stream: it is cut off, the next goes over the other connection.
            self._blocked_on, self._joined, self._cut = None, True, True
            self._wire.cut()
            self._wire, self._spare = self._spare, self._wire
            if self._wire is not None and time.monotonic() - self._ready_since > WATCH_LIFE_S:
                # Unused for so long it may be gone without a word; a read over it would wait in vain.
                self._wire.cut()

    async def close(self) -> None:
        """Stops reading, for good. Its connections end with the client's shared one."""
        self._closed = True
        await end_all([task for task in (self._task, self._readying) if task is not None])

    async def _run(self) -> None:
        failures = 0
        while self._waiters or self._sessions:
            try:
                await self._read_once()
                failures = 0
            except (RedisError, OSError):
                if self._cut:
                    # A session joins; whatever fails next is Redis' own.
                    self._cut = False
                    continue
                failures += 1
                await asyncio.sleep(min(2.0, 0.05 * 2 ** min(failures, 6)))
                continue
            # By time, and not when nothing comes: one busy session must not keep the others from being looked at.
            if time.monotonic() - self._looked >= BLOCK_MS / 1000:
                self._looked = time.monotonic()
                await self._look_for_trimmed()

    async def _read_once(self) -> None:
        """Waits for what is new, BLOCK_MS at most, and hands it out.

        May raise redis.RedisError or OSError, also where a session joins.
        """
        self._forget_unused()
        if not self._sessions:
            if self._waiters:
                await asyncio.sleep(0.01)
            return
        if self._wire is None:
            some = keys.replies(self._queue, next(iter(self._sessions)))
            self._wire = wire.another(self._redis, some, BLOCK_MS / 1000)
        if self._joined and self._spare is not None and (self._readying is None or self._readying.done()):
            self._readying = asyncio.get_running_loop().create_task(self._make_ready(self._spare))
        pump = await self._wire.connected()
        # Only now, since sessions may have joined meanwhile.
        self._blocked_on, self._joined = frozenset(self._sessions), False
        names = [keys.replies(self._queue, name) for name in self._sessions]
        positions = [each.position for each in self._sessions.values()]
        words = ("XREAD", "COUNT", 1000, "BLOCK", BLOCK_MS, "STREAMS", *names, *positions)
        (answer,) = await pump.send([words], then=self._hand_all_out)
        if isinstance(answer, BaseException):
            raise answer

    def _forget_unused(self) -> None:
        now, busy = time.monotonic(), self._waiters.sessions()
        for name in [n for n, s in self._sessions.items() if n not in busy and now - s.used > WATCH_LIFE_S]:
            del self._sessions[name]

    async def _make_ready(self, spare: wire.Wire) -> None:
        with contextlib.suppress(RedisError, OSError):
            await spare.connected()
            self._ready_since = time.monotonic()

    def _hand_all_out(self, answers: list[Any]) -> None:
        self._blocked_on = None
        (answer,) = answers
        if isinstance(answer, BaseException):
            return
        for name, entries in _streams_in(answer):
            self._hand_out(name.decode().rsplit(":", 1)[1], entries)

    def _hand_out(self, session: str, entries: Entries) -> None:
        for entry_id, fields in entries:
            self._sessions[session].position = entry_id.decode()
            try:
                reply = decode_entry(fields)
            except (ValueError, KeyError):
                continue
            for waiter in self._waiters.of(session, reply.call):
                waiter.hand_over(reply)

    async def _look_for_trimmed(self) -> None:
        """A reply that was trimmed from its stream before it was read still stands in the stored outcome."""
        old = self._waiters.since_before(self._looked - BLOCK_MS / 1000)
        for begin in range(0, len(old), LOOK_AT_ONCE):
            some = old[begin : begin + LOOK_AT_ONCE]
            looks = [("GET", keys.done(self._queue, session, call)) for session, call in some]
            with contextlib.suppress(RedisError, OSError):
                outcomes = await wire.execute_all(self._redis, looks)
                for (session, call), done in zip(some, outcomes, strict=True):
                    if isinstance(done, bytes):
                        await self._tell(session, call, done)

    async def _tell(self, session: str, call: str, done: bytes) -> None:
        try:
            reply = await stored_outcome(self._redis, JobId(self._queue, session, call), done)
        except (ValueError, KeyError) as error:
            # This version can't read it: those who wait for it are told, and nobody else is held up.
            for waiter in self._waiters.of(session, call):
                waiter.end(error)
            return
        for waiter in self._waiters.of(session, call):
            waiter.hand_over(reply)
