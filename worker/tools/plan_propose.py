"""plan.propose: the plan is stored with the reply, in one step, by finish.lua."""

from __future__ import annotations

from contracts.plans import digest_of
from contracts.tools import PlanProposeArgs, PlanProposeOutput
from worker.tools.context import ToolContext


async def run(args: PlanProposeArgs, context: ToolContext) -> PlanProposeOutput:
    """The digest that an approval must name. A plan replaces the one before, and needs an approval of its own."""
    version = context.session.plan.version + 1 if context.session.plan is not None else 1
    return PlanProposeOutput(digest=digest_of(args), version=version, state="awaiting")
