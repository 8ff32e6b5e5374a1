"""Endings on their way to Redis: kept until it has taken them, whatever becomes of the connection meanwhile."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from redis.exceptions import ResponseError

from contracts.connection import is_passing
from worker.broker import UNREACHABLE, Broker
from worker.claims import Ending, without
from worker.metrics import Metrics

log = logging.getLogger("toolreef")

Publishing = Coroutine[Any, Any, int]


class Publisher:
    """All that this worker's calls ended with and Redis has not taken yet. True while there is any."""

    def __init__(self, broker: Broker, metrics: Metrics) -> None:
        self._broker, self._metrics = broker, metrics
        self._endings: list[Ending] = []
        self._ahead: dict[str, Publishing] = {}

    def __bool__(self) -> bool:
        return bool(self._endings)

    def add(self, ending: Ending) -> None:
        """Keeps it for the queue's next `begin`."""
        self._endings.append(ending)

    def waits(self, queue: str) -> bool:
        """Whether the queue has any."""
        return any(ending.queue == queue for ending in self._endings)

    def send_ahead(self, queue: str, then: Callable[[], None]) -> None:
        """Sends what there is of a queue before its turn. `then` is called when that should come, to `begin`."""
        if queue in self._ahead or (publishing := self._send(queue, then)) is None:
            then()
        else:
            self._ahead[queue] = publishing

    def begin(self, queue: str) -> Publishing | None:
        """Sends what there is of a queue, from now on. What comes back must be awaited; None where there is nothing.

        That gives how many calls were granted. It may raise redis.RedisError or OSError: what Redis did not take stays.
        """
        return self._ahead.pop(queue, None) or self._send(queue)

    def _send(self, queue: str, then: Callable[[], None] | None = None) -> Publishing | None:
        batch = [ending for ending in self._endings if ending.queue == queue]
        return self._published(queue, batch, self._broker.finish(queue, batch, then)) if batch else None

    async def _published(
        self, queue: str, batch: list[Ending], sent: Coroutine[Any, Any, tuple[int, list[str]]]
    ) -> int:
        try:
            granted, words = await sent
        except ResponseError as error:
            granted, words = await self._publish_singly(queue, batch, error)
        self._endings = without(self._endings, batch)
        self._metrics.stale += words.count("stale")
        return granted

    async def _publish_singly(self, queue: str, batch: list[Ending], error: ResponseError) -> tuple[int, list[str]]:
        """One ending that Redis refuses must not hold up its neighbours; it goes to the dead letters instead."""
        if is_passing(error):
            raise ConnectionError(str(error)) from error
        granted = 0
        words: list[str] = []
        for ending in batch:
            try:
                more, answer = await self._broker.finish(queue, [ending])
                granted, words = granted + more, words + answer
            except ResponseError as refused:
                log.error("reply of %s refused: %s", ending.id, refused)
                self._metrics.undeliverable += 1
                with contextlib.suppress(*UNREACHABLE):
                    await self._broker.bury(queue, ending.id, f"reply refused: {refused}")
        return granted, words
