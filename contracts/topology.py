"""Which server serves a queue just now: the one of the URL, the primary that Sentinels name, or a cluster slot's."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from redis.asyncio.connection import Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ConstantBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

Address = tuple[str, int]
Locate = Callable[[], Awaitable[Address]]

SENTINEL_PORT, REDIS_PORT = 26379, 6379
ASK_TIMEOUT_S = 1.0
"""For asking who serves: others are asked next, so a silent one must not cost much."""

_MOVED = frozenset({"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED"})
_SCHEME = re.compile(r"(rediss?)\+(sentinel|cluster)://", re.ASCII)


class ServerMoved(RedisConnectionError):
    """The server that answered serves these keys no longer. The command was not carried out."""


class Topology(Struct, frozen=True):
    """Several servers behind one URL. `options` are those of a redis-py connection; they hold the password."""

    kind: str
    nodes: tuple[Address, ...]
    tls: bool
    service: str
    options: dict[str, Any]
    sentinel_options: dict[str, Any]

    def __repr__(self) -> str:
        return f"Topology({self.kind}, {self.nodes}, {self.service!r})"


def read_topology(url: str) -> Topology | None:
    """What `redis+sentinel://` and `redis+cluster://` URLs say; None for a URL of one server.

        redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]?sentinel_username=&sentinel_password=
        redis+cluster://[user:password@]host[:port],host[:port]

    With `rediss+` all of them are reached by TLS. Other query options are redis-py's.

    Raises:
        ValueError: the URL can't be read. The message never quotes it, since it may hold a password.
    """
    found = _SCHEME.match(url)
    if not found:
        return None
    scheme, kind = found[1], found[2]
    try:
        parts = urlsplit(url)
        login, at, hosts = parts.netloc.rpartition("@")
        nodes = tuple(_read_address(host, SENTINEL_PORT if kind == "sentinel" else REDIS_PORT) for host in _list(hosts))
        service, _, db = parts.path.strip("/").partition("/")
        if kind == "cluster":
            service, db = "", service
        options: dict[str, Any] = dict(parse_url(f"{scheme}://{login}{at}host/{db}?{parts.query}"))
    except ValueError:
        raise ValueError(
            f"a {scheme}+{kind} URL can't be read: it names no hosts, or a port that is no number"
        ) from None
    if kind == "sentinel" and not service:
        raise ValueError(f"a {scheme}+sentinel URL names the service after its hosts: .../mymaster")
    if kind == "cluster" and db.strip("0"):
        raise ValueError("a Redis Cluster has database 0 only")
    for name in ("host", "port", "connection_class", "decode_responses"):
        options.pop(name, None)
    own = {"username": options.pop("sentinel_username", None), "password": options.pop("sentinel_password", None)}
    shared = {name: value for name, value in options.items() if name.startswith("ssl_")}
    return Topology(kind, nodes, scheme == "rediss", unquote(service), options, own | shared)


def _list(hosts: str) -> list[str]:
    listed = [host for host in hosts.split(",") if host]
    if not listed:
        raise ValueError("no host")
    return listed


def _read_address(host: str, port: int) -> Address:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, parts.port or port


class FollowingConnection(Connection):
    """A connection that asks anew, each time it is made, whom to connect to.

    An answer that says "not here any more" ends it with `ServerMoved`; the pool's retry then repeats the command once.
    """

    def __init__(self, *, locate: Locate, **options: Any) -> None:
        self._locate = locate
        super().__init__(
            retry=Retry(ConstantBackoff(0.02), 1),
            retry_on_error=[ServerMoved],
            **options,
        )

    async def _connect(self) -> None:
        self.host, self.port = await self._locate()
        await super()._connect()  # type: ignore[no-untyped-call]

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """As redis-py's.

        Raises:
            ServerMoved: the server was demoted, or lost the slot.
        """
        try:
            return await super().read_response(*args, **options)
        except ResponseError as error:
            if not is_moved(error):
                raise
            await self.disconnect()
            raise ServerMoved(f"{self.host}:{self.port} serves this no longer: {error}") from error


class FollowingTlsConnection(FollowingConnection, SSLConnection):
    """The same by TLS."""


def is_moved(error: ResponseError) -> bool:
    """Whether the answer says that another server is to be asked."""
    # redis-py takes the word away where it has an exception for it.
    return isinstance(error, ReadOnlyError) or str(error).split(" ", 1)[0] in _MOVED


class Sentinels:
    """Asks Sentinels for the primary and its replicas. Remembers which of them answered."""

    def __init__(self, topology: Topology, options: dict[str, Any]) -> None:
        self._nodes = list(topology.nodes)
        self._service = topology.service
        self._options = {**_asking(options), **topology.sentinel_options, "ssl": topology.tls}

    async def primary(self) -> Address:
        """The primary's address.

        Raises:
            redis.ConnectionError: no Sentinel answers, or none knows a primary that is up.
        """
        return (await self._ask(lambda finder: finder.discover_master(self._service)))[0]

    async def servers(self) -> list[Address]:
        """The primary and the replicas that are up, the primary first.

        Raises:
            redis.ConnectionError: as above.
        """
        primary = await self.primary()
        return [primary, *await self._ask(lambda finder: finder.discover_slaves(self._service), several=True)]

    async def _ask(self, question: Callable[[Sentinel], Awaitable[Any]], *, several: bool = False) -> list[Address]:
        finder = Sentinel(self._nodes, sentinel_kwargs=self._options)  # type: ignore[no-untyped-call]
        try:
            answer = await question(finder)
            first = finder.sentinels[0].connection_pool.connection_kwargs
            self._nodes.sort(key=lambda node: node != (first["host"], first["port"]))
        finally:
            for each in finder.sentinels:
                await each.aclose()
        return [(host, int(port)) for host, port in (answer if several else [answer])]


class _Shard(Struct, frozen=True):
    first: int
    last: int
    nodes: list[Address]
    """The primary, then its replicas."""


class ClusterNodes:
    """Asks a cluster's nodes who serves a slot. Remembers the nodes it has heard of."""

    def __init__(self, topology: Topology, options: dict[str, Any]) -> None:
        self._nodes = list(topology.nodes)
        self._kind = SSLConnection if topology.tls else Connection
        self._options = _asking(options)

    async def primary(self, tag: str) -> Address:
        """The primary of the hash tag's slot.

        Raises:
            redis.ConnectionError: no node answers, or none serves the slot.
        """
        slot: int = key_slot(tag.encode())
        for shard in await self._shards():
            if shard.first <= slot <= shard.last:
                return shard.nodes[0]
        raise RedisConnectionError(f"no node of the cluster serves slot {slot}")

    async def anybody(self) -> Address:
        """A node that answers, for what has no key."""
        await self._shards()
        return self._nodes[0]

    async def servers(self) -> list[Address]:
        """All nodes that hold slots, and their replicas."""
        return list(dict.fromkeys(node for shard in await self._shards() for node in shard.nodes))

    async def _shards(self) -> list[_Shard]:
        complaint: BaseException | None = None
        for node in list(self._nodes):
            try:
                shards = await self._ask(node)
            except (RedisError, OSError) as error:
                complaint = complaint or error
                continue
            if shards:
                heard = [each for shard in shards for each in shard.nodes]
                self._nodes = list(dict.fromkeys([node, *heard, *self._nodes]))[:64]
                return shards
        raise RedisConnectionError(f"no node of the cluster answers: {complaint or 'none serves a slot'}")

    async def _ask(self, node: Address) -> list[_Shard]:
        connection: Any = self._kind(host=node[0], port=node[1], **self._options)
        try:
            await connection.connect()
            await connection.send_command("CLUSTER", "SLOTS")
            answer = await connection.read_response()
        finally:
            await connection.disconnect()
        return [_Shard(first, last, [_named(each, node[0]) for each in nodes]) for first, last, *nodes in answer]


def _named(node: Sequence[Any], asked: str) -> Address:
    """A node's address. One that does not know its own name is reached by the name it was asked under."""
    host, port = node[:2]
    return (asked if host in (None, b"", b"?") else host.decode()), int(port)


def _asking(options: dict[str, Any]) -> dict[str, Any]:
    """The options for a question: those of the connections, with short time-outs."""
    # Sentinels' answers by RESP3 are more than redis-py 5 can read.
    left_out = ("max_connections", "health_check_interval", "db", "protocol")
    kept = {name: value for name, value in options.items() if name not in left_out}
    return {**kept, "socket_timeout": ASK_TIMEOUT_S, "socket_connect_timeout": ASK_TIMEOUT_S}


__all__: Sequence[str] = [
    "ClusterNodes",
    "FollowingConnection",
    "FollowingTlsConnection",
    "Sentinels",
    "ServerMoved",
    "Topology",
    "is_moved",
    "read_topology",
]
