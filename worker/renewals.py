"""Leases of running calls: renewed in time, or the call is stopped before somebody else may claim it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from worker.broker import UNREACHABLE, Broker
from worker.executor import Running

log = logging.getLogger("toolreef")

STOP_AT = 0.8
"""The part of a lease after which a call whose lease could not be renewed is stopped, before others may claim it."""


class Renewals:
    """Of all calls in `running`, by (id, token). `heartbeat` goes along with each renewal."""

    def __init__(
        self,
        broker: Broker,
        queues: Sequence[str],
        running: Mapping[tuple[str, int], Running],
        lease_s: float,
        heartbeat: Callable[[], bytes],
    ) -> None:
        self._broker, self._queues, self._running = broker, queues, running
        self._lease_s, self._heartbeat = lease_s, heartbeat

    def is_late(self, renewed: float) -> bool:
        """Whether what was renewed or claimed at that time must not run on."""
        return time.monotonic() - renewed > STOP_AT * self._lease_s

    async def renew(self) -> None:
        """Renews every lease with one call a queue, side by side: a slow server must not cost another's leases."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            await asyncio.gather(*(self._renew_queue(queue) for queue in self._queues))

    async def _renew_queue(self, queue: str) -> None:
        held = [each for each in self._running.values() if each.claim.queue == queue]
        if not held:
            return
        sent = time.monotonic()
        try:
            words = await self._broker.renew(queue, [each.claim for each in held], self._heartbeat())
        except UNREACHABLE as error:
            log.warning("could not renew %d leases: %s", len(held), error)
            return
        for each, word in zip(held, words, strict=True):
            if word == "lost":
                each.stop("interrupted")
                continue
            each.renewed = sent
            if word == "cancel":
                each.stop("cancelled")

    async def watch(self) -> None:
        """Stops what could not be renewed in time. Apart from `renew`, which may hang on a half-open connection."""
        while True:
            await asyncio.sleep(self._lease_s / 20)
            for each in list(self._running.values()):
                if self.is_late(each.renewed):
                    each.stop("interrupted")
