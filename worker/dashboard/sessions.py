"""Sessions: those of the latest calls, and one as it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from contracts import keys
from contracts.levels import read_level
from contracts.plans import Approval, Plan, state_of
from worker.approvals import Approvals, read_approval
from worker.dashboard.action_log import read_actions
from worker.dashboard.audit_tail import AuditTail
from worker.dashboard.reads import Entry, Reads, job_of, number, text
from worker.dashboard.redaction import Shown
from worker.dashboard.search import Query, row_of
from worker.dashboard.session_records import PlanView, Session, SessionRow, Sessions, TaintStep

LOOKED_AT = 5000
PAGE = 100
LEASES_LOOKED_AT = 1000
CALLS = 50


class _Activity(Struct, kw_only=True):
    last: Entry
    calls: int = 0
    denied: int = 0
    failed: int = 0


class SessionReads:
    """Reads sessions. There is no list of them in Redis, and none is needed: the audit stream tells who is active."""

    def __init__(self, reads: Reads, tails: Mapping[str, AuditTail], shown: Shown, approvals: Approvals) -> None:
        self._reads, self._tails, self._shown, self._approvals = reads, tails, shown, approvals

    async def sessions(self, queue: str, before: str = "") -> Sessions:
        """The sessions of the latest calls, or of those before an entry of the audit stream."""
        now_ms = await self._reads.now_ms()
        if before:
            found = await self._tails[queue].search(lambda _: True, limit=LOOKED_AT, before=before)
            entries = found.entries
        else:
            entries = list(reversed(await self._tails[queue].latest()))
        active = _activities(entries)
        page = list(active.items())[:PAGE]
        records = await self._reads.many(
            ("HMGET", keys.session(queue, name), "workspace", "mode", "taint") for name, _ in page
        )
        rows = [
            SessionRow(
                queue=queue,
                session=name,
                last_ms=each.last.at_ms,
                calls=each.calls,
                denied=each.denied,
                failed=each.failed,
                taint=read_level(text(record[2])).value,
                mode=text(record[1], "normal"),
                workspace=text(record[0], name),
                opened=record[0] is not None,
            )
            for (name, each), record in zip(page, records, strict=True)
        ]
        # The next page begins with the latest call of the first session that this one has no room for.
        rest = list(active.values())[PAGE : PAGE + 1]
        more = page[-1][1].last.stream_id if rest else entries[-1].stream_id if len(entries) >= LOOKED_AT else None
        return Sessions(
            now_ms=now_ms,
            sessions=rows,
            seen=len(active),
            looked_at=len(entries),
            looked_back_to_ms=entries[-1].at_ms if entries else None,
            more=more,
        )

    async def session(self, queue: str, session: str) -> Session:
        """One session as it stands.

        Raises:
            LookupError: nothing is known of it.
        """
        q, s = queue, session
        now_ms = await self._reads.now_ms()
        record, counts, first, leases, plans = await self._reads.many(
            [
                ("HGETALL", keys.session(q, s)),
                ("HMGET", keys.running(q, s), "#r", "#e", "#w"),
                ("LRANGE", keys.waiting(q, s), 0, 19),
                ("ZRANGE", keys.leases(q), 0, LEASES_LOOKED_AT - 1),
                ("HGET", keys.plan(q, s), "digest"),
            ]
        )
        entries, looked_back_to_ms = await self._calls(q, s)
        if not (record or any(counts) or entries or plans):
            raise LookupError(
                f"nothing is known of session {session}: it has no record and no call that is still on record"
            )
        fields = {text(name): text(value) for name, value in record.items()}
        place = fields.get("workspace", s)
        workspace = (await self._reads.many([("HMGET", keys.workspace(q, place), "level", "pin")]))[0]
        plan = (await self.plans(q, [s], now_ms))[s] if plans else None
        running = [job.call for member in leases if (job := job_of(member)) is not None and job.session == s]
        mode = fields.get("mode", "normal")
        return Session(
            now_ms=now_ms,
            queue=q,
            session=s,
            opened="workspace" in fields,
            opened_ms=number(fields.get("opened_ms")),
            workspace=place,
            mode=mode,
            plan_state=plan.state if plan else state_of(mode, None, None, now_ms),
            taint=read_level(fields.get("taint")).value,
            taint_history=_taint_history(fields),
            workspace_level=read_level(text(workspace[0])).value,
            workspace_pin=read_level(text(workspace[1])).value if workspace[1] else None,
            plan=plan,
            running=sorted(running),
            waiting=number(counts[2]) or 0,
            waiting_first=[text(call) for call in first],
            calls=[row_of(entry, q, self._shown) for entry in entries],
            looked_back_to_ms=looked_back_to_ms,
            actions=await read_actions(self._reads, q, s),
        )

    async def _calls(self, queue: str, session: str) -> tuple[list[Entry], int | None]:
        """A session's latest calls, and how far back was looked: in what is at hand, or deeper for one long silent."""
        latest = await self._tails[queue].latest()
        entries = [entry for entry in reversed(latest) if entry.session == session][:CALLS]
        if entries:
            return entries, latest[0].at_ms
        found = await self._tails[queue].search(Query(session=session).matches, limit=CALLS, needle=session.encode())
        return found.entries, found.looked_back_to_ms

    async def plans(self, queue: str, sessions: Iterable[str], now_ms: int) -> dict[str, PlanView]:
        """The proposed plans of sessions, by session; those without one are left out."""
        names = list(sessions)
        commands: list[tuple[Any, ...]] = []
        for name in names:
            commands += (
                ("HMGET", keys.plan(queue, name), "digest", "version", "body", "proposed_ms", "call"),
                ("HMGET", keys.session(queue, name), "workspace", "mode", "taint"),
                ("HMGET", keys.approval(queue, name), *Approval.__struct_fields__),
            )
        answers = await self._reads.many(commands)
        views = {}
        for at, name in enumerate(names):
            plan, record, approval = answers[at * 3 : at * 3 + 3]
            if plan[0] is not None:
                views[name] = self._plan(queue, name, plan, record, approval, now_ms)
        return views

    def _plan(self, queue: str, session: str, plan: Any, record: Any, approval: Any, now_ms: int) -> PlanView:
        digest, version, body, proposed_ms, call = plan
        verdict = read_approval(approval)
        problem = self._approvals.plan_problem(queue, session, verdict)
        taint = read_level(text(record[2]))
        proposed = Plan(digest=text(digest), version=number(version) or 0)
        try:
            content = msgspec.json.decode(body or b"null")
        except ValueError:
            content = text(body)
        return PlanView(
            queue=queue,
            session=session,
            state=state_of(text(record[1], "normal"), proposed, None if problem else verdict, now_ms),
            digest=proposed.digest,
            version=proposed.version,
            proposed_ms=number(proposed_ms),
            call=text(call),
            taint=taint.value,
            workspace=text(record[0], session),
            body=self._shown(content, taint),
            approval=verdict,
            approval_problem=problem,
        )


def _activities(entries: Iterable[Entry]) -> dict[str, _Activity]:
    """Entries, latest first, by session."""
    active: dict[str, _Activity] = {}
    for entry in entries:
        each = active.setdefault(entry.session, _Activity(last=entry))
        each.calls += 1
        each.denied += entry.kind == "denied"
        each.failed += entry.kind == "failed"
    return active


def _taint_history(fields: Mapping[str, str]) -> list[TaintStep]:
    steps = []
    for name, value in fields.items():
        if name.startswith("taint:"):
            at, _, by = value.partition(" ")
            steps.append(TaintStep(level=name[6:], at_ms=number(at) or 0, by=by))
    return sorted(steps, key=lambda step: (step.at_ms, read_level(step.level).rank))
