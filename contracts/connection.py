"""How our clients reach Redis, and what they may raise when it is away."""

from __future__ import annotations

from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from contracts.calls import check_name

UNREACHABLE = (RedisError, OSError)
"""Redis is away or unwilling; the same call may work later."""

_DEFAULTS: dict[str, Any] = {
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    # Naming the library costs two commands a connection, and a user without +client would be refused.
    "lib_name": None,
    "lib_version": None,
}


def connect(url: str, **options: Any) -> Redis:
    """A connection pool for the Redis at `url`; `options` are those of redis.asyncio.Redis.from_url.

    Raises:
        ValueError: the URL has no scheme that redis knows.
    """
    # redis-py's Unix socket connections have no such option, and refuse it.
    defaults = {name: value for name, value in _DEFAULTS.items() if name != "socket_keepalive" or "unix://" not in url}
    redis: Redis = Redis.from_url(url, **(defaults | options))
    return redis


class QueueConnection:
    """One queue over one Redis, closed by `close` or at the end of `async with`."""

    def __init__(self, redis: Redis, *, queue: str = "default") -> None:
        self._redis: Any = redis
        self._queue = check_name("queue", queue)

    @classmethod
    def connect(cls, url: str, *, queue: str = "default", **options: Any) -> Self:
        """For the queue of the Redis at `url`. Connects on first use."""
        return cls(connect(url, **options), queue=queue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._redis.aclose()

    async def now_ms(self) -> int:
        """Redis' clock, Unix time in ms."""
        seconds, micros = await self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000
