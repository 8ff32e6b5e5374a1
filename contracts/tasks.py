"""How background tasks are ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

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
