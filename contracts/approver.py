"""The approver's side: plans, and calls that ask, are judged by naming their digest. No agent's user may write here."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Literal, Self

import msgspec

from contracts import keys
from contracts.asks import PendingAsk, Permit, read_pending
from contracts.calls import check_name
from contracts.connection import QueueConnection
from contracts.plans import Approval, Covered, digest_of, scope_of, scope_text
from contracts.signing import ApproverKey, signed_approval, signed_permit
from contracts.tools import PlanProposeArgs

DEFAULT_LIFE_S = 3600
CALL_LIFE_S = 900
"""How long a yes to one call may wait to be used."""
MAX_LIFE_S = 7 * 24 * 3600


class NothingToJudge(LookupError):
    """The session has no such plan or ask: none was made, or another one since, or it has been answered."""


class Approver(QueueConnection):
    """Judges the plans of one queue with the approver's Redis user. Methods may raise redis.RedisError."""

    _key: ApproverKey | None = None

    def signing_with(self, key: ApproverKey | None) -> Self:
        """The same, signing every verdict; None signs nothing."""
        self._key = key
        return self

    async def approve(
        self,
        session: str,
        *,
        approver: str,
        digest: str | None = None,
        reason: str = "",
        life_s: int = DEFAULT_LIFE_S,
        scope: Sequence[Covered] | None = None,
    ) -> Approval:
        """Approves the proposed plan, for `life_s` seconds. `digest` guards against judging a plan not looked at.

        `scope` is what may be done under it; what the plan's steps name, if left out.

        Raises:
            NothingToJudge: no plan is proposed, its digest is another, or its text is not the one of its digest.
        """
        return await self._judge(session, "approved", approver, digest, reason, life_s, scope)

    async def reject(self, session: str, *, approver: str, digest: str | None = None, reason: str = "") -> Approval:
        """Sends the session back to planning.

        Raises:
            NothingToJudge: no plan is proposed, or its digest is another.
        """
        return await self._judge(session, "rejected", approver, digest, reason, DEFAULT_LIFE_S)

    async def pending(self, session: str | None = None) -> list[PendingAsk]:
        """The calls that wait for a yes, the newest first."""
        return await read_pending(self._redis, self._queue, session)

    async def approve_call(
        self, session: str, digest: str, *, approver: str, reason: str = "", life_s: int = CALL_LIFE_S
    ) -> Permit:
        """Lets one call of this very content run once, if it is sent again within `life_s` seconds (7 days at most).

        Raises:
            NothingToJudge: the session does not ask for such a call.
            ValueError: `life_s` is out of range.
        """
        return await self._answer(session, digest, "approved", approver, reason, life_s)

    async def reject_call(
        self, session: str, digest: str, *, approver: str, reason: str = "", life_s: int = DEFAULT_LIFE_S
    ) -> Permit:
        """Refuses calls of this content for `life_s` seconds, without asking again.

        Raises:
            NothingToJudge: the session does not ask for such a call.
            ValueError: `life_s` is out of range.
        """
        return await self._answer(session, digest, "rejected", approver, reason, life_s)

    async def _answer(
        self,
        session: str,
        digest: str,
        verdict: Literal["approved", "rejected"],
        approver: str,
        reason: str,
        life_s: int,
    ) -> Permit:
        if not 1 <= life_s <= MAX_LIFE_S:
            raise ValueError(f"an answer's life is between a second and seven days, not {life_s} s")
        waiting = await self.pending(check_name("session", session))
        if all(each.ask.digest != digest for each in waiting):
            raise NothingToJudge(f"session {session} does not ask for a call with digest {digest[:64]}")
        permit = Permit(
            nonce=secrets.token_hex(8),
            verdict=verdict,
            approver=approver,
            expires_ms=await self.now_ms() + life_s * 1000,
            reason=reason,
        )
        if self._key is not None:
            permit = signed_permit(self._key, self._queue, session, digest, permit)
        key = keys.permit(self._queue, session, digest)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            pipe.hset(key, mapping={field: getattr(permit, field) for field in Permit.__struct_fields__})
            pipe.pexpire(key, life_s * 1000)
            await pipe.execute()
        return permit

    async def _judge(
        self,
        session: str,
        verdict: Literal["approved", "rejected"],
        approver: str,
        digest: str | None,
        reason: str,
        life_s: int,
        scope: Sequence[Covered] | None = None,
    ) -> Approval:
        key = keys.plan(self._queue, check_name("session", session))
        stored, body = await self._redis.hmget(key, "digest", "body")
        if stored is None:
            raise NothingToJudge(f"session {session} has no proposed plan")
        proposed = stored.decode()
        if digest is not None and proposed != digest:
            raise NothingToJudge(f"the proposed plan of session {session} has digest {proposed}, not {digest}")
        approval = Approval(
            digest=proposed,
            verdict=verdict,
            approver=approver,
            expires_ms=await self.now_ms() + life_s * 1000,
            reason=reason,
            scope=_scope(session, proposed, body, scope) if verdict == "approved" else "",
            nonce=secrets.token_hex(16),
        )
        if self._key is not None:
            approval = signed_approval(self._key, self._queue, session, approval)
        key = keys.approval(self._queue, session)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            pipe.hset(key, mapping={field: getattr(approval, field) for field in Approval.__struct_fields__})
            pipe.expire(key, max(life_s, 1) + 24 * 3600)
            await pipe.execute()
        return approval


def _scope(session: str, digest: str, body: Any, scope: Sequence[Covered] | None) -> str:
    """The scope to approve. The text must be that of the digest, or one would be read and the other approved."""
    try:
        plan = msgspec.json.decode(body or b"", type=PlanProposeArgs)
    except (msgspec.MsgspecError, RecursionError):
        plan = None
    if plan is None or digest_of(plan) != digest:
        raise NothingToJudge(f"the stored plan of session {session} is not the one of its digest {digest}")
    return scope_text(scope_of(plan) if scope is None else scope)
