"""The approver's side: a plan is approved or rejected by naming its digest. No agent's Redis user may write here."""

from __future__ import annotations

from typing import Literal

from contracts import keys
from contracts.calls import check_name
from contracts.connection import QueueConnection
from contracts.plans import Approval

DEFAULT_LIFE_S = 3600


class NothingToJudge(LookupError):
    """The session has no such plan: none was proposed, or another one since."""


class Approver(QueueConnection):
    """Judges the plans of one queue with the approver's Redis user. Methods may raise redis.RedisError."""

    async def approve(
        self, session: str, *, approver: str, digest: str | None = None, reason: str = "", life_s: int = DEFAULT_LIFE_S
    ) -> Approval:
        """Approves the proposed plan, for `life_s` seconds. `digest` guards against judging a plan not looked at.

        Raises:
            NothingToJudge: no plan is proposed, or its digest is another.
        """
        return await self._judge(session, "approved", approver, digest, reason, life_s)

    async def reject(self, session: str, *, approver: str, digest: str | None = None, reason: str = "") -> Approval:
        """Sends the session back to planning.

        Raises:
            NothingToJudge: no plan is proposed, or its digest is another.
        """
        return await self._judge(session, "rejected", approver, digest, reason, DEFAULT_LIFE_S)

    async def _judge(
        self,
        session: str,
        verdict: Literal["approved", "rejected"],
        approver: str,
        digest: str | None,
        reason: str,
        life_s: int,
    ) -> Approval:
        proposed = await self._redis.hget(keys.plan(self._queue, check_name("session", session)), "digest")
        if proposed is None:
            raise NothingToJudge(f"session {session} has no proposed plan")
        if digest is not None and proposed.decode() != digest:
            raise NothingToJudge(f"the proposed plan of session {session} has digest {proposed.decode()}, not {digest}")
        approval = Approval(
            digest=proposed.decode(),
            verdict=verdict,
            approver=approver,
            expires_ms=await self.now_ms() + life_s * 1000,
            reason=reason,
        )
        key = keys.approval(self._queue, session)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            pipe.hset(key, mapping={field: getattr(approval, field) for field in Approval.__struct_fields__})
            pipe.expire(key, max(life_s, 1) + 24 * 3600)
            await pipe.execute()
        return approval
