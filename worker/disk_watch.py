"""The disk beneath a running command: what must stay free of it, and how much its workspace may hold."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Literal

from worker.disk_usage import Usage

log = logging.getLogger("toolreef")

GLANCE_EACH_S = 0.25
"""How often it looks, and how long after the command's start for the first time."""

_PATIENCE_S = 10.0
_LOOK_AT_MOST_EACH_COSTS = 4.0
_LOOK_EACH_COSTS = 20.0
_FASTEST_BYTES_PER_S = 1024**3


class DiskWatch:
    """Tells `over` when a limit is passed. Either limit may be 0: none.

    Free space costs next to nothing to ask for, the workspace's size a look at each of its files: so that is looked at
    when as much has become less free as would take half of what is left, else when it could have been filled, and never
    so often that looking costs more than a quarter of the time.
    """

    def __init__(
        self,
        directory_fd: int,
        over: Callable[[Literal["disk", "workspace"]], None],
        *,
        free_bytes: int,
        free_files: int,
        usage: Usage | None,
        workspace_bytes: int,
    ) -> None:
        self._directory_fd = directory_fd
        self._over = over
        self._free_bytes = free_bytes
        self._free_files = free_files
        self._usage = usage if workspace_bytes else None
        self._allowed = workspace_bytes
        self._ceiling = workspace_bytes
        self._free_at_look: int | None = None
        self._not_before = self._due = 0.0
        self.held_bytes = 0
        """What the workspace held when that was too much."""

    async def begin(self) -> None:
        """Before the command starts: whether it must be kept from adding to what is too much already."""
        usage = self._usage
        if usage is None:
            return
        if usage.bytes is None or usage.bytes > self._allowed:
            # A disk that hangs holds up its own commands, not for ever and nobody else's.
            await asyncio.wait({asyncio.ensure_future(self._look(usage))}, timeout=_PATIENCE_S)
        elif usage.is_due:
            usage.look()
        self._ceiling = usage.ceiling(self._allowed)
        self._plan_next(usage)

    async def run(self) -> None:
        """From the first glance on, which most commands have ended before, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            found = await loop.run_in_executor(None, os.fstatvfs, self._directory_fd)
            free = found.f_bavail * found.f_frsize
            if is_full(found, self._free_bytes, self._free_files):
                self._over("disk")
            if self._usage is not None and self._must_look(self._usage, free):
                self._free_at_look = free
                held = await self._look(self._usage)
                if held is not None and held > self._ceiling:
                    self.held_bytes = held
                    self._over("workspace")
                self._plan_next(self._usage)
            await asyncio.sleep(GLANCE_EACH_S)

    async def _look(self, usage: Usage) -> int | None:
        try:
            return await asyncio.wrap_future(usage.look())
        except OSError as error:
            log.warning("a workspace's size can't be told: %s", error.strerror)
            return None

    def _must_look(self, usage: Usage, free: int) -> bool:
        if self._free_at_look is None:
            self._free_at_look = free
        now = time.monotonic()
        if now < self._not_before:
            return False
        room = self._ceiling - (usage.bytes or 0)
        return now >= self._due or self._free_at_look - free > room / 2

    def _plan_next(self, usage: Usage) -> None:
        now = time.monotonic()
        fills_s = max(0, self._ceiling - (usage.bytes or 0)) / _FASTEST_BYTES_PER_S
        self._due = now + max(fills_s, _LOOK_EACH_COSTS * usage.cost_s)
        self._not_before = now + _LOOK_AT_MOST_EACH_COSTS * usage.cost_s


def is_full(found: os.statvfs_result, free_bytes: int, free_files: int) -> bool:
    """Whether less is free than must stay; of files never more than a sixteenth of all that there can be."""
    files = min(free_files, found.f_files // 16)
    return found.f_bavail * found.f_frsize < free_bytes or found.f_favail < files
