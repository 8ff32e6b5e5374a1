"""Plans and approvals as the scripts return them, and which approvals count: signed ones, where keys are configured."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, structs

from contracts.asks import Permit
from contracts.plans import Approval, Plan
from contracts.signing import ApproverKeys, call_message, plan_message
from worker.settings import SettingsError

if TYPE_CHECKING:
    from contracts.orchestrator import SessionView

log = logging.getLogger("toolreef")

Problem = Literal["", "replayed", "unsigned", "bad_signature"]
"""Why an approval does not count."""


class PlanFound(Struct, frozen=True):
    """A session's plan and the approval that counts; or why the one that is there does not."""

    plan: Plan | None = None
    approval: Approval | None = None
    problem: str = ""


class Approvals:
    """Judges approvals by the keys of their approvers. Without keys, the approver's Redis user is enough."""

    def __init__(self, keys: ApproverKeys | None) -> None:
        self._keys = keys

    @classmethod
    def read(cls, path: Path | None) -> Approvals:
        """With the public keys of a file, if there is one.

        Raises:
            SettingsError: the file cannot be used.
        """
        if path is None:
            return cls(None)
        try:
            return cls(ApproverKeys(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise SettingsError(f"TOOLREEF_APPROVER_KEYS: {path} can't be read: {error.strerror}") from None
        except ValueError as error:
            raise SettingsError(f"TOOLREEF_APPROVER_KEYS: {path}: {error}") from None

    def plan_found(self, queue: str, session: str, row: Sequence[Any]) -> PlanFound:
        """What `_plan.lua` appended to a row; nothing for a session outside of plan mode."""
        if len(row) < 14:
            return PlanFound()
        plan, approval = _plan(*row[0:4]), read_approval(row[4:13])
        problem = _text(row[13]) or self.plan_problem(queue, session, approval)
        if problem:
            log.warning("the approval of session %s does not count: %s", session, problem)
            approval = None
        return PlanFound(plan, approval, problem)

    def plan_problem(self, queue: str, session: str, approval: Approval | None) -> Problem:
        """Why a verdict on a plan does not count, as far as its signature tells."""
        # A no needs no signature: whoever can write it could as well remove the yes.
        if approval is None or approval.verdict != "approved":
            return ""
        return self._problem(approval, plan_message(queue, session, approval))

    def as_it_counts(self, view: SessionView) -> SessionView:
        """A session as those see it who hold the approvers' keys: approved is only what one of them has signed."""
        problem = self.plan_problem(view.queue, view.session, view.approval)
        state = "awaiting" if problem and view.plan_state == "approved" else view.plan_state
        return structs.replace(view, plan_state=state, approval_problem=problem)

    def permit_problem(self, queue: str, session: str, digest: str, permit: Permit, now_ms: int) -> Problem:
        """Why an answer to one call does not count. Where answers must be signed, their own end counts as well."""
        problem = self._problem(permit, call_message(queue, session, digest, permit))
        if problem == "" and self._keys is not None and permit.expires_ms <= now_ms:
            problem = "bad_signature"
        if problem:
            log.warning("the approval of a call of session %s does not count: %s", session, problem)
        return problem

    def _problem(self, verdict: Approval | Permit, message: bytes) -> Problem:
        if self._keys is None:
            return ""
        if not verdict.signature or not verdict.nonce:
            return "unsigned"
        if isinstance(verdict, Approval) and not verdict.scope:
            return "unsigned"
        return "" if self._keys.verifies(verdict.key, message, verdict.signature) else "bad_signature"


def read_permit(answer: Sequence[bytes]) -> Permit:
    """An approved permit as `consume.lua` returns it."""
    approver, reason, nonce, expires_ms, key, signature = (_text(each) for each in answer[1:7])
    return Permit(
        nonce=nonce,
        verdict="approved",
        approver=approver,
        expires_ms=_number(expires_ms),
        reason=reason,
        key=key,
        signature=signature,
    )


def _plan(digest: bytes | None, version: bytes | None, scope: bytes | None, proposed_ms: bytes | None) -> Plan | None:
    if digest is None:
        return None
    return Plan(digest=_text(digest), version=_number(version), scope=_text(scope), proposed_ms=_number(proposed_ms))


def read_approval(fields: Sequence[bytes | None]) -> Approval | None:
    """A verdict on a plan from its hash, values in the order of the struct's fields; None where there is none."""
    digest, verdict, approver, expires_ms, *rest = fields
    if digest is None or verdict not in (b"approved", b"rejected"):
        return None
    reason, scope, nonce, key, signature = map(_text, rest)
    return Approval(
        digest=_text(digest),
        verdict="approved" if verdict == b"approved" else "rejected",
        approver=_text(approver),
        expires_ms=_number(expires_ms),
        reason=reason,
        scope=scope,
        nonce=nonce,
        key=key,
        signature=signature,
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(value: bytes | str | None) -> int:
    try:
        return int(value or 0)
    except ValueError:
        return 0
