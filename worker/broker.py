"""The door to Redis: one method a script, and the bell. Nothing above speaks Redis' commands."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Self

from msgspec import structs
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from contracts import keys, wire
from contracts.calls import Session
from contracts.connection import connect
from contracts.tools import TOOLS, Effect
from worker.approvals import Approvals, read_permit
from worker.bell import Bell
from worker.claims import Claimed, Consent, Ending, Turn, read_text, read_turn
from worker.scripts import Script, command
from worker.settings import Settings

log = logging.getLogger("toolreef")

UNREACHABLE = (RedisError, OSError, TimeoutError)
"""What every method of Broker may raise: Redis is away or unwilling, and the same call may work later."""

BELL_TIMEOUT_S = 2.6
"""Over two seconds: with one pop and one claim each, and a ping of the quiet subscription, an idle worker stays under
one command a second."""

SCAN_BUDGET = 1000
MAX_READ_ATTEMPTS = 3

CLASSES = ";" + "".join(
    f"{name}={'r' if tool.effect is Effect.READ else 'e' if tool.allowed_while_planning else 'w'};"
    for name, tool in TOOLS.items()
)
"""For claim.lua: `r` read, `w` effect on the workspace, `e` effect on nothing but the session's own records."""


class Broker:
    """Speaks to one Redis for one worker process. Every method may raise redis.RedisError or OSError.

    `redis` answers at once and must have a socket time-out; `bell` is for the one blocking command. `limits` are the
    operator's as the scripts take them, and may be replaced at any time.
    """

    def __init__(self, redis: Redis, bell: Redis, settings: Settings, worker: str) -> None:
        self.redis = redis
        self.limits = b""
        self._bell = Bell(bell)
        self._worker = worker
        self._lease_ms = int(settings.lease_s * 1000)
        self._settings = settings
        self._claim, self._finish, self._renew = Script("claim"), Script("finish"), Script("renew")
        self._release, self._cancel, self._progress = Script("release"), Script("cancel"), Script("progress")
        self._mark, self._consume, self._look = Script("mark"), Script("consume"), Script("look")
        self._approvals = Approvals.read(settings.approver_keys)
        self._claim_tail = (
            settings.max_payload_bytes,
            CLASSES,
            settings.session_readers,
            SCAN_BUDGET,
            int(settings.claim_life_s * 1000),
            MAX_READ_ATTEMPTS,
        )
        session_limits = (settings.max_session_calls, settings.max_session_bytes)
        queue_limits = (settings.max_queue_calls, settings.max_queue_bytes, settings.max_memory_percent)
        self._session_limits = session_limits
        self._published_limits = " ".join(map(str, (*queue_limits, *session_limits)))
        self._published_at: dict[str, float] = {}
        self._finish_head = (
            settings.session_readers,
            int(settings.reply_life_s * 1000),
            settings.replies_kept,
            int(settings.outcome_life_s * 1000),
            4096,
            settings.audit_kept,
            int(settings.plan_life_s * 1000),
        )

    @classmethod
    def connect(cls, settings: Settings, redis_url: str) -> Self:
        """Over two connection pools: one that must answer soon, one that may block on the bell."""
        soon_s = max(0.5, min(5.0, settings.lease_s / 3))
        common: dict[str, Any] = {"socket_connect_timeout": 2}
        redis = connect(redis_url, socket_timeout=soon_s, **common)
        bell = connect(redis_url, socket_timeout=BELL_TIMEOUT_S + soon_s, **common)
        return cls(redis, bell, settings, settings.worker)

    async def listen(self, queues: Sequence[str], timeout_s: float) -> str | None:
        """Blocks until a bell rings or the time is over. The queue whose bell rang."""
        return await self._bell.listen(queues, timeout_s)

    async def touch(self, queue: str) -> None:
        """Raises unless the queue's server answers."""
        await command(self.redis, "EXISTS", keys.workers(queue))

    async def ring(self, queue: str) -> None:
        """Wakes a worker of the queue."""
        await command(self.redis, "LPUSH", keys.bell(queue), 1)

    async def wake(self, queue: str) -> None:
        """Ends this worker's own `claim_when_rung`."""
        name = keys.wake(queue, self._worker)
        await wire.execute_all(self.redis, [("LPUSH", name, 1), ("PEXPIRE", name, 60_000)])

    async def claim(self, queue: str, slots: int, heartbeat: bytes, ticket: str) -> Turn:
        """Claims up to `slots` due calls of a queue. `ticket` is this claim's alone, for `undo_claim`.

        The heartbeat may be empty.
        """
        return self._turn(queue, await self._claim(self.redis, *self._claiming(queue, slots, heartbeat, ticket)))

    async def claim_when_rung(
        self, queue: str, timeout_s: float, slots: int, heartbeat: bytes, ticket: str, take: Callable[[Turn], float]
    ) -> None:
        """Claims once the queue's bell has rung, or the time is over.

        What was claimed goes to `take`, a call that came alone before this returns, and that as many seconds later as
        `take` then says. Nothing goes there if the server does not know the script.
        """
        words = self._claim.words(*self._claiming(queue, slots, heartbeat, ticket))
        names = (keys.wake(queue, self._worker), keys.bell(queue))
        turns: list[Turn] = []

        def see(answer: list[Any]) -> float:
            turns.append(self._turn(queue, answer))
            return take(turns[0]) if len(turns[0].calls) == 1 else 0.0

        try:
            answer = await self._bell.listen_then(names, timeout_s, words, see)
        except NoScriptError:
            return
        if not turns or len(turns[0].calls) != 1:
            take(turns[0] if turns else self._turn(queue, answer))

    def _claiming(self, queue: str, slots: int, heartbeat: bytes, ticket: str) -> tuple[Sequence[str], Sequence[Any]]:
        q = queue
        names = (
            keys.queue(q),
            keys.batch(q),
            keys.leases(q),
            keys.fence(q),
            keys.bell(q),
            keys.workers(q),
            keys.dead(q),
        )
        argv = (
            q,
            slots,
            self._lease_ms,
            self._worker,
            heartbeat,
            *self._claim_tail,
            ticket,
            *self._session_limits,
            self._published_limits if self._is_to_publish(q) else "",
            self.limits,
        )
        return names, argv

    def _is_to_publish(self, queue: str) -> bool:
        # How full the queue is: once a second, by whichever claim is the next.
        now = time.monotonic()
        if now - self._published_at.get(queue, float("-inf")) < 1:
            return False
        self._published_at[queue] = now
        return True

    def _turn(self, queue: str, answer: list[Any]) -> Turn:
        return read_turn(queue, answer, self._settings.require_sessions, self._approvals)

    def finish(
        self, queue: str, endings: Sequence[Ending], then: Callable[[], None] | None = None
    ) -> Coroutine[Any, Any, tuple[int, list[str]]]:
        """Publishes endings of one queue, from now on, and must be awaited; `then` is called once that is worth it.

        That gives how many calls were granted, and a word an ending: done or stale.
        """
        names = (keys.leases(queue), keys.bell(queue), keys.audit(queue), keys.queue(queue))
        argv: list[Any] = [queue, *self._finish_head, self.limits]
        for e in endings:
            argv += (e.id, e.token, e.reply, e.digest, e.level, e.audit, e.plan, e.ask)
        return _finished(self._finish.begin(self.redis, names, argv, then))

    async def renew(self, queue: str, claims: Sequence[Claimed], heartbeat: bytes) -> list[str]:
        """Renews leases. Returns a word a claim: kept, lost, cancel."""
        argv: list[Any] = [queue, self._lease_ms, self._worker, heartbeat, int(self._settings.claim_life_s * 1000)]
        for claim in claims:
            argv += (claim.id, claim.token)
        words = await self._renew(self.redis, (keys.leases(queue), keys.workers(queue)), argv)
        return [word.decode() for word in words]

    async def release(self, queue: str, claims: Sequence[Claimed]) -> int:
        """Gives back claims that were not started. Returns how many were still ours."""
        return await self._give_back(queue, "", claims)

    async def undo_claim(self, queue: str, ticket: str) -> int:
        """Gives back what a claim took whose answer was lost. Returns how many calls that were."""
        return await self._give_back(queue, ticket, ())

    async def _give_back(self, queue: str, ticket: str, claims: Sequence[Claimed]) -> int:
        argv: list[Any] = [queue, ticket]
        for claim in claims:
            argv += (claim.id, claim.token)
        released: int = await self._release(self.redis, (keys.leases(queue), keys.bell(queue)), argv)
        return released

    async def bring_forward(self, queue: str, session: str, call: str) -> str:
        """Brings a call to be cancelled to the front. Returns front, running, unknown, or unasked: no wish is noted."""
        names = (keys.leases(queue), keys.bell(queue), keys.queue(queue), keys.batch(queue))
        argv = (queue, session, call, self._settings.session_readers, int(self._settings.claim_life_s * 1000))
        word: bytes = await self._cancel(self.redis, names, argv)
        return word.decode()

    async def use_permit(self, claim: Claimed, digest: str) -> Consent:
        """Uses up somebody's yes to the claimed call, if there is one."""
        names = (keys.used(claim.queue, claim.job.session, digest),)
        argv = (claim.queue, claim.id, claim.token, digest)
        found = await self._consume(self.redis, names, argv)
        word, approver, reason = (value.decode(errors="replace") for value in found[:3])
        if word == "approved":
            permit = read_permit(found)
            if self._approvals.permit_problem(claim.queue, claim.job.session, digest, permit, claim.now_ms):
                return Consent()
        return Consent(word=word, approver=approver, reason=reason)

    async def look_again(self, claim: Claimed) -> tuple[int, Session]:
        """Redis' time in ms, and the claim's session with its mode, plan and approval as they are now."""
        q, s = claim.queue, claim.job.session
        now_ms, mode, *row = await self._look(self.redis, (keys.plan(q, s),), (q, s))
        found = self._approvals.plan_found(q, s, row)
        now = structs.replace(
            claim.session,
            mode=read_text(mode) or "normal",
            plan=found.plan,
            approval=found.approval,
            approval_problem=found.problem,
        )
        return now_ms, now

    async def mark_workspace(self, claim: Claimed, level: str) -> bool:
        """Raises the level of the claim's workspace, which never falls. False if Redis can't now. Never raises."""
        try:
            await self._mark(self.redis, (keys.workspace(claim.queue, claim.session.workspace),), (level,))
        except UNREACHABLE as error:
            log.warning("could not raise the level of workspace %s: %s", claim.session.workspace, error)
            return False
        return True

    async def progress(self, claim: Claimed, level: str, entries: Sequence[bytes]) -> bool:
        """Appends progress entries. False if the claim is no longer ours or Redis can't take them. Never raises."""
        life_ms, kept = int(self._settings.reply_life_s * 1000), self._settings.replies_kept
        argv = (claim.queue, claim.id, claim.token, level, life_ms, kept, *entries)
        try:
            word: bytes = await self._progress(self.redis, (keys.leases(claim.queue),), argv)
        except UNREACHABLE:
            return False
        return word == b"done"

    def cancels(self, channels: Sequence[str]) -> AsyncIterator[tuple[str, str, str]]:
        """Yields (channel, session, call) for each wish to cancel that is made while this is read."""
        return self._bell.cancels(channels)

    async def bury(self, queue: str, job_id: str, why: str) -> None:
        """Notes in the dead-letter stream what could not be answered."""
        await self.redis.xadd(keys.dead(queue), {"id": job_id[:512], "why": why[:512]}, maxlen=10_000)

    async def forget(self, queue: str) -> None:
        """Takes this worker out of the heartbeats."""
        await command(self.redis, "HDEL", keys.workers(queue), self._worker)

    async def close(self) -> None:
        """Closes both connections."""
        wire.close(self.redis)
        await self.redis.aclose()
        await self._bell.close()


async def _finished(sent: Coroutine[Any, Any, Any]) -> tuple[int, list[str]]:
    granted, *words = await sent
    return granted, [word.decode() for word in words]
