"""The entries of a session's reply stream: progress, and the one terminal reply of a call."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from contracts.levels import Level

ErrorCode = Literal[
    "forbidden",
    "approval_required",
    "invalid_call",
    "expired",
    "unavailable",
    "rate_limited",
    "cancelled",
    "conflict_call_id",
    "in_flight",
    "not_found",
    "wrong_kind",
    "permission",
    "no_match",
    "not_unique",
    "conflict",
    "too_large",
    "not_text",
    "no_space",
    "limit",
    "timeout",
    "interrupted",
    "internal",
]

EffectState = Literal["none", "failed", "unknown"]
"""What the agent may assume: nothing was started; it ran and failed cleanly; nobody can tell."""

EFFECT_OF_CODE: dict[ErrorCode, EffectState] = {
    "forbidden": "none",
    "approval_required": "none",
    "invalid_call": "none",
    "expired": "none",
    "unavailable": "none",
    "rate_limited": "none",
    "cancelled": "none",
    "conflict_call_id": "none",
    "in_flight": "none",
    "not_found": "failed",
    "wrong_kind": "failed",
    "permission": "failed",
    "no_match": "failed",
    "not_unique": "failed",
    "conflict": "failed",
    "too_large": "failed",
    "not_text": "failed",
    "no_space": "failed",
    "limit": "failed",
    "timeout": "unknown",
    "interrupted": "unknown",
    "internal": "unknown",
}
"""The effect of each code, unless the reply says otherwise (`cancelled` while running is "unknown")."""


class Error(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call was denied or failed, and what to do next.

    `digest` is that of the call's content, by which an approver approves it. `policy_version` names the operator's
    rules that judged.
    """

    code: ErrorCode
    message: str
    effect: EffectState
    retryable: bool
    retry_after_ms: int | None = None
    hint: str | None = None
    policy: str | None = None
    rule: str | None = None
    incident: str | None = None
    digest: str | None = None
    policy_version: str | None = None


class Progress(Struct, frozen=True, kw_only=True, tag_field="kind", tag="progress"):
    """Output of a call that is still running. `seq` counts from 1 within the call; gaps never occur unsaid.

    `dropped_bytes` says how much output was left out since the entry before.
    """

    v: int = 1
    session: str
    call: str
    seq: int
    stream: Literal["stdout", "stderr"]
    text: str
    dropped_bytes: int = 0
    level: Level = Level.PUBLIC


class Terminal(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The one terminal reply of a call. `taint` stands before all free text: `finish.lua` may raise it in place."""

    v: int = 1
    session: str
    call: str
    tool: str
    taint: Level = Level.PUBLIC
    level: Level = Level.PUBLIC
    sandbox: str = "none"
    attempt: int = 1
    queued_ms: int = 0
    run_ms: int = 0
    truncated: bool = False
    output: Any = None
    error: Error | None = None


class Completed(Terminal, frozen=True, tag="completed"):
    """The tool ran; `output` has its answer."""


class Denied(Terminal, frozen=True, tag="denied"):
    """A policy said no, or asks for approval; nothing ran."""


class Failed(Terminal, frozen=True, tag="failed"):
    """It could not be done, or nobody can tell; `error` says which."""


AnyReply = Progress | Completed | Denied | Failed
TerminalReply = Completed | Denied | Failed
