"""PRE_TOOL_CALL: every policy judges, the strictest wins; an exception or a time-out is deny."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from msgspec import structs

from contracts.tools import RunCommandArgs
from worker.decisions import Decision, Judged, Verdict, deny, strictest
from worker.hooks.plugins import PluginHooks

log = logging.getLogger("toolreef")

Policy = Callable[[Judged], Decision | None]

LONG_COMMAND_CHARS = 4096
"""Above this a command is judged on a thread: parsing 64 KB takes tens of milliseconds, too long for the loop."""


class PreToolCall:
    """The gate before every call. Gets its policies, and the hooks of other packages, by argument; knows none."""

    def __init__(self, policies: Mapping[str, Policy], timeout_s: float, hooks: PluginHooks | None = None) -> None:
        self._policies = dict(policies)
        self._timeout_s = timeout_s
        self._hooks = hooks if hooks is not None and hooks.judges_calls else None

    async def __call__(self, judged: Judged) -> Decision:
        """The strictest decision of all policies and hooks. Never raises for what a policy or a hook does."""
        args = judged.call.args
        if isinstance(args, RunCommandArgs) and len(args.command) > LONG_COMMAND_CHARS:
            decision = await self._judge_on_thread(judged)
        else:
            decision = self._judge(judged)
        if self._hooks is None or decision.verdict is Verdict.DENY:
            return decision
        chosen = strictest([decision, *await self._hooks.before(judged)])
        return structs.replace(chosen, version=decision.version)

    async def _judge_on_thread(self, judged: Judged) -> Decision:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.to_thread(self._judge, judged)
        except TimeoutError:
            return deny("gate", "timeout", f"the policies took longer than {self._timeout_s:g} s")

    def _judge(self, judged: Judged) -> Decision:
        decisions, version = [], ""
        for name, policy in self._policies.items():
            try:
                decision = policy(judged)
            except Exception as error:
                log.error("policy %s failed", name, exc_info=error)
                decision = deny(name, "error", "the policy failed, so the call is refused")
            if decision is not None:
                decisions.append(decision)
                version = version or decision.version
        chosen = strictest(decisions)
        return chosen if chosen.version == version else structs.replace(chosen, version=version)
