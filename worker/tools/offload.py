"""Blocking file work, off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

T = TypeVar("T")

FILES = ThreadPoolExecutor(max_workers=16, thread_name_prefix="files")
"""Of their own, so that a hung disk can't use up the loop's default threads (name look-ups, other libraries)."""

_PATIENCE_S = 2.0


async def in_thread(work: Callable[[], T]) -> T:
    """The result of blocking work that only reads. When the call is cancelled the thread's result is dropped."""
    return await asyncio.get_running_loop().run_in_executor(FILES, work)


class Effects:
    """Blocking work that changes something, one piece after the other.

    A cancelled call sets `stop` and waits a moment for the thread, so that it seldom changes anything afterwards.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._running: asyncio.Future[object] | None = None

    @property
    def at_rest(self) -> bool:
        """Whether no thread is at it any more; one on a hung disk may outlive its call."""
        return self._running is None or self._running.done()

    async def run(self, work: Callable[[], T]) -> T:
        """The result of the work, done in a thread."""
        return await self.see_through(asyncio.get_running_loop().run_in_executor(FILES, work))

    async def see_through(self, work: Awaitable[T]) -> T:
        """The result of work that others hand to a thread."""
        running = asyncio.ensure_future(work)
        self._running = cast("asyncio.Future[object]", running)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop.set()
            running.add_done_callback(lambda future: future.cancelled() or future.exception())
            await asyncio.wait({running}, timeout=_PATIENCE_S)
            raise
