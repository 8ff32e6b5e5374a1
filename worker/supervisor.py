"""Several worker processes under one: started, watched, restarted with back-off, drained together."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import sys
import time
from collections.abc import Sequence

from worker.settings import environment_with

log = logging.getLogger("toolreef")

HEALTHY_S = 30.0
"""A process that lived this long starts anew at once when it crashes; one that did not waits longer each time."""
MAX_DELAY_S = 30.0
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Has the kernel send this process SIGTERM when the process that started it is gone, however it died."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Supervisor:
    """Keeps `processes` copies of `python -m worker ARGUMENTS` alive, called `<name>.<slot>`, until told to stop."""

    def __init__(self, name: str, arguments: Sequence[str], processes: int) -> None:
        self._name = name
        self._arguments = tuple(arguments)
        self._processes = processes
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Returns when a SIGTERM or SIGINT has drained every process. 0, or the last exit status that was not 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        statuses = await asyncio.gather(*(self._keep(slot) for slot in range(self._processes)))
        return max(statuses, key=abs)

    def stop(self) -> None:
        """Drains all processes; a second time stops their calls at once."""
        self._stopping.set()
        for child in self._children.values():
            if child.returncode is None:
                child.terminate()

    def _hang_up(self) -> None:
        """Has every process read its policy again."""
        for child in self._children.values():
            if child.returncode is None:
                child.send_signal(signal.SIGHUP)

    async def _keep(self, slot: int) -> int:
        delay_s, status = 0.0, 0
        while not self._stopping.is_set():
            started = time.monotonic()
            # A session of its own: Ctrl-C must reach the supervisor once, not every process as well.
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "worker",
                *self._arguments,
                env=environment_with(TOOLREEF_WORKER=f"{self._name}.{slot}"),
                start_new_session=True,
            )
            self._children[slot] = child
            status = await child.wait()
            if self._stopping.is_set() or status == 0:
                break
            delay_s = 0.0 if time.monotonic() - started > HEALTHY_S else min(MAX_DELAY_S, max(0.2, delay_s * 2))
            log.error("worker process %d ended with %d, starting another in %.1f s", child.pid, status, delay_s)
            try:
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
            except TimeoutError:
                continue
        return status
