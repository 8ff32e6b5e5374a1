"""What a worker says of itself, along with claims and renewals that are sent anyway."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sized
from typing import Any

import msgspec

from worker.metrics import Metrics

BEAT_S = 1.0
"""How often a heartbeat goes along at most: to write one costs Redis more than a claim."""


class Heartbeats:
    """Made of what `described` holds at the time, and how many of the `slots` are `running`."""

    def __init__(self, described: Mapping[str, Any], slots: int, running: Sized, metrics: Metrics) -> None:
        self._described, self._slots, self._running, self._metrics = described, slots, running, metrics
        self._draining = False
        self._sent_at = float("-inf")

    def drain(self) -> None:
        """From now on they say so, the next at once."""
        self._draining = True
        self._sent_at = float("-inf")

    def next(self) -> bytes:
        """The next one as JSON; empty where the last one was a moment ago."""
        now = time.monotonic()
        if now - self._sent_at < BEAT_S:
            return b""
        self._sent_at = now
        return msgspec.json.encode(
            {
                **self._described,
                "running": len(self._running),
                "slots": self._slots,
                "draining": self._draining,
                "metrics": self._metrics,
            }
        )
