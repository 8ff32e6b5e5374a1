"""Search: what a link asks for, and the calls that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from contracts import keys
from contracts.levels import read_level
from worker.dashboard.audit_tail import AuditTail
from worker.dashboard.call_records import CallRow, Calls
from worker.dashboard.reads import Entry, Reads, about, job_of, peek, peek_commands, text
from worker.dashboard.redaction import Shown

PAGE = 100
STATES = ("queued", "completed", "denied", "failed")


class Query(Struct, frozen=True, kw_only=True):
    """What to look for; empty fields match everything. `text` is part of a call's or session's id or of what the call
    is about; `status` a state or an error code; `until` and `before` end the search, `since_ms` begins it."""

    queue: str = ""
    text: str = ""
    session: str = ""
    tool: str = ""
    status: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    before: str = ""

    def matches(self, entry: Entry) -> bool:
        """Whether an ended call is looked for."""
        return (
            (not self.session or entry.session == self.session)
            and (not self.tool or entry.tool == self.tool)
            and (not self.status or self.status in (entry.kind, entry.code))
            and (not self.text or any(self.text in part for part in (entry.id, entry.about, entry.rule)))
        )

    @property
    def needle(self) -> bytes:
        """Something that stands in the JSON of every entry that matches; empty if nothing simple does."""
        words = (self.session, self.tool, self.status, self.text)
        return max(
            (word.encode() for word in words if word.isascii() and word.replace("_", "").isalnum()),
            key=len,
            default=b"",
        )


def read_query(params: Mapping[str, str], queues: Sequence[str]) -> Query:
    """The query of a link.

    Raises:
        ValueError: a time is no number, the place to go on is none, or the queue is not watched here.
    """

    def time_of(name: str) -> int | None:
        value = params.get(name, "")
        if not value:
            return None
        if not value.isdigit() or len(value) > 15:
            raise ValueError(f"{name} must be Unix time in milliseconds")
        return int(value)

    before = params.get("before", "")
    if before and not before.replace("-", "", 1).isdigit():
        raise ValueError("before must be an id of the audit stream")
    queue = params.get("queue", "") or queues[0]
    if queue not in queues:
        raise ValueError(f"queue {queue[:64]!r} is not watched here")
    return Query(
        queue=queue,
        text=params.get("text", "").strip()[:200],
        session=params.get("session", "").strip()[:64],
        tool=params.get("tool", "").strip()[:64],
        status=params.get("status", "").strip()[:64],
        since_ms=time_of("since_ms"),
        until_ms=time_of("until_ms"),
        before=before,
    )


class Search:
    """Looks through the audit streams, and at the heads of the queues for what has not begun."""

    def __init__(self, reads: Reads, tails: Mapping[str, AuditTail], shown: Shown) -> None:
        self._reads, self._tails, self._shown = reads, tails, shown

    async def calls(self, query: Query) -> Calls:
        """The latest calls that match."""
        now_ms = await self._reads.now_ms()
        if query.status == "queued":
            return Calls(
                now_ms=now_ms, calls=await self._queued(query), looked_at=PAGE, looked_back_to_ms=None, more=None
            )
        before = query.before or (f"{query.until_ms + 1}-0" if query.until_ms is not None else "")
        found = await self._tails[query.queue].search(
            query.matches, limit=PAGE, before=before, since_ms=query.since_ms, needle=query.needle
        )
        return Calls(
            now_ms=now_ms,
            calls=[row_of(entry, query.queue, self._shown) for entry in found.entries],
            looked_at=found.looked_at,
            looked_back_to_ms=found.looked_back_to_ms,
            more=found.more,
        )

    async def _queued(self, query: Query) -> list[CallRow]:
        """Those among the next to run that match: the head of both queues, by due time."""
        heads = await self._reads.many(
            ("ZRANGE", name, 0, PAGE - 1, "WITHSCORES") for name in (keys.queue(query.queue), keys.batch(query.queue))
        )
        due = [
            (job, int(float(score)))
            for head in heads
            for member, score in zip(head[::2], head[1::2], strict=True)
            if (job := job_of(member)) is not None
            and (not query.session or job.session == query.session)
            and (not query.text or query.text in str(job))
        ]
        commands: list[tuple[Any, ...]] = []
        for job, _ in due:
            commands += peek_commands(job.queue, job.session, job.call)
            commands.append(("HGET", keys.session(job.queue, job.session), "taint"))
        answers = await self._reads.many(commands)
        rows = []
        for at, (job, at_ms) in enumerate(due):
            head, tail, taint = answers[at * 3 : at * 3 + 3]
            seen, level = peek(head, tail), read_level(text(taint))
            if query.tool and seen.tool != query.tool:
                continue
            rows.append(
                CallRow(
                    queue=job.queue,
                    session=job.session,
                    call=job.call,
                    tool=seen.tool,
                    state="queued",
                    at_ms=seen.submitted_ms or at_ms,
                    taint=level.value,
                    about=self._shown.line(about(seen.args), level),
                )
            )
        return rows


def row_of(entry: Entry, queue: str, shown: Shown) -> CallRow:
    """An ended call as a row."""
    taint = read_level(entry.taint)
    return CallRow(
        queue=queue,
        session=entry.session,
        call=entry.call,
        tool=entry.tool,
        state=entry.kind if entry.kind in ("completed", "denied", "failed") else "unknown",  # type: ignore[arg-type]
        code=entry.code,
        policy=entry.policy,
        rule=entry.rule,
        at_ms=entry.at_ms,
        queued_ms=entry.queued_ms,
        run_ms=entry.run_ms,
        attempt=entry.attempt,
        level=read_level(entry.level).value,
        taint=taint.value,
        worker=entry.worker,
        about=shown.line(entry.about, taint),
        entry=entry.stream_id,
    )
