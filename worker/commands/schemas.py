"""toolreef schemas: the contract, for others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

import msgspec

from contracts.schemas import FORMATS, render
from worker.commands.connection import OK


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("schemas", help="the contract as schemas and tool definitions")
    parser.add_argument("--format", choices=list(FORMATS), default="jsonschema")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Runs `toolreef schemas`."""
    print(msgspec.json.format(msgspec.json.encode(render(options.format)), indent=2).decode())
    return OK
