"""How our clients reach Redis, alone, behind Sentinels or as a cluster, and what they may raise when it is away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline, PubSub
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from contracts.calls import check_name
from contracts.topology import (
    ClusterNodes,
    FollowingConnection,
    FollowingTlsConnection,
    Locate,
    Sentinels,
    Topology,
    read_topology,
)

UNREACHABLE = (RedisError, OSError)
"""Redis is away or unwilling; the same call may work later."""

# redis-py takes the word off where it has a class for it.
_PASSING = (ReadOnlyError, OutOfMemoryError, NoScriptError)
_PASSING_WORDS = {"BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS"}

_DEFAULTS: dict[str, Any] = {
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    # Naming the library costs two commands a connection, and a user without +client would be refused.
    "lib_name": None,
    "lib_version": None,
}

_TAG = re.compile(r"(?:arq|reef):[^{]*\{([^}]+)\}")


def connect(url: str, *, queue: str | None = None, **options: Any) -> Redis:
    """A client with a connection pool for the Redis at `url`; `options` are those of redis.asyncio.Redis.from_url.

    Beside redis://, rediss:// and unix:// the URL may name Sentinels or a cluster (`contracts.topology`). By TLS the
    certificate and the host's name in it are checked unless the URL says otherwise. On a cluster, `queue` says whose
    server gets the commands that have no key.

    Raises:
        ValueError: the URL can't be read. The message never quotes it: it may hold a password.
    """
    topology = read_topology(url)
    if topology is not None:
        return _connect_following(topology, queue, _DEFAULTS | options)
    defaults = dict(_DEFAULTS)
    if url.startswith("unix://"):
        # redis-py's Unix socket connections have no such option, and refuse it.
        del defaults["socket_keepalive"]
    if url.startswith("rediss://"):
        defaults["ssl_check_hostname"] = True
    try:
        redis: Redis = Redis.from_url(url, **(defaults | options))
    except ValueError as error:
        scheme = url.partition("://")[0] if "://" in url[:32] else "?"
        known = "redis, rediss, unix, redis+sentinel or redis+cluster"
        if scheme not in ("redis", "rediss", "unix"):
            raise ValueError(f"the Redis URL's scheme must be {known}") from None
        kept = str(error) if str(error).startswith("Invalid value for '") else "a part of it is malformed"
        raise ValueError(f"the {scheme} URL can't be read: {kept}") from None
    # Whatever the URL says: what we read is bytes.
    redis.connection_pool.connection_kwargs["decode_responses"] = False
    return redis


def _connect_following(topology: Topology, queue: str | None, options: dict[str, Any]) -> Redis:
    tls = {"ssl_check_hostname": True} if topology.tls else {}
    whole = {**tls, **topology.options, **options}
    kind = FollowingTlsConnection if topology.tls else FollowingConnection

    def pool(locate: Locate) -> ConnectionPool:
        return ConnectionPool(connection_class=kind, locate=locate, **whole)

    if topology.kind == "sentinel":
        return Redis.from_pool(pool(Sentinels(topology, whole).primary))
    return ClusterRedis(ClusterNodes(topology, whole), pool, queue)


def is_passing(error: ResponseError) -> bool:
    """Whether Redis will take the same command later: read-only after a failover, busy, short of memory or replicas."""
    return isinstance(error, _PASSING) or str(error).split(" ", 1)[0] in _PASSING_WORDS


class ClusterRedis(Redis):
    """A cluster, as far as we use one: each command goes to the server of the queue that its keys name.

    All keys of a queue lie in one slot, so each queue has a pool of plain connections to that slot's primary.
    """

    def __init__(self, nodes: ClusterNodes, pool: Any, queue: str | None) -> None:
        self._cluster_nodes = nodes
        self._make_pool = pool
        self._by_tag: dict[str | None, Redis] = {}
        self.home = queue
        super().__init__(connection_pool=self.at(queue).connection_pool)

    def at(self, tag: str | None) -> Redis:
        """A client of the server of a hash tag; of any server for None."""
        tag = tag or self.home
        if tag not in self._by_tag:
            nodes = self._cluster_nodes

            async def locate() -> tuple[str, int]:
                return await (nodes.anybody() if tag is None else nodes.primary(tag))

            self._by_tag[tag] = Redis.from_pool(self._make_pool(locate))
        return self._by_tag[tag]

    def each(self) -> list[Redis]:
        """The clients of all servers used so far."""
        return list(self._by_tag.values())

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Sends a command where its first key belongs."""
        return await self.at(tag_of(args)).execute_command(*args, **options)  # type: ignore[no-untyped-call]

    async def script_load(self, script: Any) -> Any:
        """Loads a script on the server of every queue seen so far."""
        sha = None
        for each in list(self._by_tag.values()):
            sha = await each.script_load(script)
        return sha

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """A pipeline whose commands are sent to the servers of their queues."""
        return _ClusterPipeline(self, transaction, shard_hint)

    def pubsub(self, **options: Any) -> PubSub:
        """Any server does: a cluster hands published messages on to all."""
        return self.at(None).pubsub(**options)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Closes the connections to all servers."""
        for each in self._by_tag.values():
            await each.aclose(close_connection_pool)


class _ClusterPipeline(Pipeline):
    def __init__(self, owner: ClusterRedis, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(owner.connection_pool, owner.response_callbacks, transaction, shard_hint)
        self._owner = owner

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, self.command_stack = self.command_stack, []
        places: dict[str | None, list[int]] = {}
        for place, (words, _) in enumerate(stack):
            places.setdefault(tag_of(words) or self._owner.home, []).append(place)
        if self.is_transaction and len(places) > 1:
            raise ValueError("a transaction's keys must belong to one queue")
        answers: list[Any] = [None] * len(stack)
        for tag, own in places.items():
            async with self._owner.at(tag).pipeline(transaction=self.is_transaction) as part:
                part.command_stack = [stack[place] for place in own]
                for place, answer in zip(own, await part.execute(raise_on_error), strict=True):
                    answers[place] = answer
        return answers


def tag_of(words: Sequence[Any]) -> str | None:
    """The queue that a command's first key belongs to; None where it has no key of ours."""
    for word in words[1:]:
        text = word.decode(errors="replace") if isinstance(word, bytes) else word
        if isinstance(text, str) and (found := _TAG.match(text)):
            return found[1]
    return None


async def connect_each(url: str, **options: Any) -> list[Redis]:
    """A client of every single server behind the URL: primaries and replicas.

    Raises:
        ValueError: the URL can't be read.
        redis.RedisError, OSError: nobody knows the servers just now.
    """
    topology = read_topology(url)
    if topology is None:
        return [connect(url, **options)]
    tls = {"ssl_check_hostname": True} if topology.tls else {}
    whole = {**tls, **topology.options, **_DEFAULTS, **options}
    asked = Sentinels(topology, whole) if topology.kind == "sentinel" else ClusterNodes(topology, whole)
    kind = SSLConnection if topology.tls else Connection
    return [
        Redis.from_pool(ConnectionPool(connection_class=kind, host=host, port=port, **whole))
        for host, port in await asked.servers()
    ]


def clock_ms(answer: Sequence[Any]) -> int:
    """What TIME answered, as Unix time in ms."""
    seconds, micros = answer
    return int(seconds) * 1000 + int(micros) // 1000


class QueueConnection:
    """One queue over one Redis, closed by `close` or at the end of `async with`."""

    def __init__(self, redis: Redis, *, queue: str = "default") -> None:
        self._redis: Any = redis
        self._queue = check_name("queue", queue)

    @classmethod
    def connect(cls, url: str, *, queue: str = "default", **options: Any) -> Self:
        """For the queue of the Redis at `url`. Connects on first use."""
        return cls(connect(url, queue=queue, **options), queue=queue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._redis.aclose()

    async def now_ms(self) -> int:
        """Redis' clock, Unix time in ms."""
        return clock_ms(await self._redis.time())
