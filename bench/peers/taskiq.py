"""taskiq over Redis, with the broker that BENCH_BROKER names (`list` or `stream`) and results in Redis."""
# The peers are not in the project's own environment.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator,unused-ignore"

from __future__ import annotations

import asyncio
import os
import sys

import redis.asyncio
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend, RedisStreamBroker

from bench.peers import read_text, redis_url

_CHECK_S = 0.002
"""How often a client asks for its result: the default of 0.2 s would be all of the round trip."""

_QUEUE = f"taskiq-{os.environ['BENCH_BROKER']}"
_Broker = RedisStreamBroker if _QUEUE == "taskiq-stream" else ListQueueBroker
broker = _Broker(redis_url(), queue_name=_QUEUE).with_result_backend(
    RedisAsyncResultBackend(redis_url(), result_ex_time=600)
)


@broker.task
async def read(path: str) -> str:
    """The bench's work."""
    return read_text(path)


@broker.task
async def noop(path: str) -> str:
    """Nothing."""
    return ""


def serve(concurrency: int) -> None:
    """Become taskiq's own command line with one worker process; it takes uvloop by itself."""
    command = ["worker", "bench.peers.taskiq:broker", "--workers", "1", "--max-async-tasks", str(concurrency)]
    os.execv(sys.executable, [sys.executable, "-m", "taskiq", *command, "--log-level", "WARNING"])


class Side:
    """Polls for the result; taskiq has no other way to wait."""

    async def open(self) -> None:
        await broker.startup()
        self._connection = redis.asyncio.Redis.from_url(redis_url())
        self._tasks = {"read": read, "noop": noop}
        self._target = 0

    async def call(self, client: int, tool: str, path: str) -> str:
        task = await self._tasks[tool].kiq(path)
        return str((await task.wait_result(check_interval=_CHECK_S, timeout=15)).return_value)

    async def submit_many(self, tool: str, path: str, jobs: int) -> None:
        self._target = await self._results() + jobs

        async def some(count: int) -> None:
            for _ in range(count):
                await self._tasks[tool].kiq(path)

        await asyncio.gather(*(some(jobs // 20) for _ in range(20)))

    async def _results(self) -> int:
        keys = await self._connection.dbsize()
        return int(keys) - int(await self._connection.exists(_QUEUE, f"autoclaim:taskiq:{_QUEUE}"))

    async def remaining(self) -> int:
        return self._target - await self._results()

    async def close(self) -> None:
        await self._connection.aclose()
        await broker.shutdown()
