"""toolreef url: where other programs reach the Redis that the commands use. It carries the password."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from worker.commands.connection import OK, redis_of, settings_of


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser(
        "url", help="the URL of the Redis in use, with its password, for an agent's REDIS_URL"
    )
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Runs `toolreef url`."""
    with redis_of(settings_of(options)) as url:
        print(url)
    return OK
