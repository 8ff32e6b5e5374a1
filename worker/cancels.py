"""Wishes to cancel: what runs here is stopped, what waits comes to the front of its queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contracts import keys
from worker.backoff import Backoff
from worker.broker import UNREACHABLE, Broker


class Cancels:
    """Of the calls of some queues. `stop` is told a job id that may run here."""

    def __init__(self, broker: Broker, queues: Sequence[str], stop: Callable[[str], object], backoff: Backoff) -> None:
        self._broker, self._stop, self._backoff = broker, stop, backoff
        self._channels = {keys.cancel_channel(queue): queue for queue in queues}

    async def hear(self) -> None:
        """Listens for ever, also over the loss of Redis."""
        while True:
            try:
                async for channel, session, call in self._broker.cancels(list(self._channels)):
                    queue = self._channels[channel]
                    # Whoever may publish may name any call; the key that Redis lets only its own agent write counts.
                    if await self._broker.bring_forward(queue, session, call) != "unasked":
                        self._stop(keys.job_id(queue, session, call))
            except UNREACHABLE as error:
                await self._backoff.wait(error)
