"""Whether a call may run, and whether its answer may leave: the gate, the approvals, the operator's rules."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct, structs

from contracts.asks import Ask
from contracts.calls import Session, ToolCall
from contracts.codec import encode
from contracts.levels import Level, highest
from contracts.replies import Error, ErrorCode
from contracts.tools import TOOLS, Effect
from worker.audit import AuditUnavailable
from worker.broker import UNREACHABLE
from worker.claims import Claimed, Consent
from worker.decisions import Decision, Judged, Verdict
from worker.failures import CallFailed, error_of
from worker.hooks.plugins import POLICY as HOOK
from worker.hooks.plugins import HookFailed
from worker.hooks.post_tool_response import Classified, Withheld
from worker.parts import Parts
from worker.policies.rules.book import Blanker, Rules
from worker.secrets import redact_output

log = logging.getLogger("toolreef")

MAX_ABOUT_CHARS = 200
APPROVAL = "approval"


class Judgement(Struct, frozen=True, kw_only=True):
    """What was decided of a call before it ran. `error` says why it may not run.

    `approver` said yes to a call that needed it. `version` is that of the rules that judged.
    """

    judged: Judged
    error: Error | None = None
    approver: str = ""
    version: str = ""


async def permit(
    call: ToolCall, digest: str, claim: Claimed, session: Session, roots: tuple[str, ...], parts: Parts
) -> Judgement:
    """PRE_TOOL_CALL. The decision of an effect stands in the audit file before the effect.

    Raises:
        CallFailed: unavailable, since the decision can't be recorded or an approval not looked up.
    """
    judged = Judged(call=call, session=session, workspace_roots=roots, now_ms=claim.now_ms, queue=claim.queue)
    decision = await parts.gate(judged)
    consent = await _consent(claim, digest, parts) if decision.verdict is Verdict.ASK else Consent()
    if consent.word == "rejected":
        why = f"{consent.approver} rejected this call" + (f": {consent.reason}" if consent.reason else "")
        decision = Decision(
            verdict=Verdict.DENY, policy=APPROVAL, rule="rejected", reason=why, version=decision.version
        )
    approved = consent.word == "approved"
    verdict = "approved" if approved else decision.verdict.value
    try:
        parts.audit.decided(
            claim.id,
            call.tool,
            digest,
            verdict,
            decision.policy,
            decision.rule,
            claim.attempt,
            args_text=parts.classify.args_text(call.args, _blanker(judged, parts)),
            version=decision.version,
            approver=consent.approver,
            hold=True,
        )
    except AuditUnavailable as error:
        log.critical("call %s refused: %s", claim.id, error)
        message = "the worker cannot record what it does, so it does nothing"
        raise CallFailed("unavailable", message, retryable=True) from None
    if decision.verdict is Verdict.ALLOW or approved:
        return Judgement(judged=judged, approver=consent.approver, version=decision.version)
    return Judgement(judged=judged, error=refusal(decision, digest), version=decision.version)


def must_wait(judgement: Judgement, parts: Parts) -> bool:
    """Whether no output may leave before the call has ended, since it may yet be withheld or changed."""
    if parts.hooks is not None and parts.hooks.judges_answers:
        return True
    return parts.rules is not None and parts.rules.book.holds_back(judgement.judged)


def held_to_rules(answer: Classified, judgement: Judgement, opened: Sequence[str], rules: Rules) -> Classified:
    """The answer as the operator's rules let it leave: redacted, or only why it is withheld."""
    book, judged = rules.book, judgement.judged
    blanker = book.blanker(judged, opened, answer.level)
    about = answer.about if blanker is None else redact_output(answer.about, blanker)[0]
    if answer.output is not None or opened:
        # An error too may quote what was opened.
        decision = book.judge_answer(judged, opened, answer.level, approved=bool(judgement.approver))
        if decision is not None:
            error = _withheld(judged, decision, answer.error)
            return structs.replace(answer, output=None, error=error, level=Level.PUBLIC, about=about)
    if blanker is None:
        return answer
    (output, told), raised, _ = redact_output((answer.output, answer.error), blanker)
    return structs.replace(answer, output=output, error=told, level=highest((answer.level, raised)), about=about)


def clean_paths(paths: Sequence[str], judgement: Judgement | None, level: Level, parts: Parts) -> list[str]:
    """Paths that a call opened or changed, without secrets and without what the operator's rules redact."""
    clean = parts.classify.clean(paths)
    blanker = None if judgement is None else _blanker(judgement.judged, parts, paths, level)
    return clean if blanker is None else [blanker.redact(path).text for path in clean]


def _blanker(judged: Judged, parts: Parts, opened: Sequence[str] = (), level: Level = Level.PUBLIC) -> Blanker | None:
    return None if parts.rules is None else parts.rules.book.blanker(judged, opened, level)


def ask_of(judgement: Judgement | None, answer: Classified) -> bytes:
    """What an approver is asked for, as JSON; empty where nobody is. The answer's texts are redacted already."""
    error = answer.error
    if judgement is None or error is None or error.code != "approval_required":
        return b""
    call, session = judgement.judged.call, judgement.judged.session
    ask = Ask(
        session=session.name,
        call=call.call,
        digest=error.digest or "",
        tool=call.tool,
        about=answer.about[:MAX_ABOUT_CHARS],
        policy=error.policy or "",
        rule=error.rule or "",
        reason=error.message[:MAX_ABOUT_CHARS],
        taint=session.taint,
        workspace=session.workspace,
    )
    return encode(ask)


async def held_to_hooks(answer: Classified, judgement: Judgement, parts: Parts) -> Classified:
    """The answer as hooks of other packages let it leave. What a hook writes loses its secrets like all else.

    Raises:
        Withheld: a hook failed.
    """
    assert parts.hooks is not None
    judged = judgement.judged
    try:
        held = await parts.hooks.after(judged, answer.output, answer.error, answer.level)
    except HookFailed as failure:
        log.error("hook %s after %s failed, output withheld: %s", failure.hook, judged.call.tool, failure)
        raise Withheld from failure
    if held.withheld_by:
        against = Decision(verdict=Verdict.DENY, policy=HOOK, rule=held.withheld_by, reason=held.reason)
        return structs.replace(answer, output=None, error=_withheld(judged, against, answer.error), level=Level.PUBLIC)
    if not held.rewritten:
        return structs.replace(answer, level=held.level)
    return parts.classify(
        held.output, answer.error, opened=(), session=judged.session, seen_by_command=held.level, about=answer.about
    )


def about(call: ToolCall | None) -> str:
    """What the call is about, for whoever looks at a list: its command, path or summary. Not redacted yet."""
    if call is None:
        return ""
    text: str = getattr(call.args, _FIELD_ABOUT.get(type(call.args), ""), "")
    # Longer than what is kept, so that a secret across its end is still recognised.
    return text[:4096]


_FIELD_ABOUT: dict[type, str] = {
    tool.args: name
    for tool in TOOLS.values()
    for name in ("summary", "path", "command")
    if name in tool.args.__struct_fields__
}


async def _consent(claim: Claimed, digest: str, parts: Parts) -> Consent:
    try:
        return await parts.broker.use_permit(claim, digest)
    except UNREACHABLE as error:
        log.warning("call %s: no approval could be looked up: %s", claim.id, error)
        raise CallFailed("unavailable", "the approval could not be looked up", retryable=True) from None


def refusal(decision: Decision, digest: str) -> Error:
    """What the agent is told of a decision that is not to allow."""
    asks = decision.verdict is Verdict.ASK
    code: ErrorCode = "approval_required" if asks else "forbidden"
    hint = "once it is approved, send the same call again under a new call id" if asks else None
    return error_of(
        code,
        decision.reason or "forbidden",
        hint=hint,
        policy=decision.policy,
        rule=decision.rule or None,
        digest=digest if asks else None,
        policy_version=decision.version or None,
    )


def _withheld(judged: Judged, decision: Decision, error: Error | None) -> Error:
    """For what only read, nothing has happened; an effect has, unless it failed, and its reply must say so."""
    read = TOOLS[judged.call.tool].effect is Effect.READ
    happened = error.effect if error is not None else "unknown"
    return error_of(
        "forbidden",
        f"the answer is withheld: {decision.reason}",
        effect="none" if read else happened,
        hint="it came upon something that a rule forbids; ask for less",
        policy=decision.policy,
        rule=decision.rule,
        policy_version=decision.version or None,
    )
