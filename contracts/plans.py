"""A plan, its digest, and the approval that names it."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct

from contracts.tools import PlanProposeArgs

Mode = Literal["normal", "plan"]
"""What the orchestrator sets on a session. In `plan` the state below is derived from plan and approval."""

PlanState = Literal["normal", "planning", "awaiting", "approved"]


class Plan(Struct, frozen=True, kw_only=True):
    """A proposed plan as stored: its digest, and how many were proposed in the session up to it."""

    digest: str
    version: int
    body: str = ""


class Approval(Struct, frozen=True, kw_only=True):
    """An approver's verdict. Binds to one digest; `expires_ms` is Unix time in ms by Redis' clock."""

    digest: str
    verdict: Literal["approved", "rejected"]
    approver: str
    expires_ms: int
    reason: str = ""


def digest_of(plan: PlanProposeArgs) -> str:
    """The sha256 of the plan's canonical JSON, in hex."""
    return hashlib.sha256(msgspec.json.encode(plan, order="sorted")).hexdigest()


def state_of(mode: str, plan: Plan | None, approval: Approval | None, now_ms: int) -> PlanState:
    """Where a session stands. Any mode but `normal` blocks, so that a misspelt mode fails closed.

    An approval counts only while it names this very plan and has not expired; a rejected plan is planned anew.
    """
    if mode == "normal":
        return "normal"
    if plan is None:
        return "planning"
    if approval is None or approval.digest != plan.digest or approval.expires_ms <= now_ms:
        return "awaiting"
    return "approved" if approval.verdict == "approved" else "planning"
