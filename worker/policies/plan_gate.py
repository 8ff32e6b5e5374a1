"""In plan mode nothing has an effect until somebody who is no agent approves the plan, and then what it covers."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

from contracts.levels import Level
from contracts.plans import Covered, read_scope, state_of
from contracts.tools import TOOLS
from worker.decisions import Decision, Judged, allow, deny
from worker.labels import PathRule, path_rule
from worker.workspace import InvalidPath, locate, to_wire

POLICY = "plan_gate"

COMMANDS = frozenset({"run_command", "exec.run", "exec.test", "exec.install"})
"""What can touch any path of the workspace, so that paths can't hold it."""

_PROBLEMS = {
    "replayed": "the approval that is there was given for an earlier plan",
    "unsigned": "the approval that is there is not signed by an approver's key",
    "bad_signature": "the signature of the approval that is there is wrong",
}


def judge(judged: Judged, *, read_only_commands: bool = False) -> Decision | None:
    """Allows everything in normal mode, what the plan covers once it is approved, else only what has no effect.

    `read_only_commands` lets run_command through before the approval, for an executor that keeps it from writing.
    """
    session, tool = judged.session, judged.call.tool
    state = state_of(session.mode, session.plan, session.approval, judged.now_ms)
    if state == "normal" or TOOLS[tool].allowed_while_planning:
        return allow(POLICY, state)
    if state == "approved":
        return _covered(judged)
    if read_only_commands and tool == "run_command" and not getattr(judged.call.args, "background", False):
        return allow(POLICY, "read_only")
    approval = session.approval
    if state == "planning":
        why = "propose a plan with plan.propose first"
        if approval is not None and session.plan is not None:
            given = f": {approval.reason}" if approval.reason else ""
            why = f"{approval.approver} rejected the plan{given}; propose another one"
        return deny(POLICY, state, f"{tool} is blocked in plan mode: {why}")
    why = _PROBLEMS.get(session.approval_problem, "")
    if not why and approval is not None and session.plan is not None and approval.digest == session.plan.digest:
        why = "its approval has expired"
    return deny(POLICY, state, f"{tool} is blocked until the proposed plan is approved" + (f"; {why}" if why else ""))


def _covered(judged: Judged) -> Decision:
    """Whether the approved plan speaks of this call."""
    session, tool = judged.session, judged.call.tool
    plan, approval = session.plan, session.approval
    assert plan is not None
    assert approval is not None
    if judged.enqueued_ms is not None and judged.enqueued_ms < plan.proposed_ms:
        reason = f"{tool} was sent before the plan that is approved now had been proposed; send it again if it is part"
        return deny(POLICY, "old_plan", reason)
    try:
        scope = _compiled(approval.scope or plan.scope)
    except ValueError:
        return deny(POLICY, "scope", "what the approval covers can't be read")
    if not scope or any(_covers(each, rules, judged) for each, rules in scope):
        return allow(POLICY, "approved")
    return deny(POLICY, "out_of_scope", f"the approved plan does not cover this {tool}; propose a plan that does")


def _covers(covered: Covered, rules: tuple[PathRule, ...], judged: Judged) -> bool:
    tool = judged.call.tool
    if covered.tools and tool not in covered.tools:
        return False
    if not covered.paths:
        return True
    if tool in COMMANDS:
        return tool in covered.tools
    spellings = list(_spellings(judged))
    return bool(spellings) and all(any(rule.pattern.match(path) for rule in rules) for path in spellings)


def _spellings(judged: Judged) -> Iterator[str]:
    """The path of the call as it is written and as links lead, from the workspace's root; each must be covered."""
    args: Any = judged.call.args
    try:
        spot = locate(getattr(args, "path", ""), judged.workspace_roots)
    except InvalidPath:
        return
    if spot is None:
        return
    yield "/" + to_wire(spot.relative)
    root = os.path.realpath(os.fsencode(judged.workspace_roots[0]))
    real = os.path.realpath(os.path.join(root, spot.relative))
    # What leads outside fails when it is opened; no glob covers it either.
    yield "/" + to_wire(os.path.relpath(real, root))


@functools.lru_cache(maxsize=256)
def _compiled(scope: str) -> tuple[tuple[Covered, tuple[PathRule, ...]], ...]:
    return tuple((each, tuple(_rules(each.paths))) for each in read_scope(scope))


def _rules(paths: list[str]) -> Iterator[PathRule]:
    for path in paths:
        if not path:
            # Mostly a variable that was not set, and nothing that an approver could see: it covers nothing.
            continue
        glob = path.removeprefix("./").strip("/")
        try:
            yield path_rule("/**" if glob in ("", ".", "**") else f"/{glob}", Level.PUBLIC)
        except ValueError:
            continue  # a glob that can't be read covers nothing
