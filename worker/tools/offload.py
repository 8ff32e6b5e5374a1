"""Blocking file work, off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

FILES = ThreadPoolExecutor(max_workers=16, thread_name_prefix="files")
"""Of their own, so that a hung disk can't use up the loop's default threads (name look-ups, other libraries)."""

_PATIENCE_S = 2.0


async def in_thread(work: Callable[[], T]) -> T:
    """The result of blocking work that only reads. When the call is cancelled the thread's result is dropped."""
    return await asyncio.get_running_loop().run_in_executor(FILES, work)


async def effect_in_thread(work: Callable[[], T], stop: threading.Event) -> T:
    """The result of blocking work that changes something.

    A cancelled call sets `stop` and waits a moment for the thread, so that it seldom changes anything afterwards.
    """
    running = asyncio.get_running_loop().run_in_executor(FILES, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        running.add_done_callback(lambda future: future.cancelled() or future.exception())
        await asyncio.wait({running}, timeout=_PATIENCE_S)
        raise
