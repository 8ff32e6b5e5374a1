"""The orchestrator's side: sessions are opened, shown, changed and closed; queues are looked at."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct

from contracts import keys
from contracts.calls import check_name
from contracts.connection import QueueConnection
from contracts.levels import Level, read_level
from contracts.plans import Approval, Mode, Plan, PlanState, state_of


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as it stands. `opened` is false for one that nobody prepared."""

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
        self, session: str, *, workspace: str | None = None, mode: Mode = "normal", level: Level = Level.PUBLIC
    ) -> SessionView:
        """Prepares a session. Opening it again changes its mode and workspace, and never lowers its taint.

        Raises:
            ValueError: a name is malformed.
        """
        name = keys.session(self._queue, check_name("session", session))
        place = check_name("workspace", workspace or session)
        await self._redis.hset(name, mapping={"workspace": place, "mode": mode})
        await self._redis.hsetnx(name, "opened_ms", await self.now_ms())
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
        fields = {"workspace": workspace and check_name("workspace", workspace), "mode": mode}
        if changed := {field: value for field, value in fields.items() if value}:
            # A record without a workspace counts as unprepared, so the first change writes it whole.
            await self._redis.hset(name, mapping={"workspace": before.workspace, **changed})
        if level is not None:
            await self._raise(name, level)
        if pin is not None:
            await self._redis.hset(keys.workspace(self._queue, workspace or before.workspace), "pin", pin.value)
        return await self.show_session(session)

    async def close_session(self, session: str) -> bool:
        """Forgets a session, its plan and its approval. Its replies stay readable for their life. False if unknown."""
        check_name("session", session)
        removed: int = await self._redis.delete(
            keys.session(self._queue, session), keys.plan(self._queue, session), keys.approval(self._queue, session)
        )
        return removed > 0

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
            running=sorted(call for call, held in running.items() if held in ("r", "e", "x")),
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


def _texts(record: dict[bytes, bytes]) -> dict[str, str]:
    return {field.decode(errors="replace"): value.decode(errors="replace") for field, value in record.items()}
