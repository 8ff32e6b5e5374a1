"""What would be decided of a call, and what taint would follow. Nothing is run, looked up in Redis, or changed."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, structs

from contracts.calls import JobId, Session, ToolCall, check_name
from contracts.codec import decode_call, encode_call
from contracts.levels import Level, highest
from contracts.plans import Mode
from contracts.tools import TOOLS
from worker.app import load_rules, path_rules
from worker.decisions import Judged, Verdict
from worker.hooks.post_tool_response import PostToolResponse
from worker.hooks.pre_tool_call import Policy, PreToolCall
from worker.labels import level_of
from worker.policies import plan_gate
from worker.registry import POLICIES
from worker.secrets import Redactor
from worker.settings import Settings
from worker.workspace import InvalidPath, locate, to_wire


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call to explain, and the session it would come from. `level` is the session's taint so far."""

    tool: str
    args: dict[str, Any] = {}
    session: str = "default"
    queue: str | None = None
    workspace: str | None = None
    mode: Mode = "normal"
    level: Level = Level.PUBLIC


class Explained(Struct, frozen=True, kw_only=True):
    """What would be decided, in the words of a reply. `level` is the session's taint then, as far as paths tell it."""

    decision: str
    rule: str
    reason: str
    level: str
    policy: str = ""


class Explainer:
    """Judges as a worker with these settings would; hooks of others' packages are not asked.

    Raises:
        SettingsError: the path rules can't be read.
        PolicyError: the policy can't be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rules = rules = load_rules(settings)
        # A worker looks whether there is a wall, by running something; here the settings must do.
        read_only = settings.plan_commands == "read_only" and settings.sandbox != "off"
        judge_plan = functools.partial(plan_gate.judge, read_only_commands=read_only)
        own = {} if rules is None else {"rules": rules.judge}
        policies: dict[str, Policy] = {**POLICIES, "plan_gate": judge_plan, **own}
        self._gate = PreToolCall(policies, settings.policy_timeout_s)
        self._path_rules = path_rules(settings)
        self._classify = PostToolResponse(self._path_rules, Redactor())
        self.version = rules.book.version if rules is not None else ""

    def explain(self, question: Question) -> Explained:
        """What would be decided of one call."""
        return asyncio.run(self._explain(question))

    def explain_lines(self, lines: Iterable[bytes], base: Question) -> Iterator[Explained]:
        """One answer a line, in order, blank ones left out. What a line leaves unsaid is as in `base`."""
        with asyncio.Runner() as runner:
            for line in lines:
                if not line.strip():
                    continue
                try:
                    said = msgspec.json.decode(line, type=dict[str, Any])
                    question = msgspec.convert({**structs.asdict(base), "args": {}, **said}, Question)
                except (ValueError, RecursionError) as error:
                    yield _refused(str(error), base.level)
                    continue
                yield runner.run(self._explain(question))

    async def _explain(self, question: Question) -> Explained:
        queue = question.queue or self._settings.queue
        try:
            name = check_name("session", question.session)
            job = JobId(check_name("queue", queue), name, "explained")
            call = decode_call(job, encode_call(question.tool, question.args, enqueued_ms=0))[0]
        except (ValueError, RecursionError) as error:
            return _refused(str(error), question.level, known=question.tool in TOOLS)
        roots = self._roots(question, queue)
        session = Session(
            name=name,
            prepared=True,
            workspace=question.workspace or name,
            mode=question.mode,
            taint=question.level,
        )
        level = self._level(call, session, roots)
        seen = highest((session.taint, level)) if call.tool == "run_command" else session.taint
        judged = Judged(
            call=call, session=structs.replace(session, taint=seen), workspace_roots=roots, now_ms=0, queue=queue
        )
        decision = await self._gate(judged)
        follows = session.taint if decision.verdict is Verdict.DENY else highest((session.taint, level))
        if decision.verdict is Verdict.ALLOW and self._rules is not None:
            own = self._rules.judge(judged)
            decision = own if own.rule != "default" else decision
        return Explained(
            decision=decision.verdict.value,
            rule=decision.rule,
            reason=decision.reason,
            level=follows.value,
            policy=decision.policy,
        )

    def _roots(self, question: Question, queue: str) -> tuple[str, ...]:
        name = question.workspace or question.session
        root = name if os.path.isabs(name) else str(self._settings.workspaces / queue / name)
        return tuple(dict.fromkeys((os.path.realpath(root), root)))

    def _level(self, call: ToolCall, session: Session, roots: tuple[str, ...]) -> Level:
        if call.tool == "run_command":
            return self._classify.sight_of_command(session, roots[0]).level()
        path = getattr(call.args, "path", None)
        writes_blindly = call.tool == "write_file" and not call.args.dry_run
        if path is None or writes_blindly:
            return Level.PUBLIC
        try:
            spot = locate(path, roots)
        except InvalidPath:
            return Level.PUBLIC
        if spot is None:
            return Level.PUBLIC
        real = os.path.realpath(os.path.join(os.fsencode(roots[0]), spot.relative))
        within = os.path.relpath(real, os.fsencode(roots[0]))
        return level_of([to_wire(spot.relative), to_wire(within)], session.workspace_level, self._path_rules)


def _refused(why: str, level: Level, *, known: bool = True) -> Explained:
    """What never reaches a policy is refused all the same."""
    return Explained(decision="deny", rule="invalid_call" if known else "unknown_tool", reason=why, level=level.value)
