"""toolreef plan propose / show / approve / reject."""

from __future__ import annotations

import getpass
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from contracts.approver import DEFAULT_LIFE_S, Approver, NothingToJudge
from contracts.orchestrator import Orchestrator
from contracts.plans import Covered
from contracts.signing import ApproverKey, new_private_key
from contracts.tools import TOOLS
from worker.approvals import Approvals
from worker.commands import call
from worker.commands.connection import (
    FAILED,
    OK,
    UsageError,
    add_queue,
    add_session,
    approver_key,
    complain,
    run_against_redis,
    say,
)
from worker.settings import Settings


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("plan", help="propose, show, approve or reject a session's plan")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, help_text in (
        ("propose", "propose a plan, as the agent does with the tool plan.propose"),
        ("show", "the plan, its state and its approval"),
        ("approve", "approve the proposed plan (the approver's Redis user)"),
        ("reject", "send the session back to planning (the approver's Redis user)"),
    ):
        each: ArgumentParser = verbs.add_parser(verb, help=help_text)
        add_session(each)
        add_queue(each)
        if verb == "propose":
            each.add_argument("--summary", required=True, help="what will be done, and why")
            each.add_argument("--step", action="append", default=[], metavar="TEXT", help="a step; may be repeated")
            each.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
        if verb in ("approve", "reject"):
            each.add_argument("--digest", help="judge only this very plan")
            each.add_argument("--approver", default=None, help="who judges (default: your user name)")
        if verb == "approve":
            each.add_argument("--for", dest="life_s", type=int, default=DEFAULT_LIFE_S, metavar="SECONDS")
            each.add_argument(
                "--tool", action="append", choices=[*TOOLS], default=[], help="cover this tool only; may be repeated"
            )
            each.add_argument("--path", action="append", default=[], help="cover these paths only; may be repeated")
        if verb == "reject":
            each.add_argument("--reason", default="", help="why")
        each.set_defaults(run=run)
    key: ArgumentParser = verbs.add_parser("key", help="make an approver's key; print the workers' line for it")
    key.add_argument("--out", required=True, type=Path, metavar="FILE", help="where the private key goes, mode 0600")
    key.add_argument("--approver", default=None, help="whose it is (default: your user name)")
    key.set_defaults(run=_make_key)


def _make_key(options: Namespace) -> int:
    name: str = options.approver or getpass.getuser()
    if len(name.split()) != 1 or "#" in name:
        raise UsageError(f"--approver {name!r}: a name in the workers' file is one word without #")
    pem = new_private_key()
    fd = os.open(options.out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(pem)
    print(name, ApproverKey(pem).public)
    return OK


def run(options: Namespace) -> int:
    """Runs `toolreef plan`."""
    if options.verb == "propose":
        options.tool, options.batch, options.args, options.call_id = "plan.propose", None, None, None
        options.deadline, options.batch_priority, options.follow = None, False, False
        steps = [{"description": step} for step in options.step]
        options.arguments = []
        return call.run_one(options, {"summary": options.summary, "steps": steps})
    if options.verb == "approve" and not 1 <= options.life_s <= 30 * 24 * 3600:
        raise UsageError(f"--for {options.life_s}: must be between a second and thirty days")
    return run_against_redis(options, lambda settings, url: _act(options, settings, url))


async def _act(options: Namespace, settings: Settings, url: str) -> int:
    session: str = options.session
    if options.verb == "show":
        async with Orchestrator.connect(url, queue=settings.queue) as orchestrator:
            view = Approvals.read(settings.approver_keys).as_it_counts(await orchestrator.show_session(session))
        shown = {"session": session, "mode": view.mode, "state": view.plan_state, "plan": view.plan}
        say({**shown, "approval": view.approval, "approval_problem": view.approval_problem})
        return OK
    name = options.approver or getpass.getuser()
    async with Approver.connect(url, queue=settings.queue).signing_with(approver_key(settings)) as judge:
        try:
            if options.verb == "approve":
                # Nothing narrower is wanted: what the plan's steps say is covered.
                scope = [Covered(tools=options.tool, paths=options.path)] if options.tool or options.path else None
                given = await judge.approve(
                    session, approver=name, digest=options.digest, life_s=options.life_s, scope=scope
                )
                say(given)
            else:
                say(await judge.reject(session, approver=name, digest=options.digest, reason=options.reason))
        except NothingToJudge as error:
            complain(str(error))
            return FAILED
    return OK
