"""The command line: its table of commands, and what every failure of a user's making looks like."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from worker.commands import audit, call, dashboard, demo, doctor, plan, policy, schemas, serve, session, url, watch
from worker.commands.connection import USAGE, Parser, plain_errors
from worker.version import version_of_product

COMMANDS = (demo, serve, call, session, plan, policy, audit, watch, url, doctor, schemas, dashboard)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. Prints no traceback for what a user can cause."""
    parser = Parser(prog="toolreef", description="The execution plane for AI agents' tool calls.")
    parser.add_argument("--version", action="version", version=f"toolreef {version_of_product()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for module in COMMANDS:
        module.register(commands)
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        with plain_errors():
            status: int = options.run(options)
            return status
    except KeyboardInterrupt:
        return 130
