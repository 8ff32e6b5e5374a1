"""The bells of a worker's queues: what it sleeps on while there is nothing to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from contracts import keys, wire
from contracts.connection import ClusterRedis
from contracts.tasks import end_all

QUIET_S = 15.0
"""How long a subscription may be silent before it is asked whether it still stands."""


class Bell:
    """Waits for the first bell of several queues. Methods may raise redis.RedisError or OSError.

    One server hears them all with one command. On a cluster each queue's bell hangs at a server of its own.
    """

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._apart = isinstance(redis, ClusterRedis)
        self._pops: dict[str, asyncio.Task[bool]] = {}
        self._listening = False

    async def listen(self, queues: Sequence[str], timeout_s: float) -> str | None:
        """The queue whose bell rang; None when the time is over first."""
        if self._apart and len(queues) > 1:
            return await self._listen_apart(queues, timeout_s)
        names = [keys.bell(queue) for queue in queues]
        # Nothing else goes over this client's shared connection, so nothing waits behind the pop.
        rung = await wire.execute(self._redis, "BLPOP", *names, timeout_s)
        return None if rung is None else queues[names.index(rung[0].decode())]

    async def listen_then(
        self, names: Sequence[str], timeout_s: float, words: Sequence[Any], then: Callable[[Any], float]
    ) -> Any:
        """The answer to a command that Redis carries out once one of the lists has rung, or the time is over.

        It is on its way already while Redis lets the wait before it block, so no time is lost between the two. `then`
        may be called with the same answer in the moment it comes, and says how many seconds later this returns.
        """
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[list[Any]] = loop.create_future()

        def tell(answers: list[Any]) -> None:
            pause_s = 0.0
            try:
                if not isinstance(answers[1], BaseException):
                    pause_s = then(answers[1])
            finally:
                if pause_s:
                    loop.call_later(pause_s, give, answers)
                else:
                    give(answers)

        def give(answers: list[Any]) -> None:
            if not heard.done():
                heard.set_result(answers)

        commands = (("BLPOP", *names, timeout_s), words)
        sent = await wire.send(self._redis, commands, tell)
        try:
            answers = await heard
        finally:
            # Who no longer listens must not be told.
            sent.cancel()
        rung, answer = await wire.resend_moved(self._redis, commands, answers)
        for each in (rung, answer):
            if isinstance(each, BaseException):
                raise each
        return answer

    async def _listen_apart(self, queues: Sequence[str], timeout_s: float) -> str | None:
        """One pop a queue. Those that have not ended wait on for the next time: a cut-off pop may take a ring along."""
        for queue in queues:
            if queue not in self._pops:
                self._pops[queue] = asyncio.create_task(self._pop(queue, timeout_s))
        self._listening = True
        try:
            done, _ = await asyncio.wait(self._pops.values(), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._listening = False
        ended = [queue for queue, pop in self._pops.items() if pop in done]
        pops = [self._pops.pop(queue) for queue in ended]
        rung = [queue for queue, pop in zip(ended, pops, strict=True) if not pop.exception() and pop.result()]
        if len(rung) > 1:
            for queue in rung[1:]:
                await self._redis.execute_command("LPUSH", keys.bell(queue), 1)
        if rung:
            return rung[0]
        for pop in pops:
            pop.result()
        return None

    async def _pop(self, queue: str, timeout_s: float) -> bool:
        rung = await self._redis.execute_command("BLPOP", keys.bell(queue), timeout_s) is not None
        if rung and not self._listening:
            # Nobody waits here just now: somebody else may have room.
            await self._redis.execute_command("LPUSH", keys.bell(queue), 1)
            return False
        return rung

    async def cancels(self, channels: Sequence[str]) -> AsyncIterator[tuple[str, str, str]]:
        """Yields (channel, session, call) for each wish to cancel that is made while this is read."""
        async with self._redis.pubsub() as listener:
            await listener.subscribe(*channels)
            asked = False
            while True:
                # With a time-out of its own: the socket's would take every quiet moment for a lost connection.
                message = await listener.get_message(timeout=QUIET_S)
                if message is None and asked:
                    raise ConnectionError("the subscription has gone silent")
                if asked := message is None:
                    await listener.ping()
                if message is None or message["type"] != "message":
                    continue
                session, _, call = message["data"].decode(errors="replace").partition(":")
                yield message["channel"].decode(), session, call

    async def close(self) -> None:
        """Stops waiting and closes the connections."""
        await end_all(self._pops.values())
        wire.close(self._redis)
        await self._redis.aclose()
