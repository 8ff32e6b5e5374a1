"""SAQ over Redis."""
# The peers are not in the project's own environment.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator,unused-ignore"

from __future__ import annotations

import asyncio
from typing import Any

from saq import Queue, Worker

from bench.peers import read_text, redis_url


async def read(ctx: dict[str, Any], *, path: str) -> str:
    """The bench's work."""
    return read_text(path)


async def noop(ctx: dict[str, Any], *, path: str) -> str:
    """Nothing."""
    return ""


def serve(concurrency: int) -> None:
    """Run one worker process."""
    import uvloop

    async def run() -> None:
        queue = Queue.from_url(redis_url())
        await queue.connect()
        await Worker(queue, [read, noop], concurrency=concurrency).start()

    uvloop.run(run())


class Side:
    """Waits on SAQ's publish/subscribe channel; `Queue.apply` would poll every 0.5 s."""

    async def open(self) -> None:
        self._queue = Queue.from_url(redis_url())
        await self._queue.connect()

    async def call(self, client: int, tool: str, path: str) -> str:
        job = await self._queue.enqueue(tool, path=path)
        assert job is not None
        await job.refresh(until_complete=15)
        return str(job.result)

    async def submit_many(self, tool: str, path: str, jobs: int) -> None:
        async def some(count: int) -> None:
            for _ in range(count):
                await self._queue.enqueue(tool, path=path)

        await asyncio.gather(*(some(jobs // 20) for _ in range(20)))

    async def remaining(self) -> int:
        return int(await self._queue.count("incomplete"))

    async def close(self) -> None:
        await self._queue.disconnect()
