"""A view as server-sent events. Ends when the reader leaves or the server stops."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from contracts.codec import encode
from worker.dashboard.live import Event, Live, Topic

KEEP_ALIVE_S = 15.0


class EventStream:
    """An ASGI answer: an event `view` with the view's JSON each time it is read; `lost` while Redis is away; `unknown`
    where there is no such thing. A slow reader misses events in between, never the latest."""

    def __init__(self, live: Live, topic: Topic, stopping: asyncio.Event) -> None:
        self._live, self._topic, self._stopping = live, topic, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams. The topic is followed already, and left at the end."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        ends = [asyncio.create_task(_gone(receive)), asyncio.create_task(self._stopping.wait())]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._pass_on(send, ends)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # the reader has gone in the middle of an event
        finally:
            for end in ends:
                end.cancel()
            await self._live.leave(self._topic)

    async def _pass_on(self, send: Send, ends: list[asyncio.Task[Any]]) -> None:
        seen = 0
        coming = asyncio.create_task(self._live.next(self._topic, seen))
        try:
            while True:
                done, _ = await asyncio.wait([*ends, coming], timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
                if done.intersection(ends):
                    return
                if coming in done:
                    event = coming.result()
                    seen = event.number
                    await send({"type": "http.response.body", "body": _text(event), "more_body": True})
                    coming = asyncio.create_task(self._live.next(self._topic, seen))
                else:
                    await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
        finally:
            coming.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _text(event: Event) -> bytes:
    if not event.fault:
        return b"event: view\ndata: " + event.body + b"\n\n"
    name, _, message = event.fault.partition(" ")
    return b"event: " + name.encode() + b"\ndata: " + encode({"message": message[:500]}) + b"\n\n"
