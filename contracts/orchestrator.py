"""The orchestrator's side: sessions are opened, shown, changed and closed; queues are looked at."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct

from contracts import keys
from contracts.calls import check_name
from contracts.connection import QueueConnection
from contracts.levels import Level, highest, read_level
from contracts.plans import Approval, Mode, Plan, PlanState, state_of

TOMBSTONE_LIFE_MS = 8 * 24 * 3600 * 1000
"""How long at least a closed session's taint is remembered: longer than its replies, which can still be read."""


class SessionBusy(ValueError):
    """Calls of the session run or wait, so that it can't be reset now."""


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as it stands. `opened` is false for one that nobody prepared.

    `approval_problem` is why the approval does not count; only who has the approvers' keys can say it.
    """

    queue: str
    session: str
    opened: bool
    workspace: str
    mode: str
    plan_state: PlanState
    taint: Level
    taint_history: dict[str, str]
    workspace_level: Level
    workspace_pin: Level | None
    plan: dict[str, Any] | None
    approval: Approval | None
    approval_problem: str = ""
    running: list[str]
    waiting: int


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker process by its last heartbeat."""

    worker: str
    age_ms: int
    heartbeat: dict[str, Any]


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue at a glance. `oldest_ms` is how long the oldest due entry has waited."""

    queue: str
    depth: int
    batch_depth: int
    leased: int
    oldest_ms: int
    dead: int
    workers: list[WorkerView]
    now_ms: int


class Orchestrator(QueueConnection):
    """Acts on the sessions of one queue with the orchestrator's Redis user. Methods may raise redis.RedisError."""

    async def open_session(
        self,
        session: str,
        *,
        workspace: str | None = None,
        mode: Mode | None = None,
        level: Level = Level.PUBLIC,
        parent: str | None = None,
    ) -> SessionView:
        """Prepares a session, of mode normal in a workspace of its own unless said otherwise. Opening it again changes
        what is given, and never lowers its taint.

        `parent` is the session that this one works for: it begins with the parent's taint, since it is told what the
        parent knows, and the parent gets this one's when it is closed, since it is told what came of it.

        Raises:
            ValueError: a name is malformed.
        """
        name = keys.session(self._queue, check_name("session", session))
        said = {"workspace": None if workspace is None else check_name("workspace", workspace), "mode": mode}
        if parent is not None:
            level = highest((level, (await self.show_session(parent)).taint))
            await self._redis.hset(name, "parent", parent)
        await self._redis.persist(name)
        if changed := {field: value for field, value in said.items() if value is not None}:
            await self._redis.hset(name, mapping=changed)
        for field, value in (("workspace", session), ("mode", "normal"), ("opened_ms", await self.now_ms())):
            await self._redis.hsetnx(name, field, value)
        await self._raise(name, level)
        return await self.show_session(session)

    async def change_session(
        self,
        session: str,
        *,
        workspace: str | None = None,
        mode: Mode | None = None,
        level: Level | None = None,
        pin: Level | None = None,
    ) -> SessionView:
        """Changes a session. `level` raises its taint; `pin` refuses effects on its workspace from sessions above it.

        Raises:
            ValueError: a name is malformed, or the level is below the session's taint.
        """
        name = keys.session(self._queue, check_name("session", session))
        before = await self.show_session(session)
        if level is not None and level < before.taint:
            raise ValueError(f"the session's taint is {before.taint.value}; it only rises, close the session instead")
        said = {"workspace": None if workspace is None else check_name("workspace", workspace), "mode": mode}
        if changed := {field: value for field, value in said.items() if value is not None}:
            # A record without a workspace counts as unprepared, so the first change writes it whole.
            await self._redis.hset(name, mapping={"workspace": before.workspace, **changed})
        if level is not None:
            await self._raise(name, level)
        if pin is not None:
            await self._redis.hset(
                keys.workspace(self._queue, before.workspace if workspace is None else workspace), "pin", pin.value
            )
        return await self.show_session(session)

    async def close_session(self, session: str) -> bool:
        """Forgets a session, its plan and its approval. Its replies stay readable for their life. False if unknown.

        Its taint is remembered for longer than its replies: a session opened under the same name can read them.
        """
        check_name("session", session)
        name = keys.session(self._queue, session)
        record = _texts(await self._redis.hgetall(name))
        taint = read_level(record.get("taint"))
        if "parent" in record:
            await self._raise(keys.session(self._queue, record["parent"]), taint)
        removed: int = await self._redis.delete(keys.plan(self._queue, session), keys.approval(self._queue, session))
        if taint is Level.PUBLIC:
            removed += await self._redis.delete(name)
        elif gone := [field for field in record if field != "taint" and not field.startswith("taint:")]:
            removed += await self._redis.hdel(name, *gone)
            kept_ms = await self._redis.pttl(keys.replies(self._queue, session))
            await self._redis.pexpire(name, max(TOMBSTONE_LIFE_MS, kept_ms + 24 * 3600 * 1000))
        return removed > 0

    async def reset_session(self, session: str, *, taint: Level) -> SessionView:
        """Makes a session that has seen nothing: taint, plan, approval, replies and stored outcomes go together.

        The workspace and its level stay. `taint` must be the session's: who resets must know what is forgotten.
        Recorded among the actions first.

        Raises:
            ValueError: the taint is another, or a name is malformed.
            SessionBusy: calls run or wait.
        """
        before = await self.show_session(session)
        if taint is not before.taint:
            raise ValueError(f"the taint of session {session} is {before.taint.value}, not {taint.value}")
        await self._refuse_busy(session)
        q, actions = self._queue, keys.actions(self._queue)
        what = {"actor": "orchestrator", "action": "reset", "session": session, "call": "", "digest": ""}
        await self._redis.xadd(actions, {**what, "reason": f"taint was {taint.value}"}, maxlen=10_000)
        await self._redis.pexpire(actions, 365 * 24 * 3600 * 1000)
        replies, last = keys.replies(q, session), "-"
        while entries := await self._redis.xrange(replies, last, "+", count=1000):
            calls = {_read_call.decode(fields[b"reply"]).call for _, fields in entries}
            await self._redis.delete(*(keys.done(q, session, call) for call in calls))
            last = f"({entries[-1][0].decode()}"
        await self._redis.delete(replies, keys.plan(q, session), keys.approval(q, session))
        # Last: whatever happens before leaves the taint as it was.
        await self._refuse_busy(session)
        await self._redis.hdel(keys.session(q, session), "taint", *(f"taint:{level.value}" for level in Level))
        return await self.show_session(session)

    async def _refuse_busy(self, session: str) -> None:
        if await self._redis.hgetall(keys.running(self._queue, session)):
            raise SessionBusy(f"calls of session {session} run or wait; cancel them or wait for their end")

    async def show_session(self, session: str) -> SessionView:
        """The session as it stands.

        Raises:
            ValueError: the name is malformed.
        """
        q, s = self._queue, check_name("session", session)
        record, plan, approval, running = [
            _texts(await self._redis.hgetall(key))
            for key in (keys.session(q, s), keys.plan(q, s), keys.approval(q, s), keys.running(q, s))
        ]
        place = record.get("workspace", s)
        level, pin = await self._redis.hmget(keys.workspace(q, place), "level", "pin")
        proposed = Plan(digest=plan["digest"], version=int(plan["version"])) if "digest" in plan else None
        verdict = msgspec.convert(approval, Approval, strict=False) if "digest" in approval else None
        mode = record.get("mode", "normal")
        return SessionView(
            queue=q,
            session=s,
            opened="workspace" in record,
            workspace=place,
            mode=mode,
            plan_state=state_of(mode, proposed, verdict, await self.now_ms()),
            taint=read_level(record.get("taint")),
            taint_history={field[6:]: text for field, text in record.items() if field.startswith("taint:")},
            workspace_level=read_level(level.decode() if level else None),
            workspace_pin=read_level(pin.decode()) if pin else None,
            plan={**plan, "body": msgspec.json.decode(plan["body"])} if proposed else None,
            approval=verdict,
            running=sorted(call for call, held in running.items() if held[:1] in ("r", "e", "x")),
            waiting=int(running.get("#w", 0)),
        )

    async def status(self) -> QueueView:
        """The queue at a glance: bounded reads only."""
        q, now_ms = self._queue, await self.now_ms()
        head = await self._redis.zrange(keys.queue(q), 0, 0, withscores=True)
        heartbeats = _texts(await self._redis.hgetall(keys.workers(q)))
        workers = []
        for worker, text in sorted(heartbeats.items()):
            at, _, body = text.partition(" ")
            workers.append(WorkerView(worker=worker, age_ms=now_ms - int(at), heartbeat=msgspec.json.decode(body)))
        return QueueView(
            queue=q,
            depth=await self._redis.zcard(keys.queue(q)),
            batch_depth=await self._redis.zcard(keys.batch(q)),
            leased=await self._redis.zcard(keys.leases(q)),
            oldest_ms=max(0, now_ms - int(head[0][1])) if head else 0,
            dead=await self._redis.xlen(keys.dead(q)),
            workers=workers,
            now_ms=now_ms,
        )

    async def _raise(self, name: str, level: Level) -> None:
        if level > read_level(((await self._redis.hget(name, "taint")) or b"").decode()):
            stamp = f"{time.time_ns() // 1_000_000} orchestrator"
            await self._redis.hset(name, mapping={"taint": level.value, f"taint:{level.value}": stamp})


class _Call(Struct):
    call: str = ""


_read_call = msgspec.json.Decoder(_Call)


def _texts(record: dict[bytes, bytes]) -> dict[str, str]:
    return {field.decode(errors="replace"): value.decode(errors="replace") for field, value in record.items()}
