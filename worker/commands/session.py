"""toolreef session open / show / set / close: the orchestrator's side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from msgspec import structs

from contracts.levels import Level
from contracts.orchestrator import Orchestrator
from contracts.provisioner import Provisioner, agent_user, with_login
from worker.approvals import Approvals
from worker.commands.connection import FAILED, OK, add_queue, add_session, complain, run_against_redis, say
from worker.settings import Settings

LEVELS = [level.value for level in Level]


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("session", help="open, show, set or close a session")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, help_text in (
        ("open", "prepare a session: its workspace, mode and level; of one that is open, changes what is given"),
        ("show", "a session as it stands"),
        ("set", "change a session"),
        ("close", "forget a session, its plan and its approval; its taint is kept as long as its replies"),
        ("reset", "make it a session that has seen nothing: taint, plan, replies and outcomes go, the workspace stays"),
    ):
        each: ArgumentParser = verbs.add_parser(verb, help=help_text)
        add_session(each)
        add_queue(each)
        if verb in ("open", "set"):
            each.add_argument("--workspace", help="the workspace's name (default: the session's)")
            each.add_argument("--mode", choices=["normal", "plan"])
            each.add_argument("--level", choices=LEVELS, help="raise the session's taint to this")
            each.add_argument("--pin", choices=LEVELS, help="the workspace refuses effects of sessions above this")
        if verb == "reset":
            each.add_argument("--taint", required=True, choices=LEVELS, help="its taint, to show that you know it")
        if verb == "open":
            each.add_argument("--parent", help="the session it works for: taint goes down when opened, up when closed")
            each.add_argument("--new-password", action="store_true", help="replace the agent's Redis password")
        each.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Runs `toolreef session`."""
    return run_against_redis(options, lambda settings, url: _act(options, settings, url))


async def _act(options: Namespace, settings: Settings, url: str) -> int:
    async with Orchestrator.connect(url, queue=settings.queue) as orchestrator:
        return await _apply(options, settings, orchestrator)


async def _apply(options: Namespace, settings: Settings, orchestrator: Orchestrator) -> int:
    session: str = options.session
    if options.verb == "close":
        # The user first: a session that is closed must not be spoken for.
        removed = await _remove_agent(settings, session)
        if await orchestrator.close_session(session) or removed:
            say({"session": session, "closed": True})
            return OK
        complain(f"session {session} is not open")
        return FAILED
    if options.verb == "reset":
        say(await orchestrator.reset_session(session, taint=Level(options.taint)))
        return OK
    if options.verb != "show":
        level = Level(options.level) if options.level else None
        if options.verb == "open":
            await orchestrator.open_session(
                session,
                workspace=options.workspace,
                mode=options.mode,
                level=level or Level.PUBLIC,
                parent=options.parent,
            )
            level = options.mode = options.workspace = None
        pin = Level(options.pin) if options.pin else None
        await orchestrator.change_session(session, workspace=options.workspace, mode=options.mode, level=level, pin=pin)
    approvals = Approvals.read(settings.approver_keys)
    shown = structs.asdict(approvals.as_it_counts(await orchestrator.show_session(session)))
    if options.verb == "open" and settings.provisioner_url:
        shown["agent"] = await _make_agent(settings, session, renew=options.new_password)
    say(shown)
    return OK


async def _make_agent(settings: Settings, session: str, *, renew: bool) -> dict[str, Any]:
    """The agent's Redis user; its password and URL only when they are new, since nobody can look them up."""
    url = settings.provisioner_url or ""
    async with await Provisioner.connect(url, queue=settings.queue) as provisioner:
        if await provisioner.has_agent(session) and not renew:
            return {"user": agent_user(settings.queue, session), "password": None, "url": None}
        made = await provisioner.make_agent(session)
    return {"user": made.user, "password": made.password, "url": with_login(url, made.user, made.password)}


async def _remove_agent(settings: Settings, session: str) -> bool:
    if settings.provisioner_url is None:
        return False
    async with await Provisioner.connect(settings.provisioner_url, queue=settings.queue) as provisioner:
        return await provisioner.remove_agent(session)
