"""streaq."""
# The peers are not in the project's own environment.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator,unused-ignore"

from __future__ import annotations

import os
from contextlib import AsyncExitStack

from streaq import Worker

from bench.peers import read_text, redis_url

worker = Worker(
    redis_url=redis_url(),
    concurrency=int(os.environ.get("BENCH_CONCURRENCY", "100")),
    anyio_kwargs={"use_uvloop": True},
)


@worker.task
async def read(path: str) -> str:
    """The bench's work."""
    return read_text(path)


@worker.task
async def noop(path: str) -> str:
    """Nothing."""
    return ""


def serve(concurrency: int) -> None:
    """Run one worker process."""
    worker.run_sync()


class Side:
    """`Task.result` waits on a subscription."""

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(worker)
        self._tasks = {"read": read, "noop": noop}

    async def call(self, client: int, tool: str, path: str) -> str:
        task = await self._tasks[tool].enqueue(path)
        return str((await task.result(15)).result)

    async def submit_many(self, tool: str, path: str, jobs: int) -> None:
        for _ in range(jobs // 500):
            await worker.enqueue_many([self._tasks[tool].enqueue(path) for _ in range(500)])

    async def remaining(self) -> int:
        return int(await worker.queue_size())

    async def close(self) -> None:
        await self._stack.aclose()
