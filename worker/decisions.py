"""What a policy says of a call: allow < ask < deny. The strictest of all decisions wins."""

from __future__ import annotations

import enum

from msgspec import Struct

from contracts.calls import Session, ToolCall


class Verdict(enum.Enum):
    """Ordered by strictness, in the order written here."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """0 for allow to 2 for deny."""
        return _STRICTNESS[self]


_STRICTNESS = {verdict: rank for rank, verdict in enumerate(Verdict)}


class Decision(Struct, frozen=True, kw_only=True):
    """One policy's judgement. `reason` is fit for the agent's eyes; `rule` names what decided inside the policy.

    `version` is that of the operator's rules in force, once they have judged.
    """

    verdict: Verdict
    policy: str
    rule: str = ""
    reason: str = ""
    version: str = ""


class Judged(Struct, frozen=True, kw_only=True):
    """All that a policy may look at. Policies are pure functions `(Judged) -> Decision | None`; None is silence.

    `workspace_roots` are absolute spellings of the workspace's directory: the canonical one first, then the one
    configured where a link makes it differ. `enqueued_ms`, where it is known, is when the call was sent.
    """

    call: ToolCall
    session: Session
    workspace_roots: tuple[str, ...]
    now_ms: int
    queue: str = "default"
    enqueued_ms: int | None = None


def allow(policy: str, rule: str = "") -> Decision:
    """The policy has nothing against the call."""
    return Decision(verdict=Verdict.ALLOW, policy=policy, rule=rule)


def deny(policy: str, rule: str, reason: str) -> Decision:
    """The policy forbids the call."""
    return Decision(verdict=Verdict.DENY, policy=policy, rule=rule, reason=reason)


def ask(policy: str, rule: str, reason: str) -> Decision:
    """The policy wants somebody's approval first."""
    return Decision(verdict=Verdict.ASK, policy=policy, rule=rule, reason=reason)


def strictest(decisions: list[Decision]) -> Decision:
    """The strictest decision, the first of equals. Silence from all is deny."""
    if not decisions:
        return deny("gate", "silence", "no policy allows this call")
    chosen = decisions[0]
    for decision in decisions[1:]:
        if decision.verdict.strictness > chosen.verdict.strictness:
            chosen = decision
    return chosen
