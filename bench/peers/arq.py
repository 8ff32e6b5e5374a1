"""arq, with the poll delay of BENCH_POLL_S on both sides (its default is 0.5 s)."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import arq
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker

from bench.peers import read_text, redis_url

_POLL_S = float(os.environ.get("BENCH_POLL_S", "0.5"))


async def read(ctx: dict[str, Any], path: str) -> str:
    """The bench's work."""
    return read_text(path)


async def noop(ctx: dict[str, Any], path: str) -> str:
    """Nothing."""
    return ""


def serve(concurrency: int) -> None:
    """Run one worker process."""
    import uvloop

    async def run() -> None:
        await Worker(
            functions=[read, noop],
            redis_settings=RedisSettings.from_dsn(redis_url()),
            max_jobs=concurrency,
            poll_delay=_POLL_S,
            log_results=False,
        ).async_run()

    uvloop.run(run())


class Side:
    """Enqueues through arq's own pool and polls for the result as arq's `Job.result` does."""

    _pool: ArqRedis

    async def open(self) -> None:
        self._pool = await arq.create_pool(RedisSettings.from_dsn(redis_url()))

    async def call(self, client: int, tool: str, path: str) -> str:
        job = await self._pool.enqueue_job(tool, path)
        assert job is not None
        return str(await job.result(timeout=15, poll_delay=_POLL_S))

    async def submit_many(self, tool: str, path: str, jobs: int) -> None:
        async def some(count: int) -> None:
            for _ in range(count):
                await self._pool.enqueue_job(tool, path)

        await asyncio.gather(*(some(jobs // 20) for _ in range(20)))

    async def remaining(self) -> int:
        return int(await self._pool.zcard("arq:queue"))

    async def close(self) -> None:
        await self._pool.aclose()
