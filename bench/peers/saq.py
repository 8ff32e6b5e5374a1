"""SAQ over Redis."""
# The peers are not in the project's own environment.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator,unused-ignore"

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from saq import Queue, Worker
from saq.job import TERMINAL_STATUSES

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
    """Waits on SAQ's publish/subscribe channel, subscribed before the job is enqueued.

    `Queue.apply` polls every 0.5 s, and `Job.refresh` misses a job that ends while it subscribes.
    """

    async def open(self) -> None:
        self._queue = Queue.from_url(redis_url())
        await self._queue.connect()
        # Without any listener SAQ would give the subscription up, and make it anew for each call.
        self._listening = asyncio.create_task(self._queue.listen(["none"], lambda *_: False, timeout=None))
        await asyncio.sleep(0.2)

    async def call(self, client: int, tool: str, path: str) -> str:
        key = uuid.uuid4().hex
        ended = asyncio.create_task(
            self._queue.listen([key], lambda _, status: status in TERMINAL_STATUSES, timeout=15)
        )
        await asyncio.sleep(0)
        job = await self._queue.enqueue(tool, path=path, key=key)
        assert job is not None
        await ended
        await job.refresh()
        return str(job.result)

    async def submit_many(self, tool: str, path: str, jobs: int) -> None:
        async def some(count: int) -> None:
            for _ in range(count):
                await self._queue.enqueue(tool, path=path)

        await asyncio.gather(*(some(jobs // 20) for _ in range(20)))

    async def remaining(self) -> int:
        return int(await self._queue.count("incomplete"))

    async def close(self) -> None:
        self._listening.cancel()
        await self._queue.disconnect()
