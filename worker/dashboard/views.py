"""The table of views: what can be looked at, with which parameters, and how fresh it must be."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.calls import check_name
from contracts.levels import Level
from worker.approvals import Approvals
from worker.dashboard.audit_tail import AuditTail
from worker.dashboard.calls import Calls
from worker.dashboard.judgements import FailureReads, PlanReads
from worker.dashboard.live import Params, View
from worker.dashboard.overview import Queues
from worker.dashboard.reads import Reads
from worker.dashboard.records import Answer
from worker.dashboard.redaction import Shown
from worker.dashboard.running import RunningCalls
from worker.dashboard.search import Search, read_query
from worker.dashboard.series import WINDOWS
from worker.dashboard.sessions import SessionReads
from worker.secrets import Redactor


def build_views(reads: Reads, redactor: Redactor, payloads: Level | None, approvals: Approvals) -> Mapping[str, View]:
    """The views over one Redis user's reads. `payloads` is the highest level whose payloads are shown."""
    shown = Shown(redactor, payloads)
    tails = {queue: AuditTail(reads, queue) for queue in reads.queues}
    queues = Queues(reads)
    running = RunningCalls(reads, shown)
    search = Search(reads, tails, shown)
    calls = Calls(reads, tails, shown)
    sessions = SessionReads(reads, tails, shown, approvals)
    plans = PlanReads(reads, sessions, shown)
    failures = FailureReads(reads, tails, shown)

    def queue_of(params: Params) -> str:
        queue = params.get("queue") or reads.queues[0]
        if queue not in reads.queues:
            raise LookupError(f"queue {queue[:64]!r} is not watched here")
        return queue

    async def overview(params: Params) -> Answer:
        window = params.get("window", "10m")
        if window not in WINDOWS:
            raise ValueError(f"window must be one of {', '.join(WINDOWS)}")
        return await queues.overview(queue_of(params), window)

    async def call(params: Params) -> Answer:
        session, name = check_name("session", params.get("session", "")), check_name("call", params.get("call", ""))
        return await calls.call(queue_of(params), session, name, _stream_id(params.get("entry", "")))

    async def session(params: Params) -> Answer:
        return await sessions.session(queue_of(params), check_name("session", params.get("session", "")))

    async def all_sessions(params: Params) -> Answer:
        return await sessions.sessions(queue_of(params), _stream_id(params.get("before", "")))

    async def found(params: Params) -> Answer:
        return await search.calls(read_query(params, reads.queues))

    table = (
        View("queues", overview, ("queue", "window")),
        View("workers", lambda _: queues.workers()),
        View("running", lambda _: running.running()),
        View("calls", found, ("queue", "text", "session", "tool", "status", "since_ms", "until_ms", "before"), 2.0),
        View("call", call, ("queue", "session", "call", "entry")),
        View("sessions", all_sessions, ("queue", "before"), 2.0),
        View("session", session, ("queue", "session"), 2.0),
        View("plans", lambda _: plans.plans(), (), 2.0),
        View("failures", lambda _: failures.failures(), (), 2.0),
    )
    return {view.name: view for view in table}


def _stream_id(text: str) -> str:
    if text and not text.replace("-", "", 1).isdigit():
        raise ValueError(f"not an id of the audit stream: {text[:40]!r}")
    return text[:40]
