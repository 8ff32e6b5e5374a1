"""toolreef doctor: what this host offers, and what to do about what is missing."""

from __future__ import annotations

import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from worker.commands.connection import FAULT, OK, add_queue, say, settings_of
from worker.failures import CallFailed
from worker.sandbox import describe
from worker.server_binary import EmbeddedUnavailable, locate_server
from worker.settings import Settings
from worker.tools import ripgrep


class Finding(Struct, frozen=True, kw_only=True):
    """One thing the host offers or not. `needed` says whether a default can't work without it."""

    what: str
    ok: bool
    needed: bool
    detail: str
    remedy: str = ""


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("doctor", help="what this host offers, and what is missing")
    parser.add_argument("--json", action="store_true", help="one JSON line a finding")
    add_queue(parser)
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Runs `toolreef doctor`. 1 if a default can't work."""
    findings = list(examine(settings_of(options)))
    for finding in findings:
        if options.json:
            say(finding)
            continue
        mark = "ok  " if finding.ok else "FAIL" if finding.needed else "no  "
        print(f"{mark} {finding.what}: {finding.detail}" + ("" if finding.ok else f"\n     {finding.remedy}"))
    return OK if all(finding.ok or not finding.needed for finding in findings) else FAULT


def examine(settings: Settings) -> Iterator[Finding]:
    """Looks at everything that a default needs."""
    yield _redis(settings)
    yield _ripgrep()
    yield from _sandbox(settings)
    free = shutil.disk_usage(_existing(settings)).free
    yield Finding(
        what="state",
        ok=free > 100 * 1024**2,
        needed=True,
        detail=f"{settings.state}, {free // 1024**2} MiB free",
        remedy="set TOOLREEF_STATE to a directory on a disk with room",
    )


def _redis(settings: Settings) -> Finding:
    if settings.redis_url:
        return Finding(what="redis", ok=True, needed=True, detail="REDIS_URL is set")
    try:
        return Finding(what="redis", ok=True, needed=True, detail=f"embedded: {locate_server()}")
    except EmbeddedUnavailable as error:
        return Finding(what="redis", ok=False, needed=True, detail="no server found", remedy=str(error))


def _ripgrep() -> Finding:
    try:
        return Finding(what="ripgrep", ok=True, needed=True, detail=ripgrep.binary())
    except CallFailed as error:
        return Finding(what="ripgrep", ok=False, needed=True, detail=str(error), remedy=error.hint or "")


def _sandbox(settings: Settings) -> Iterator[Finding]:
    for probe in describe(settings.sandbox):
        yield Finding(what=probe.what, ok=probe.ok, needed=probe.needed, detail=probe.detail, remedy=probe.remedy)


def _existing(settings: Settings) -> str:
    place = settings.state
    while not place.exists():
        place = place.parent
    return str(place)
