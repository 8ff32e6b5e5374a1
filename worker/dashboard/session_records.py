"""What the API says of sessions, of what waits for a person, and of what went wrong."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from contracts.plans import Approval, PlanState
from worker.dashboard.call_records import Action, CallRow, Payload
from worker.dashboard.records import Answer


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
    """A proposed plan, and what was said about it. `approval_problem` is why that does not count, by its signature."""

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
    approval_problem: str


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


class AskView(Struct, frozen=True, kw_only=True):
    """A call that was denied `approval_required`, and runs once it is approved and sent again."""

    queue: str
    session: str
    call: str
    asked_ms: int
    digest: str
    tool: str
    about: Payload
    policy: str
    rule: str
    reason: Payload
    taint: str
    workspace: str


class Plans(Answer, frozen=True, kw_only=True):
    """Plans and calls that wait for approval, the longest waiting first, and plans that were judged lately."""

    asks: list[AskView]
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
