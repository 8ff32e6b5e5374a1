"""How long to wait for a Redis that is out of reach, longer after each failure."""

from __future__ import annotations

import asyncio
import logging
import random

from worker.metrics import Metrics

log = logging.getLogger("toolreef")


class Backoff:
    """Failures in a row of one server, or of all that a worker speaks to."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._failures = 0

    def reset(self) -> None:
        """It answers again."""
        self._failures = 0

    async def wait(self, error: BaseException) -> None:
        """50 ms to 2 s, with jitter so that a fleet does not return as one."""
        self._failures += 1
        self._metrics.reconnects += 1
        failures = self._failures
        delay_s: float = min(2.0, 0.05 * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
        if failures in (1, 10) or failures % 100 == 0:
            log.warning("Redis is out of reach (%s: %s), next try in %.2f s", type(error).__name__, error, delay_s)
        await asyncio.sleep(delay_s)
