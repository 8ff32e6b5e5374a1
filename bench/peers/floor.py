"""The floor: a raw request and reply over the same redis-py, without a queue, a job or a file."""

from __future__ import annotations

import redis.asyncio

from bench.peers import read_text, redis_url

_REQUESTS = "bench:requests"
_REPLIES = "bench:replies"


async def _answer() -> None:
    connection = redis.asyncio.Redis.from_url(redis_url())
    last: bytes | str = "0"
    while True:
        entries = await connection.xread({_REQUESTS: last}, block=2000)
        for entry_id, fields in entries[0][1] if entries else []:
            last = entry_id
            await connection.xadd(_REPLIES, {"r": fields[b"r"]}, maxlen=1000)


def serve(concurrency: int) -> None:
    """Echo each request onto the reply stream."""
    import uvloop

    uvloop.run(_answer())


class Side:
    """Appends a request and blocks on the reply stream."""

    async def open(self) -> None:
        self._connection = redis.asyncio.Redis.from_url(redis_url())
        self._last: bytes | str = "0"
        self._text = ""

    async def call(self, client: int, tool: str, path: str) -> str:
        self._text = self._text or read_text(path)
        await self._connection.xadd(_REQUESTS, {"r": self._text}, maxlen=1000)
        entries = await self._connection.xread({_REPLIES: self._last}, block=5000, count=1)
        if not entries:
            raise TimeoutError("no reply within 5 s")
        self._last, fields = entries[0][1][0]
        return str(fields[b"r"].decode())

    async def submit_many(self, tool: str, path: str, jobs: int) -> None:
        raise NotImplementedError

    async def remaining(self) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        await self._connection.aclose()
