"""What the API says: one struct an answer. The pages show these, and the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from contracts.orchestrator import WorkerView
from contracts.plans import Approval, PlanState

Severity = Literal["critical", "warning"]
CallState = Literal["queued", "waiting", "granted", "running", "completed", "denied", "failed", "unknown"]
Level = Literal["PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED"]


class Answer(Struct, frozen=True, kw_only=True):
    """What every answer has: Redis' clock when it was read, Unix time in ms."""

    now_ms: int


class Problem(Struct, frozen=True, kw_only=True):
    """Something that a person should look at: what is the matter, and what to do."""

    code: str
    severity: Severity
    queue: str
    message: str
    advice: str


class Latency(Struct, frozen=True, kw_only=True):
    """Milliseconds; null where nothing was measured."""

    p50_ms: int | None = None
    p95_ms: int | None = None


class Series(Struct, frozen=True, kw_only=True):
    """Columns of equal length for charts: one place a bucket, by its start. Null where the audit stream is trimmed."""

    bucket_s: int
    at_ms: list[int]
    completed_per_s: list[float | None]
    denied_per_s: list[float | None]
    failed_per_s: list[float | None]
    wait_p50_ms: list[int | None]
    wait_p95_ms: list[int | None]
    run_p50_ms: list[int | None]
    run_p95_ms: list[int | None]


class QueueStatus(Struct, frozen=True, kw_only=True):
    """A queue now (the fields of `toolreef status --json`), and how it did in the last `window_s` seconds.

    `sampled`: more calls ended than were read, so rates are estimates from samples of each five seconds.
    """

    queue: str
    depth: int
    batch_depth: int
    leased: int
    oldest_ms: int
    dead: int
    workers: list[WorkerView]
    now_ms: int
    workers_alive: int
    workers_draining: int
    slots: int
    busy: int
    window_s: int
    per_s: float
    wait: Latency
    run: Latency
    failed_share: float | None
    denied_share: float | None
    sampled: bool
    problems: list[Problem]


class Overview(Answer, frozen=True, kw_only=True):
    """All queues, and the series of one of them."""

    queues: list[QueueStatus]
    series_of: str
    series: Series


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A worker process by its last heartbeat, with all queues that it serves."""

    worker: str
    queues: list[str]
    age_ms: int
    state: Literal["serving", "draining", "silent"]
    running: int
    slots: int
    version: str
    sandbox: str
    completed: int
    denied: int
    failed: int
    reconnects: int
    undeliverable: int


class Workers(Answer, frozen=True, kw_only=True):
    """All workers that were heard of within an hour."""

    workers: list[WorkerRow]


class Payload(Struct, frozen=True, kw_only=True):
    """Something an agent or a tool wrote, redacted. `value` is null where it is withheld for its level, or unknown."""

    value: Any = None
    withheld: Level | None = None
    redacted: list[str] = []
    omitted_chars: int = 0
    note: str = ""


class RunningCall(Struct, frozen=True, kw_only=True):
    """A claimed call. `granted` ones have their session's turn and wait for a slot."""

    queue: str
    session: str
    call: str
    tool: str
    state: Literal["granted", "running"]
    worker: str
    attempt: int
    submitted_ms: int | None
    started_ms: int | None
    cancelling: bool
    about: Payload
    last_output: Payload


class Running(Answer, frozen=True, kw_only=True):
    """The calls that have run longest, and how many there are."""

    total: int
    calls: list[RunningCall]


class CallRow(Struct, frozen=True, kw_only=True):
    """A call as the audit stream or the queue has it. `entry` is the audit stream's id."""

    queue: str
    session: str
    call: str
    tool: str
    state: CallState
    code: str = ""
    policy: str = ""
    rule: str = ""
    at_ms: int
    queued_ms: int | None = None
    run_ms: int | None = None
    attempt: int | None = None
    level: str = "PUBLIC"
    taint: str = "PUBLIC"
    worker: str = ""
    about: Payload = Payload()
    entry: str = ""


class Calls(Answer, frozen=True, kw_only=True):
    """What a search found, latest first. `more` continues it; `looked_back_to_ms` is how far it has looked."""

    calls: list[CallRow]
    looked_at: int
    looked_back_to_ms: int | None
    more: str | None


class Decision(Struct, frozen=True, kw_only=True):
    """What PRE_TOOL_CALL said."""

    verdict: Literal["allow", "ask", "deny"]
    policy: str = ""
    rule: str = ""
    reason: str = ""


class Step(Struct, frozen=True, kw_only=True):
    """One moment in a call's life."""

    name: str
    at_ms: int
    detail: str = ""


class OutputPiece(Struct, frozen=True, kw_only=True):
    """What a running command printed."""

    at_ms: int
    stream: str
    text: Payload
    dropped_bytes: int = 0


class Action(Struct, frozen=True, kw_only=True):
    """What a person did through the dashboard, and why."""

    at_ms: int
    queue: str
    actor: str
    action: str
    session: str
    call: str = ""
    reason: str = ""
    digest: str = ""


class Call(Answer, frozen=True, kw_only=True):
    """All that Redis still knows of one call."""

    queue: str
    session: str
    call: str
    tool: str
    state: CallState
    args: Payload
    output: Payload
    pieces: list[OutputPiece]
    error: Payload
    decision: Decision | None
    timeline: list[Step]
    attempt: int
    worker: str
    sandbox: str
    level: str
    taint: str
    workspace: str
    queued_ms: int | None
    run_ms: int | None
    cancelling: bool
    deadline_ms: int | None
    priority: str
    trace: str
    audit: list[CallRow]
    actions: list[Action]


class SessionRow(Struct, frozen=True, kw_only=True):
    """A session by its latest calls; `calls`, `denied`, `failed` count what was looked at."""

    queue: str
    session: str
    last_ms: int
    calls: int
    denied: int
    failed: int
    taint: str
    mode: str
    workspace: str
    opened: bool


class Sessions(Answer, frozen=True, kw_only=True):
    """The sessions of the latest calls. `more` continues with earlier ones."""

    sessions: list[SessionRow]
    seen: int
    looked_at: int
    looked_back_to_ms: int | None
    more: str | None


class TaintStep(Struct, frozen=True, kw_only=True):
    """When the session's taint first reached a level, and what raised it (a call's id, or `orchestrator`)."""

    level: str
    at_ms: int
    by: str


class PlanView(Struct, frozen=True, kw_only=True):
    """A proposed plan, and what was said about it."""

    queue: str
    session: str
    state: PlanState
    digest: str
    version: int
    proposed_ms: int | None
    call: str
    taint: str
    workspace: str
    body: Payload
    approval: Approval | None


class Session(Answer, frozen=True, kw_only=True):
    """One session as it stands."""

    queue: str
    session: str
    opened: bool
    opened_ms: int | None
    workspace: str
    mode: str
    plan_state: PlanState
    taint: str
    taint_history: list[TaintStep]
    workspace_level: str
    workspace_pin: str | None
    plan: PlanView | None
    running: list[str]
    waiting: int
    waiting_first: list[str]
    calls: list[CallRow]
    looked_back_to_ms: int | None
    actions: list[Action]


class Plans(Answer, frozen=True, kw_only=True):
    """Plans that wait for approval, the longest waiting first, and those that were judged lately."""

    waiting: list[PlanView]
    judged: list[PlanView]
    looked_back_to_ms: int | None
    actions: list[Action]


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Calls that were denied or failed for the same cause, and the latest of them."""

    queue: str
    kind: Literal["denied", "failed"]
    code: str
    policy: str
    rule: str
    tool: str
    count: int
    sessions: int
    first_ms: int
    last_ms: int
    latest: list[CallRow]


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A queue entry that could not be answered."""

    queue: str
    at_ms: int
    id: str
    why: str


class Failures(Answer, frozen=True, kw_only=True):
    """Causes of denials and failures among the latest calls, the most frequent first."""

    groups: list[FailureGroup]
    looked_at: int
    looked_back_to_ms: int | None
    dead: list[DeadLetter]


class Me(Struct, frozen=True, kw_only=True):
    """Who asks, what they may do, and what this dashboard can do at all."""

    name: str
    roles: list[str]
    can_cancel: bool
    can_judge: bool
    queues: list[str]
    payloads: Level | None
    sign_in: bool
    version: str


class Fault(Struct, frozen=True, kw_only=True):
    """Why a request was not answered."""

    error: str
    message: str


class CancelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a call is to end."""

    reason: str = ""


class JudgeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which plan is judged, why, and for how long an approval holds."""

    digest: str
    reason: str = ""
    life_s: int = 3600


class Done(Struct, frozen=True, kw_only=True):
    """An action was recorded and carried out."""

    action: str
    actor: str
    session: str
    call: str = ""
