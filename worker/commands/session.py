"""toolreef session open / show / set / close: the orchestrator's side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from contracts.levels import Level
from contracts.orchestrator import Orchestrator
from worker.commands.connection import FAILED, OK, add_queue, add_session, complain, run_against_redis, say
from worker.settings import Settings

LEVELS = [level.value for level in Level]


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("session", help="open, show, set or close a session")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, help_text in (
        ("open", "prepare a session: its workspace, mode and level"),
        ("show", "a session as it stands"),
        ("set", "change a session"),
        ("close", "forget a session, its plan and its approval"),
    ):
        each: ArgumentParser = verbs.add_parser(verb, help=help_text)
        add_session(each)
        add_queue(each)
        if verb in ("open", "set"):
            each.add_argument("--workspace", help="the workspace's name (default: the session's)")
            each.add_argument("--mode", choices=["normal", "plan"])
            each.add_argument("--level", choices=LEVELS, help="raise the session's taint to this")
            each.add_argument("--pin", choices=LEVELS, help="the workspace refuses effects of sessions above this")
        each.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Runs `toolreef session`."""
    return run_against_redis(options, lambda settings, url: _act(options, settings, url))


async def _act(options: Namespace, settings: Settings, url: str) -> int:
    async with Orchestrator.connect(url, queue=settings.queue) as orchestrator:
        return await _apply(options, orchestrator)


async def _apply(options: Namespace, orchestrator: Orchestrator) -> int:
    session: str = options.session
    if options.verb == "close":
        if await orchestrator.close_session(session):
            say({"session": session, "closed": True})
            return OK
        complain(f"session {session} is not open")
        return FAILED
    if options.verb != "show":
        level = Level(options.level) if options.level else None
        if options.verb == "open":
            await orchestrator.open_session(
                session, workspace=options.workspace, mode=options.mode or "normal", level=level or Level.PUBLIC
            )
            level = options.mode = options.workspace = None
        pin = Level(options.pin) if options.pin else None
        await orchestrator.change_session(session, workspace=options.workspace, mode=options.mode, level=level, pin=pin)
    say(await orchestrator.show_session(session))
    return OK
