"""What the API says of calls."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from worker.dashboard.records import Answer

CallState = Literal["queued", "waiting", "granted", "running", "completed", "denied", "failed", "unknown"]
Level = Literal["PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED"]


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
