"""How tasks are ended, and waits bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

ASK_AGAIN_S = 0.5


async def end_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels the tasks and waits until every one has ended, whatever it ended with.

    Asks again those that go on: redis-py's clean-up after a cancellation can raise a time-out of its own in its place,
    and a loop that survives lost connections would then take the cancellation for one.
    """
    every = list(tasks)
    while pending := [task for task in every if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=ASK_AGAIN_S)
    await asyncio.gather(*every, return_exceptions=True)


async def until(ends: float | None, doing: Awaitable[T]) -> T:
    """What is awaited. Raises TimeoutError at that time of the running loop, if any."""
    async with asyncio.timeout_at(ends):
        return await doing
