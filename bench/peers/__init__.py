"""One module a system: `serve(concurrency)` runs its worker, `Side` is its client. Run in the peers' environments."""

from __future__ import annotations

import os
from typing import Protocol

FILE = "read.txt"
"""The file of 1 KiB in BENCH_DIR that every job reads."""


class ClientSide(Protocol):
    """What the load generator needs of a system. `tool` is `read` (the file at `path`) or `noop`."""

    async def open(self) -> None:
        """Connect."""

    async def call(self, client: int, tool: str, path: str) -> str:
        """Submit one job as closed-loop client number `client`, and wait for the text that it returns."""

    async def submit_many(self, tool: str, path: str, jobs: int) -> None:
        """Enqueue without waiting for results, by the fastest documented way."""

    async def remaining(self) -> int:
        """How many of the jobs enqueued since `submit_many` began have not finished."""

    async def close(self) -> None:
        """Disconnect."""


def redis_url() -> str:
    """The server, or the counting proxy before it."""
    return os.environ["BENCH_REDIS_URL"]


def read_text(path: str) -> str:
    """The work that every system does: a page-cache read of 1 KiB on the event loop (10 us, less than a thread hop)."""
    with open(path, encoding="utf-8") as file:
        return file.read()
