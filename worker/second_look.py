"""In plan mode an effect is looked at once more just before it starts: by plan and approval as they are then."""

from __future__ import annotations

import logging

from msgspec import Struct, json, structs

from contracts.tools import TOOLS, Effect
from worker.audit import AuditUnavailable
from worker.broker import UNREACHABLE
from worker.claims import Claimed
from worker.decisions import Verdict
from worker.failures import CallFailed
from worker.judging import Judgement, refusal
from worker.parts import Parts

log = logging.getLogger("toolreef")


class Looked(Struct, frozen=True):
    """The judgement as it stands now. Not `writable`: a command that may look but not write."""

    judgement: Judgement
    writable: bool = True


def needs_second_look(judgement: Judgement, claim: Claimed) -> bool:
    """Whether its session is in plan mode and the call has an effect: all others cost nothing here."""
    tool = TOOLS[judgement.judged.call.tool]
    return claim.session.mode != "normal" and tool.effect is not Effect.READ and not tool.allowed_while_planning


async def look_again(judgement: Judgement, digest: str, claim: Claimed, parts: Parts) -> Looked:
    """Asks the plan gate again, for what `needs_second_look`.

    Raises:
        CallFailed: unavailable, since the plan can't be looked up or the decision not recorded.
    """
    call = judgement.judged.call
    try:
        now_ms, session = await parts.broker.look_again(claim)
    except UNREACHABLE as error:
        log.warning("call %s: its plan could not be looked up: %s", claim.id, error)
        raise CallFailed("unavailable", "the plan could not be looked up", retryable=True) from None
    judged = structs.replace(judgement.judged, session=session, now_ms=now_ms, enqueued_ms=enqueued_ms(claim))
    decision = parts.plan_gate(judged)
    if decision is not None and decision.verdict is Verdict.ALLOW:
        return Looked(judgement, writable=decision.rule != "read_only")
    if decision is None:
        raise CallFailed("unavailable", "the plan gate did not answer")
    try:
        parts.audit.decided(
            claim.id, call.tool, digest, decision.verdict.value, decision.policy, decision.rule, claim.attempt
        )
    except AuditUnavailable:
        log.critical("call %s: that its plan no longer allows it could not be recorded", claim.id)
    return Looked(structs.replace(judgement, error=refusal(decision, digest)), writable=False)


class _EnqueueTime(Struct):
    et: int = 0


_read_enqueue_time = json.Decoder(_EnqueueTime)


def enqueued_ms(claim: Claimed) -> int:
    """When the call was sent, as its producer says; now where it says nothing that can be."""
    try:
        return min(claim.now_ms, max(0, _read_enqueue_time.decode(claim.payload).et)) or claim.now_ms
    except (ValueError, RecursionError):
        return claim.now_ms
