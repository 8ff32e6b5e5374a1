"""In plan mode nothing has an effect until the plan is approved by somebody who is not an agent."""

from __future__ import annotations

from contracts.plans import state_of
from contracts.tools import TOOLS
from worker.decisions import Decision, Judged, allow, deny

POLICY = "plan_gate"


def judge(judged: Judged) -> Decision | None:
    """Allows everything in normal mode and under an approved plan, else only tools without an effect on the world."""
    session = judged.session
    state = state_of(session.mode, session.plan, session.approval, judged.now_ms)
    if state in ("normal", "approved") or TOOLS[judged.call.tool].allowed_while_planning:
        return allow(POLICY, state)
    if state == "planning":
        return deny(
            POLICY, state, f"{judged.call.tool} is blocked in plan mode: propose a plan with plan.propose first"
        )
    return deny(POLICY, state, f"{judged.call.tool} is blocked until the proposed plan is approved")
