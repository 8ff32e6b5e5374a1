"""A plan, its digest, what it covers, and the approval that names it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from contracts.tools import PlanProposeArgs

Mode = Literal["normal", "plan"]
"""What the orchestrator sets on a session. In `plan` the state below is derived from plan and approval."""

PlanState = Literal["normal", "planning", "awaiting", "approved"]


class Covered(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one step lets happen: these tools (all that work on `paths`, if none is named) on these paths.

    `paths` are globs from the workspace's root, as in path rules; without any, all paths. A command can't be held to
    paths, so a step that names some covers commands only where it names their tool.
    """

    tools: list[str] = []
    paths: list[str] = []


class Plan(Struct, frozen=True, kw_only=True):
    """A proposed plan as stored: its digest, and how many were proposed in the session up to it.

    `scope` is what its steps cover, as `scope_text` writes it; empty is everything. `proposed_ms` is by Redis' clock.
    """

    digest: str
    version: int
    body: str = ""
    scope: str = ""
    proposed_ms: int = 0


class Approval(Struct, frozen=True, kw_only=True):
    """An approver's verdict. Binds to one digest; `expires_ms` is Unix time in ms by Redis' clock.

    `scope` is what is approved; empty is what the plan's steps cover. `nonce` is never used for a second plan.
    `key` and `signature` are those of `contracts.signing`, where approvals are signed.
    """

    digest: str
    verdict: Literal["approved", "rejected"]
    approver: str
    expires_ms: int
    reason: str = ""
    scope: str = ""
    nonce: str = ""
    key: str = ""
    signature: str = ""


def digest_of(plan: PlanProposeArgs) -> str:
    """The sha256 of the plan's canonical JSON, in hex."""
    return hashlib.sha256(msgspec.json.encode(plan, order="sorted")).hexdigest()


def scope_of(plan: PlanProposeArgs) -> list[Covered]:
    """What the plan's steps cover, once each. Empty for all: no step, or one that names neither tool nor path."""
    steps = [Covered(tools=sorted(set(step.tools)), paths=sorted(set(step.paths))) for step in plan.steps]
    if any(not step.tools and not step.paths for step in steps):
        return []
    return [step for place, step in enumerate(steps) if step not in steps[:place]]


def scope_text(scope: Sequence[Covered]) -> str:
    """A scope as it is stored and signed."""
    return msgspec.json.encode(scope, order="sorted").decode()


def read_scope(text: str) -> list[Covered]:
    """A stored scope.

    Raises:
        ValueError: it is none.
    """
    return msgspec.json.decode(text, type=list[Covered]) if text else []


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
