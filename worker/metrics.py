"""Counters of one worker process; they travel in its heartbeat."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Metrics:
    """Counted since the process started."""

    completed: int = 0
    denied: int = 0
    failed: int = 0
    stale: int = 0
    reconnects: int = 0
    undeliverable: int = 0

    def count(self, kind: str) -> None:
        """Counts one terminal reply by its kind: completed, denied or failed."""
        setattr(self, kind, getattr(self, kind) + 1)
