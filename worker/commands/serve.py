"""toolreef worker and toolreef up: what stays in the foreground and serves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from contracts.calls import check_name
from worker.commands.connection import FAULT, OK, UsageError, complain, redis_of
from worker.commands.dashboard import beside
from worker.settings import Settings, read_settings
from worker.supervisor import Supervisor, die_with_parent

SANDBOX_UNAVAILABLE = 78
"""EX_CONFIG of sysexits.h: the host must be changed, so restarting does not help."""


def register(commands: Any) -> None:
    """Adds both commands."""
    worker: ArgumentParser = commands.add_parser("worker", help="serve queues until SIGTERM")
    worker.add_argument("--supervised", action="store_true", help="end when the parent process ends")
    up: ArgumentParser = commands.add_parser(
        "up", help="a local Redis (or REDIS_URL), workers and the dashboard, in the foreground"
    )
    up.add_argument("--no-dashboard", action="store_true", help="workers alone")
    for parser in (worker, up):
        parser.add_argument("--queue", action="append", metavar="Q", help="a queue to serve; may be repeated")
        parser.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes (default 1)")
        parser.add_argument("--concurrency", type=int, metavar="M", help="calls a process runs side by side")
        parser.add_argument("--sandbox", choices=["require", "prefer", "off"], help="default: require")
        parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Runs either command: `up` is `worker` with a word of welcome and the server kept up for others."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    settings = read_settings(concurrency=options.concurrency, sandbox=options.sandbox)
    queues = [check_name("queue", queue) for queue in options.queue or [settings.queue]]
    if len(set(queues)) != len(queues):
        raise UsageError("--queue: a queue stands there twice")
    if not 1 <= options.processes <= 256:
        raise UsageError(f"--processes {options.processes}: must be between 1 and 256")
    if getattr(options, "supervised", False):
        die_with_parent()
    with redis_of(settings) as url:
        if options.command == "up":
            where = "REDIS_URL" if settings.redis_url else f"embedded Redis in {settings.state}"
            print(f"toolreef is up: queue {', '.join(queues)} on {where}; Ctrl-C drains", flush=True)
        with beside(queues) if options.command == "up" and not options.no_dashboard else contextlib.nullcontext():
            if options.processes > 1:
                arguments = _child_arguments(options, queues)
                return asyncio.run(Supervisor(settings.worker, arguments, options.processes).run())
            return _serve(settings, url, queues)


def _serve(settings: Settings, url: str, queues: list[str]) -> int:
    # Imported here: parser, grammar and tools would slow every other command's start.
    from worker.app import run_worker
    from worker.audit import AuditUnavailable
    from worker.hooks.plugins import HookFailed
    from worker.sandbox import SandboxUnavailable

    try:
        run_worker(settings, url, queues)
    except SandboxUnavailable as error:
        complain(str(error))
        return SANDBOX_UNAVAILABLE
    except HookFailed as error:
        complain(f"hook {error.hook}: {error}")
        return FAULT
    except AuditUnavailable as error:
        complain(f"{error}; state directory {settings.state}")
        return FAULT
    except OSError as error:
        complain(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
        return FAULT
    return OK


def _child_arguments(options: Namespace, queues: list[str]) -> list[str]:
    arguments = ["worker", "--supervised"]
    for queue in queues:
        arguments += ["--queue", queue]
    if options.concurrency:
        arguments += ["--concurrency", str(options.concurrency)]
    if options.sandbox:
        arguments += ["--sandbox", options.sandbox]
    return arguments
