"""Plans that wait for approval, and calls that were denied or failed, by cause."""

from __future__ import annotations

from collections.abc import Mapping

from contracts import keys
from contracts.asks import read_pending
from worker.dashboard.action_log import read_actions
from worker.dashboard.audit_tail import AuditTail
from worker.dashboard.call_records import Action
from worker.dashboard.reads import Entry, Reads, stream_ms, text
from worker.dashboard.redaction import Shown
from worker.dashboard.search import row_of
from worker.dashboard.session_records import AskView, DeadLetter, FailureGroup, Failures, Plans, PlanView
from worker.dashboard.sessions import SessionReads

SESSIONS_LOOKED_AT = 200
GROUPS = 100
LATEST = 5
DEAD_SHOWN = 50
ACTIONS_SHOWN = 50
ASKS_SHOWN = 100


class PlanReads:
    """Finds plans by the list that workers keep of the sessions that proposed one."""

    def __init__(self, reads: Reads, sessions: SessionReads, shown: Shown) -> None:
        self._reads, self._sessions, self._shown = reads, sessions, shown

    async def plans(self) -> Plans:
        """Over all queues."""
        now_ms = await self._reads.now_ms()
        views: list[PlanView] = []
        back_to: list[int] = []
        actions: list[Action] = []
        asks: list[AskView] = []
        for queue in self._reads.queues:
            asks += await self._asks(queue)
            name, last = keys.plans(queue), SESSIONS_LOOKED_AT - 1
            proposed, kept = await self._reads.many(
                [("ZRANGE", name, 0, last, "REV", "WITHSCORES"), ("ZCARD", name)],
            )
            back_to += [int(proposed[-1])] if kept > SESSIONS_LOOKED_AT else []
            sessions = [text(session) for session in proposed[::2]]
            views += (await self._sessions.plans(queue, sessions, now_ms)).values()
            actions += await read_actions(self._reads, queue)
        waiting = [view for view in views if view.state == "awaiting"]
        judged = [view for view in views if view.approval is not None and view.state != "awaiting"]
        return Plans(
            now_ms=now_ms,
            asks=sorted(asks, key=lambda ask: ask.asked_ms),
            waiting=sorted(waiting, key=lambda view: view.proposed_ms or 0),
            judged=sorted(judged, key=lambda view: -(view.proposed_ms or 0)),
            looked_back_to_ms=max(back_to, default=None),
            actions=sorted(actions, key=lambda each: -each.at_ms)[:ACTIONS_SHOWN],
        )

    async def _asks(self, queue: str) -> list[AskView]:
        views = []
        for pending in (await read_pending(self._reads.redis, queue))[:ASKS_SHOWN]:
            ask = pending.ask
            views.append(
                AskView(
                    queue=queue,
                    session=ask.session,
                    call=ask.call,
                    asked_ms=pending.asked_ms,
                    digest=ask.digest,
                    tool=ask.tool,
                    about=self._shown(ask.about, ask.taint),
                    policy=ask.policy,
                    rule=ask.rule,
                    reason=self._shown(ask.reason, ask.taint),
                    taint=ask.taint.value,
                    workspace=ask.workspace,
                )
            )
        return views


class FailureReads:
    """Groups what went wrong."""

    def __init__(self, reads: Reads, tails: Mapping[str, AuditTail], shown: Shown) -> None:
        self._reads, self._tails, self._shown = reads, tails, shown

    async def failures(self) -> Failures:
        """Over all queues, among the latest calls of each."""
        now_ms = await self._reads.now_ms()
        groups: list[FailureGroup] = []
        dead: list[DeadLetter] = []
        looked_at, back_to = 0, []
        for queue in self._reads.queues:
            entries = await self._tails[queue].latest()
            looked_at += len(entries)
            back_to += [entries[0].at_ms] if entries else []
            groups += self._groups(queue, entries)
            letters = await self._reads.redis.xrevrange(keys.dead(queue), "+", "-", count=DEAD_SHOWN)
            dead += [
                DeadLetter(
                    queue=queue,
                    at_ms=stream_ms(stream_id.decode()),
                    id=text(fields.get(b"id"))[:512],
                    why=text(fields.get(b"why"))[:512],
                )
                for stream_id, fields in letters
            ]
        return Failures(
            now_ms=now_ms,
            groups=sorted(groups, key=lambda group: (-group.count, -group.last_ms))[:GROUPS],
            looked_at=looked_at,
            looked_back_to_ms=max(back_to, default=None),
            dead=sorted(dead, key=lambda letter: -letter.at_ms)[:DEAD_SHOWN],
        )

    def _groups(self, queue: str, entries: list[Entry]) -> list[FailureGroup]:
        by_cause: dict[tuple[str, str, str, str, str], list[Entry]] = {}
        for entry in entries:
            if entry.kind in ("denied", "failed"):
                cause = (entry.kind, entry.code, entry.policy, entry.rule, entry.tool)
                by_cause.setdefault(cause, []).append(entry)
        return [
            FailureGroup(
                queue=queue,
                kind="denied" if kind == "denied" else "failed",
                code=code,
                policy=policy,
                rule=rule,
                tool=tool,
                count=len(found),
                sessions=len({entry.session for entry in found}),
                first_ms=found[0].at_ms,
                last_ms=found[-1].at_ms,
                latest=[row_of(entry, queue, self._shown) for entry in reversed(found[-LATEST:])],
            )
            for (kind, code, policy, rule, tool), found in by_cause.items()
        ]
