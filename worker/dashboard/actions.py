"""What a person may do: cancel a call, judge a plan. Recorded with their name before it is done, or not done."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec.structs import replace

from contracts.approver import MAX_LIFE_S, Approver, NothingToJudge
from contracts.client import Client
from contracts.connection import connect
from contracts.keys import job_id
from contracts.signing import ApproverKey
from worker.audit import AuditLog, AuditUnavailable
from worker.dashboard.action_log import write_action
from worker.dashboard.call_records import Action
from worker.dashboard.people import Person
from worker.dashboard.people_records import Done

log = logging.getLogger("toolreef")

MAX_REASON_CHARS = 500

Verdict = Literal["approve", "reject", "approve_call", "reject_call"]


class NotAllowed(Exception):
    """The person lacks the role."""


class NotPossible(Exception):
    """This dashboard was given no Redis user for it, or can't record it."""


class Actions:
    """Acts with the Redis users made for it. A URL that is None switches what needs it off.

    `key` signs verdicts, where workers want them signed. `audit` keeps the actions in a file that shows tampering; the
    pages read them from a stream in Redis.
    """

    def __init__(
        self,
        audit: AuditLog,
        *,
        orchestrator_url: str | None,
        approver_url: str | None,
        key: ApproverKey | None = None,
    ) -> None:
        self._audit, self._key = audit, key
        self._orchestrator_url, self._approver_url = orchestrator_url, approver_url

    @property
    def can_cancel(self) -> bool:
        """Whether there is a Redis user to cancel with."""
        return self._orchestrator_url is not None

    @property
    def can_judge(self) -> bool:
        """Whether there is a Redis user to judge with."""
        return self._approver_url is not None

    async def cancel(self, person: Person, queue: str, session: str, call: str, reason: str) -> Done:
        """Asks for the end of a call.

        Raises:
            NotAllowed, NotPossible: see there.
            ValueError: a name is malformed.
            redis.RedisError, OSError: Redis is out of reach; it may or may not have been asked.
        """
        action = Action(
            at_ms=0, queue=queue, actor=person.name, action="cancel", session=session, call=call, reason=_short(reason)
        )

        async def act(url: str) -> None:
            async with Client.connect(url, queue=queue) as client:
                await client.cancel(session, call)

        return await self._record_and_do(person, "operator", self._orchestrator_url, action, act)

    async def judge(
        self, person: Person, verdict: Verdict, queue: str, session: str, *, digest: str, reason: str, life_s: int
    ) -> Done:
        """Answers for the plan, or for the one call that asks, with this very digest.

        Raises:
            NotAllowed, NotPossible: see there.
            NothingToJudge: the session has no such plan, or another one since.
            ValueError: a name is malformed, the life is out of range, or a rejection has no reason.
            redis.RedisError, OSError: Redis is out of reach; it may or may not have been judged.
        """
        if not 1 <= life_s <= MAX_LIFE_S:
            raise ValueError("life_s must be between a second and seven days")
        if verdict.startswith("reject") and not reason.strip():
            raise ValueError("a rejection needs a reason: the agent goes on by it")
        action = Action(
            at_ms=0,
            queue=queue,
            actor=person.name,
            action=verdict,
            session=session,
            reason=_short(reason),
            digest=digest[:64],
        )

        async def act(url: str) -> None:
            async with Approver.connect(url, queue=queue).signing_with(self._key) as judge:
                by: dict[str, Any] = {"approver": person.name, "digest": digest, "reason": action.reason}
                if verdict == "approve":
                    await judge.approve(session, life_s=life_s, **by)
                elif verdict == "reject":
                    await judge.reject(session, **by)
                elif verdict == "approve_call":
                    await judge.approve_call(session, life_s=life_s, **by)
                else:
                    await judge.reject_call(session, life_s=life_s, **by)

        return await self._record_and_do(person, "approver", self._approver_url, action, act)

    async def _record_and_do(
        self, person: Person, role: str, url: str | None, action: Action, act: Callable[[str], Awaitable[None]]
    ) -> Done:
        allowed = person.may(role)
        self._record(action, "allow" if allowed else "deny")
        if not allowed:
            raise NotAllowed(f"this needs the role {role}")
        if url is None:
            raise NotPossible(f"this dashboard was given no Redis user for the role {role}")
        redis = connect(url, socket_timeout=5, socket_connect_timeout=2)
        try:
            await write_action(redis, action.queue, action)
            try:
                await act(url)
            except NothingToJudge:
                # What stands on record must not look as if it had been done.
                await write_action(
                    redis, action.queue, replace(action, action=f"{action.action}, but nothing to judge")
                )
                raise
        finally:
            await redis.aclose()
        log.info("%s did %s on %s %s", action.actor, action.action, action.session, action.call)
        return Done(action=action.action, actor=action.actor, session=action.session, call=action.call)

    def _record(self, action: Action, verdict: str) -> None:
        target = job_id(action.queue, action.session, action.call or "-")
        digest = hashlib.sha256(f"{action.action}\0{action.digest}\0{action.reason}".encode()).hexdigest()
        try:
            self._audit.decided(
                target,
                f"dashboard.{action.action}",
                digest,
                verdict,
                "dashboard",
                action.actor or "nobody",
                1,
                args_text=action.reason,
            )
        except AuditUnavailable as error:
            raise NotPossible(f"nothing is done that can't be recorded: {error}") from None


def _short(reason: str) -> str:
    return reason.strip()[:MAX_REASON_CHARS]
