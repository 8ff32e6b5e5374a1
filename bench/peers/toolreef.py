"""toolreef: its worker as its command line starts it, and its own client."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import redis.asyncio

from bench.peers import FILE, redis_url
from contracts import keys
from contracts.client import Client
from contracts.codec import decode_reply
from contracts.replies import Completed

QUEUE = "bench"
SESSIONS = 50
WORKSPACE = "bench"
_SUBMITS_AT_ONCE = 250


def environment(directory: Path, url: str) -> dict[str, str]:
    """What a worker process needs to know, with all its state below `directory`."""
    return {
        "REDIS_URL": url,
        "TOOLREEF_STATE": str(directory / "state"),
        "TOOLREEF_WORKSPACES": str(directory / "workspaces"),
    }


def serve(concurrency: int) -> None:
    """Become the worker's own command line; with BENCH_NOOP the one that also knows the tool `noop`."""
    os.environ.update(environment(Path(os.environ["BENCH_DIR"]), redis_url()))
    module = "bench.noop" if os.environ.get("BENCH_NOOP") else "worker"
    command = ["-m", module, "worker", "--queue", QUEUE, "--concurrency", str(concurrency)]
    os.execv(sys.executable, [sys.executable, *command])


class Side:
    """A fleet of 50 sessions that share a workspace, spoken for by one client as a host process would."""

    async def open(self) -> None:
        self._client = Client.connect(redis_url(), queue=QUEUE)
        self._redis: Any = redis.asyncio.Redis.from_url(redis_url())
        self._number = 0
        self._target = 0
        place = Path(os.environ["BENCH_DIR"]) / "workspaces" / QUEUE / WORKSPACE
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(os.environ["BENCH_DIR"]) / FILE, place / FILE)
        for number in range(SESSIONS):
            await self._redis.hset(keys.session(QUEUE, f"s{number}"), mapping={"workspace": WORKSPACE})

    async def call(self, client: int, tool: str, path: str) -> str:
        name, args = _asked(tool, path)
        reply = await self._client.call(name, args, session=f"s{client % SESSIONS}", timeout_s=15)
        if not isinstance(reply, Completed):
            raise RuntimeError(f"{name}: {reply.error}")
        return str((reply.output or {}).get("text", ""))

    async def submit_many(self, tool: str, path: str, jobs: int, sessions: int = SESSIONS) -> None:
        self._target = await self.finished() + jobs
        name, args = _asked(tool, path)
        for begin in range(0, jobs, _SUBMITS_AT_ONCE):
            numbers = range(self._number + begin, self._number + min(begin + _SUBMITS_AT_ONCE, jobs))
            await asyncio.gather(*(self._client.submit(name, args, session=f"s{n % sessions}") for n in numbers))
        self._number += jobs

    async def finished(self) -> int:
        """Calls that ended: the audit has one entry each."""
        return int(await self._redis.xlen(keys.audit(QUEUE)))

    async def remaining(self) -> int:
        return self._target - await self.finished()

    async def right_answers(self, text: str) -> int:
        """Completed replies with this text, over all sessions' streams."""
        right = 0
        for number in range(SESSIONS):
            for _, fields in await self._redis.xrange(keys.replies(QUEUE, f"s{number}")):
                reply = decode_reply(fields[b"reply"])
                right += isinstance(reply, Completed) and (reply.output or {}).get("text", "") == text
        return right

    async def close(self) -> None:
        await self._redis.aclose()
        await self._client.close()


def _asked(tool: str, path: str) -> tuple[str, dict[str, str]]:
    return ("noop", {}) if tool == "noop" else ("read_file", {"path": FILE})
