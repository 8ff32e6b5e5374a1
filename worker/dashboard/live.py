"""Views that are read once for all who look: by a request, by a stream of events, or by fifty of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from contracts.codec import encode
from contracts.connection import UNREACHABLE
from contracts.tasks import end_all
from worker.dashboard.records import Answer

Params = Mapping[str, str]
MAX_TOPICS = 500
IDLE_S = 10.0
RETRY_S = (0.5, 1.0, 2.0)


class View(Struct, frozen=True):
    """What can be looked at. `read` gets the link's parameters; an answer serves everybody for `fresh_s`."""

    name: str
    read: Callable[[Params], Awaitable[Answer]]
    params: tuple[str, ...] = ()
    fresh_s: float = 1.0


class TooMany(Exception):
    """More different things are looked at than this process keeps apart."""


@dataclass(slots=True)
class Event:
    """The latest that is known of a view. `number` grows with every change of it."""

    number: int = 0
    body: bytes = b""
    fault: str = ""


@dataclass(slots=True, eq=False)
class Topic:
    """One view with one set of parameters."""

    view: View
    params: Params
    event: Event = field(default_factory=Event)
    read_at: float = float("-inf")
    looked_at: float = field(default_factory=time.monotonic)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    followers: int = 0
    poller: asyncio.Task[None] | None = None
    reading: asyncio.Task[bytes] | None = None


class Live:
    """Keeps one topic for each thing that somebody looks at, and reads nothing for nobody."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, tuple[tuple[str, str], ...]], Topic] = {}

    async def once(self, view: View, params: Params) -> bytes:
        """The view as JSON, at most `fresh_s` old. May raise what the view's `read` raises.

        Raises:
            TooMany: there is no room for another topic.
        """
        return await self._fresh(self._topic(view, params))

    def follow(self, view: View, params: Params) -> Topic:
        """Begins to follow a view: it is read again and again until the last follower has left.

        Raises:
            TooMany: there is no room for another topic.
        """
        topic = self._topic(view, params)
        topic.followers += 1
        if topic.poller is None:
            if time.monotonic() - topic.read_at > 2 * view.fresh_s:
                topic.event = Event()  # nobody shall begin with what was true when the last one left
            topic.poller = asyncio.create_task(self._poll(topic))
        return topic

    async def leave(self, topic: Topic) -> None:
        """Ends what `follow` began."""
        topic.followers -= 1
        topic.looked_at = time.monotonic()
        if topic.followers == 0 and topic.poller is not None:
            topic.poller.cancel()
            topic.poller = None

    async def next(self, topic: Topic, after: int) -> Event:
        """The latest event, once there is one later than number `after`."""
        async with topic.changed:
            await topic.changed.wait_for(lambda: topic.event.number > after)
            return topic.event

    async def close(self) -> None:
        """Stops reading."""
        tasks = [task for topic in self._topics.values() for task in (topic.poller, topic.reading) if task is not None]
        await end_all(tasks)

    def _topic(self, view: View, params: Params) -> Topic:
        chosen = {name: params[name] for name in view.params if params.get(name)}
        key = (view.name, tuple(sorted(chosen.items())))
        if key not in self._topics:
            self._forget_idle()
            if len(self._topics) >= MAX_TOPICS:
                raise TooMany("too many different pages are open")
            self._topics[key] = Topic(view, chosen)
        self._topics[key].looked_at = time.monotonic()
        return self._topics[key]

    def _forget_idle(self) -> None:
        now = time.monotonic()
        for key, topic in list(self._topics.items()):
            if topic.followers == 0 and topic.reading is None and now - topic.looked_at > IDLE_S:
                del self._topics[key]

    async def _fresh(self, topic: Topic) -> bytes:
        if topic.event.body and not topic.event.fault and time.monotonic() - topic.read_at < topic.view.fresh_s:
            return topic.event.body
        if topic.reading is None:
            topic.reading = asyncio.create_task(self._read(topic))
            topic.reading.add_done_callback(lambda task: self._ended(topic, task))
        # Shielded: one impatient asker must not take the answer from the others.
        return await asyncio.shield(topic.reading)

    async def _read(self, topic: Topic) -> bytes:
        body = encode(await topic.view.read(topic.params))
        topic.read_at = time.monotonic()
        await self._announce(topic, Event(topic.event.number + 1, body))
        return body

    @staticmethod
    def _ended(topic: Topic, task: asyncio.Task[bytes]) -> None:
        topic.reading = None
        if not task.cancelled():
            task.exception()  # whoever asked has it; looked at here in case nobody asks any more

    async def _poll(self, topic: Topic) -> None:
        failures = 0
        while True:
            delay_s = topic.view.fresh_s
            try:
                await self._fresh(topic)
                failures = 0
            except LookupError as error:
                await self._announce(topic, Event(topic.event.number + 1, fault=f"unknown {error.args[0]}"))
            except UNREACHABLE as error:
                await self._announce(topic, Event(topic.event.number + 1, fault=f"lost {error}"))
                delay_s = RETRY_S[min(failures, len(RETRY_S) - 1)]
                failures += 1
            await asyncio.sleep(delay_s)

    @staticmethod
    async def _announce(topic: Topic, event: Event) -> None:
        async with topic.changed:
            topic.event = event
            topic.changed.notify_all()
