"""The life of one call, top to bottom: decode, judge, run, classify, answer."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from msgspec import Struct, structs

from contracts.calls import ToolCall
from contracts.codec import decode_call, encode, payload_digest
from contracts.levels import Level, highest
from contracts.plans import digest_of, scope_of, scope_text
from contracts.pressure import RETRY_AFTER_MS
from contracts.replies import Completed, Denied, Error, ErrorCode, Failed, TerminalReply
from contracts.tools import TOOLS, Effect, Output, PlanProposeArgs
from worker.claims import Claimed, Ending
from worker.failures import CallFailed, classify, error_of
from worker.hooks.post_tool_response import Classified, Sight, Withheld
from worker.judging import (
    Judgement,
    about,
    ask_of,
    held_to_hooks,
    held_to_rules,
    must_wait,
    permit,
)
from worker.parts import Parts
from worker.progress import ProgressWriter
from worker.recording import record_end
from worker.second_look import enqueued_ms, look_again, needs_second_look
from worker.tools.context import ToolContext

StopReason = Literal["cancelled", "interrupted", "timeout"]

_ANSWERED_UNRUN: dict[str, tuple[ErrorCode, str, str | None]] = {
    "too_large": ("too_large", "the call's payload is larger than this queue takes", "write the data in parts"),
    "cancelled": ("cancelled", "cancelled before it started", None),
    "interrupted": (
        "interrupted",
        "a worker died or lost its lease while it had this call; nobody can tell how far it came",
        "look at the state of the workspace, then decide; a new call needs a new call id",
    ),
    "full": (
        "unavailable",
        "too many calls of this session wait for their turn already",
        "wait for replies; then send it as a new call with a new call id",
    ),
    "changed": ("invalid_call", "the payload changed between two deliveries", None),
    "lost": ("expired", "the payload expired before the call's turn came", None),
}


class Running:
    """One claimed call on its way. `stop` ends it and says why."""

    __slots__ = ("begun", "claim", "renewed", "stop_reason", "task")

    def __init__(self, claim: Claimed, claimed: float) -> None:
        self.claim = claim
        self.renewed = claimed
        self.stop_reason: StopReason | None = None
        self.begun = False
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> bool:
        """Whether it may, since nobody has stopped it yet."""
        self.begun = self.stop_reason is None
        return self.begun

    def stop(self, reason: StopReason) -> None:
        """Cancels the call's task, once. One that has not begun must not be cancelled: it would end without a word."""
        if self.stop_reason is None and self.task is not None and not self.task.done():
            self.stop_reason = reason
            if self.begun:
                self.task.cancel()

    def go_on(self) -> None:
        """What was stopped was its tool alone: the call goes on to its answer, and can be stopped again."""
        self.stop_reason = None
        if self.task is not None:
            self.task.uncancel()


class _Outcome(Struct, kw_only=True):
    """What became of the call so far; filled in as it goes, so that a stop at any point leaves a true answer."""

    call: ToolCall | None = None
    digest: str = ""
    judgement: Judgement | None = None
    context: ToolContext | None = None
    sight: Sight | None = None
    progress: ProgressWriter | None = None
    started: bool = False
    output: Output | None = None
    error: Error | None = None


async def execute(running: Running, parts: Parts) -> Ending:
    """Carries one claimed call out and returns what to publish. Answers every failure; raises only CancelledError that
    nobody of ours asked for."""
    claim, began = running.claim, time.monotonic()
    outcome = _Outcome()
    try:
        outcome.call, outcome.digest = _open(claim)
        if await _permit(outcome, claim, parts):
            outcome.output = await _run(outcome, running, parts)
    except asyncio.CancelledError:
        if running.stop_reason is None:
            raise
        outcome.error = _stopped(running.stop_reason, outcome)
    except Exception as error:  # noqa: BLE001 - the one place where what a call raises becomes its answer
        outcome.error = classify(error, incident_of=claim.id)
        outcome.output = getattr(error, "output", None)
    if outcome.output is None and outcome.context is not None:
        outcome.output = outcome.context.partial_output
    answer = _classified(outcome, claim, parts)
    if outcome.started and parts.hooks is not None and parts.hooks.judges_answers:
        answer = await _asked(outcome, answer, running, parts)
    return _end(outcome, answer, claim, parts, int((time.monotonic() - began) * 1000))


def _open(claim: Claimed) -> tuple[ToolCall, str]:
    """Step 2: what is malformed, expired, changed or already decided by the claim goes no further."""
    if claim.word == "rate_limited":
        message = f"over what the operator lets this {claim.limit} use; nothing was started"
        raise CallFailed("rate_limited", message, retryable=True, retry_after_ms=claim.retry_after_ms)
    if claim.word != "run":
        code, message, hint = _ANSWERED_UNRUN[claim.word]
        later_ms = RETRY_AFTER_MS if code == "unavailable" else None
        raise CallFailed(code, message, hint=hint, retryable=later_ms is not None, retry_after_ms=later_ms)
    try:
        call, digest = decode_call(claim.job, claim.payload)
    except ValueError as error:
        raise CallFailed("invalid_call", str(error)) from None
    if call.tool != claim.tool_seen:
        raise CallFailed("invalid_call", "the payload's head names another tool than its body")
    if call.deadline_ms is not None and call.deadline_ms <= claim.now_ms:
        raise CallFailed("expired", f"the deadline passed {claim.now_ms - call.deadline_ms} ms before the call's turn")
    return call, digest


async def _permit(outcome: _Outcome, claim: Claimed, parts: Parts) -> bool:
    """Step 3: PRE_TOOL_CALL. The decision of an effect stands in the audit file before the effect."""
    call = outcome.call
    assert call is not None
    workspace = parts.open_workspace(claim.job, claim.session.workspace)
    session = claim.session
    if call.tool == "run_command":
        outcome.sight = parts.classify.sight_of_command(session, workspace.root)
        session = structs.replace(session, taint=highest((session.taint, outcome.sight.level())))
    judgement = outcome.judgement = await permit(call, outcome.digest, claim, session, workspace.roots, parts)
    writable = True
    if judgement.error is None and needs_second_look(judgement, claim):
        looked = await look_again(judgement, outcome.digest, claim, parts)
        judgement, writable = looked.judgement, looked.writable
        outcome.judgement = judgement
    if judgement.error is not None:
        outcome.error = judgement.error
        return False
    remaining_s = None if call.deadline_ms is None else (call.deadline_ms - claim.now_ms) / 1000
    if outcome.sight is not None:
        outcome.progress = ProgressWriter(claim, parts.broker, parts.classify, outcome.sight)
        # A command may copy what it sees to another name, so the label rises before it starts.
        must_rise = session.taint > session.workspace_level
        if must_rise and not await parts.broker.mark_workspace(claim, session.taint.value):
            raise CallFailed("unavailable", "the workspace's level can't be raised now", retryable=True)
    outcome.context = ToolContext(
        workspace=workspace,
        sandbox=parts.sandbox,
        limits=parts.limits,
        session=claim.session,
        call=call.call,
        writable=writable,
        secrets=parts.secrets,
        redactor=parts.classify.redactor,
        deadline=None if remaining_s is None else time.monotonic() + remaining_s,
        progress=None if outcome.progress is None or must_wait(judgement, parts) else outcome.progress.write,
    )
    return True


async def _run(outcome: _Outcome, running: Running, parts: Parts) -> Output:
    """Step 4: the tool, inside its time. run_command keeps its own time, to save what was printed."""
    call, context = outcome.call, outcome.context
    assert call is not None
    assert context is not None
    outcome.started = True
    if outcome.progress is not None:
        output = await parts.tools[call.tool](call.args, context)
        await outcome.progress.finish()
        return output
    allowed_s = parts.tool_timeout_s
    if context.deadline is not None:
        allowed_s = min(allowed_s, context.deadline - time.monotonic())
    # Cheaper than asyncio.timeout, and one way to stop a call less.
    timer = asyncio.get_running_loop().call_later(allowed_s, running.stop, "timeout")
    try:
        return await parts.tools[call.tool](call.args, context)
    except asyncio.CancelledError:
        if running.stop_reason != "timeout":
            raise
        running.go_on()
        raise CallFailed("timeout", f"{call.tool} took longer than {allowed_s:.3g} s") from None
    finally:
        timer.cancel()


def _classified(outcome: _Outcome, claim: Claimed, parts: Parts) -> Classified:
    """Step 5: POST_TOOL_RESPONSE, and the operator's rules on what was opened."""
    opened = outcome.context.opened if outcome.context is not None else ()
    try:
        seen = outcome.sight.level() if outcome.sight is not None and outcome.started else None
        answer = parts.classify(
            outcome.output,
            outcome.error,
            opened=opened,
            session=claim.session,
            seen_by_command=seen,
            about=about(outcome.call),
        )
    except Withheld:
        answer = _unclassified()
    if parts.rules is None:
        return answer
    if outcome.judgement is None:
        # It was not judged, so nobody can say which rules redact it.
        return structs.replace(answer, about="")
    return held_to_rules(answer, outcome.judgement, opened, parts.rules)


async def _asked(outcome: _Outcome, answer: Classified, running: Running, parts: Parts) -> Classified:
    """Step 5, the hooks of other packages. A stop meanwhile leaves nothing of the output."""
    assert outcome.judgement is not None
    try:
        return await held_to_hooks(answer, outcome.judgement, parts)
    except Withheld:
        return _unclassified()
    except asyncio.CancelledError:
        if running.stop_reason is None:
            raise
        return Classified(None, _stopped(running.stop_reason, outcome), Level.PUBLIC)


def _unclassified() -> Classified:
    return Classified(None, error_of("internal", "the output is withheld: it could not be classified"), Level.PUBLIC)


def _end(outcome: _Outcome, answer: Classified, claim: Claimed, parts: Parts, run_ms: int) -> Ending:
    """Step 6: the one terminal reply, and what is noted of it."""
    reply = _reply(outcome, answer, claim, parts, run_ms)
    digest = outcome.digest or payload_digest(claim.payload)
    entry = record_end(reply, answer, claim, outcome.context, outcome.judgement, parts)
    return Ending(
        id=claim.id,
        queue=claim.queue,
        token=claim.token,
        reply=encode(reply),
        digest=digest,
        level=answer.level.word,
        audit=entry,
        plan=_proposed(outcome.call) if isinstance(reply, Completed) else "",
        ask=ask_of(outcome.judgement, answer),
    )


def _reply(outcome: _Outcome, answer: Classified, claim: Claimed, parts: Parts, run_ms: int) -> TerminalReply:
    job = claim.job
    kind: type[Completed | Denied | Failed] = Completed
    if answer.error is not None:
        # An answer withheld after an effect is no denial: something ran.
        denied = answer.error.code in ("forbidden", "approval_required") and answer.error.effect == "none"
        kind = Denied if denied else Failed
    parts.metrics.count(kind.__name__.lower())
    return kind(
        session=job.session,
        call=job.call,
        tool=outcome.call.tool if outcome.call is not None else claim.tool_seen[:64],
        taint=highest((claim.session.taint, answer.level)),
        level=answer.level,
        sandbox=parts.sandbox.tier,
        attempt=claim.attempt,
        queued_ms=max(0, claim.now_ms - enqueued_ms(claim)),
        run_ms=run_ms,
        truncated=bool(getattr(answer.output, "truncated", False)),
        output=answer.output,
        error=answer.error,
    )


def _stopped(reason: StopReason, outcome: _Outcome) -> Error:
    """Stopped before the tool began, or in a call that only reads: nothing was done. Else nobody can tell."""
    harmless = not outcome.started or (outcome.call is not None and TOOLS[outcome.call.tool].effect is Effect.READ)
    message = "cancelled while running" if reason == "cancelled" else "the worker had to stop before the call had ended"
    if not outcome.started:
        message += ", before its tool began"
    return error_of(reason, message, effect="none" if harmless else "unknown", retryable=harmless)


def _proposed(call: ToolCall | None) -> str:
    if call is None or not isinstance(call.args, PlanProposeArgs):
        return ""
    scope = scope_text(scope_of(call.args))
    return f"{digest_of(call.args)} {len(scope.encode())} {scope} {encode(call.args).decode()}"
