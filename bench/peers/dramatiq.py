"""dramatiq: threads, no event loop. As many threads as the concurrency says."""
# The peers are not in the project's own environment.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator,unused-ignore"

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.peers import read_text, redis_url

_broker = RedisBroker(url=redis_url())
_broker.add_middleware(Results(backend=RedisBackend(url=redis_url())))
dramatiq.set_broker(_broker)


@dramatiq.actor(store_results=True)
def read(path: str) -> str:
    """The bench's work."""
    return read_text(path)


@dramatiq.actor(store_results=True)
def noop(path: str) -> str:
    """Nothing."""
    return ""


def serve(concurrency: int) -> None:
    """Become dramatiq's own command line with one worker process."""
    command = ["bench.peers.dramatiq", "--processes", "1", "--threads", str(concurrency)]
    os.execv(sys.executable, [sys.executable, "-m", "dramatiq", *command])


class Side:
    """`get_result(block=True)`, a thread for each waiting client."""

    async def open(self) -> None:
        self._threads = ThreadPoolExecutor(64)
        self._actors = {"read": read, "noop": noop}
        self._connection = redis.Redis.from_url(redis_url())

    def _call(self, tool: str, path: str) -> str:
        return str(self._actors[tool].send(path).get_result(block=True, timeout=15_000))

    async def call(self, client: int, tool: str, path: str) -> str:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, tool, path)

    async def submit_many(self, tool: str, path: str, jobs: int) -> None:
        for _ in range(jobs):
            self._actors[tool].send(path)

    async def remaining(self) -> int:
        return int(self._connection.hlen("dramatiq:default.msgs"))  # type: ignore[arg-type]

    async def close(self) -> None:
        self._threads.shutdown(wait=False)
        self._connection.close()
