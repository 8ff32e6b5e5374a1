"""toolreef replies, cancel, status: watching, and stopping what is watched."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from contracts.client import Client
from contracts.orchestrator import Orchestrator, QueueView
from worker.commands.connection import OK, add_queue, add_session, run_against_redis, say
from worker.settings import Settings


def register(commands: Any) -> None:
    """Adds the three commands."""
    replies: ArgumentParser = commands.add_parser("replies", help="the replies of a session, one JSON line each")
    add_session(replies)
    replies.add_argument("--follow", action="store_true", help="go on as they come")
    replies.add_argument("--after", default="0", metavar="ID", help="only what came after this stream id")
    cancel: ArgumentParser = commands.add_parser("cancel", help="end a call, whether it waits or runs")
    add_session(cancel)
    cancel.add_argument("--call-id", required=True, help="the call's id")
    status: ArgumentParser = commands.add_parser("status", help="the queue and its workers")
    status.add_argument("--json", action="store_true", help="as one JSON line")
    for parser, act in ((replies, _replies), (cancel, _cancel), (status, _status)):
        add_queue(parser)
        parser.set_defaults(run=run, act=act)


def run(options: Namespace) -> int:
    """Runs one of the three."""
    return run_against_redis(options, lambda settings, url: options.act(options, settings, url))


async def _replies(options: Namespace, settings: Settings, url: str) -> int:
    async with Client.connect(url, queue=settings.queue) as client:
        async for _, reply in client.replies(options.session, follow=options.follow, after=options.after):
            say(reply)
    return OK


async def _cancel(options: Namespace, settings: Settings, url: str) -> int:
    async with Client.connect(url, queue=settings.queue) as client:
        await client.cancel(options.session, options.call_id)
    say({"session": options.session, "call": options.call_id, "asked": True})
    return OK


async def _status(options: Namespace, settings: Settings, url: str) -> int:
    async with Orchestrator.connect(url, queue=settings.queue) as orchestrator:
        view = await orchestrator.status()
    if options.json:
        say(view)
    else:
        print(_as_text(view))
    return OK


def _as_text(view: QueueView) -> str:
    queued = f"{view.depth} waiting, {view.batch_depth} of batch, {view.leased} running or granted"
    lines = [f"queue {view.queue}: {queued}, oldest {view.oldest_ms / 1000:.1f} s, {view.dead} dead letters"]
    for worker in view.workers:
        beat = worker.heartbeat
        drain = ", draining" if beat.get("draining") else ""
        lines.append(
            f"  {worker.worker}: {beat.get('running')}/{beat.get('slots')} slots, sandbox {beat.get('sandbox')}, "
            f"version {beat.get('version')}, heard {worker.age_ms / 1000:.1f} s ago{drain}"
        )
    if not view.workers:
        lines.append("  no workers")
    return "\n".join(lines)
