"""One connection that many callers share without waiting for each other: commands go out, answers come in order.

redis-py makes the connection (TLS, passwords, Sentinels, sockets); from then on hiredis packs and reads, which costs a
tenth of redis-py's own way. Not for commands that block.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import hiredis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from contracts.connection import ClusterRedis, tag_of
from contracts.topology import FollowingConnection, ServerMoved, is_moved

DEFAULT_TIMEOUT_S = 5.0
MOVED_DELAY_S = 0.02
Command = Sequence[Any]


async def execute(redis: Redis, *words: Any) -> Any:
    """The answer to one command.

    Raises:
        redis.RedisError, OSError: Redis refused it, or is out of reach; whether it was carried out is then unknown.
    """
    answer = (await execute_all(redis, [words]))[0]
    if isinstance(answer, BaseException):
        raise answer
    return answer


def begin(redis: Redis, *words: Any) -> Coroutine[Any, Any, Any]:
    """Sends a command before this returns, if the connection stands: Redis works on it while the caller goes on.

    What comes back must be awaited; it gives the answer and raises like `execute`.
    """
    wire = _WIRES.get(_target_of(redis, words))
    sent = wire.pump.send(words, at_once=True) if wire is not None and wire.pump is not None else None
    return _answer(redis, words, sent)


async def _answer(redis: Redis, words: Command, sent: asyncio.Future[Any] | None) -> Any:
    if sent is None:
        return await execute(redis, *words)
    try:
        return await sent
    except ServerMoved:
        await asyncio.sleep(MOVED_DELAY_S)
        return await execute(redis, *words)


async def execute_all(redis: Redis, commands: Sequence[Command]) -> list[Any]:
    """The answers to commands sent in one go, in order. Refusals come back as values.

    What a server refused because it serves these keys no longer is sent once more, to the one that does.

    Raises:
        redis.RedisError, OSError: a server can't be reached, so that none of its commands was sent.
    """
    answers = await _send(redis, commands)
    moved = [place for place, answer in enumerate(answers) if isinstance(answer, ServerMoved)]
    if moved:
        await asyncio.sleep(MOVED_DELAY_S)
        for place, answer in zip(moved, await _send(redis, [commands[place] for place in moved]), strict=True):
            answers[place] = answer
    return answers


async def _send(redis: Redis, commands: Sequence[Command]) -> list[Any]:
    futures: list[asyncio.Future[Any]] = []
    for command in commands:
        target = _target_of(redis, command)
        wire = _WIRES.get(target)
        if wire is None:
            wire = _WIRES[target] = _Wire(target)
        pump = wire.pump if wire.pump is not None and not wire.pump.closed else await wire.connect()
        futures.append(pump.send(command))
    return [await _settled(future) for future in futures]


def _target_of(redis: Redis, command: Command) -> Redis:
    return redis.at(tag_of(command)) if isinstance(redis, ClusterRedis) else redis


def close(redis: Redis) -> None:
    """Ends the shared connections of a client."""
    for each in [redis, *(redis.each() if isinstance(redis, ClusterRedis) else ())]:
        wire = _WIRES.pop(each, None)
        if wire is not None and wire.pump is not None:
            wire.pump.end(RedisConnectionError("closed"))


async def _settled(future: asyncio.Future[Any]) -> Any:
    try:
        return await future
    except (RedisConnectionError, RedisTimeoutError, ResponseError) as error:
        return error


class _Wire:
    """Connects on first use, and anew after a loss."""

    def __init__(self, redis: Redis) -> None:
        self._pool: Any = redis.connection_pool
        self._connecting = asyncio.Lock()
        self.pump: _Pump | None = None

    async def connect(self) -> _Pump:
        async with self._connecting:
            if self.pump is None or self.pump.closed:
                connection: Any = self._pool.make_connection()
                await connection.connect()
                timeout_s = self._pool.connection_kwargs.get("socket_timeout") or DEFAULT_TIMEOUT_S
                self.pump = _Pump(connection, timeout_s)
            return self.pump


class _Pump(asyncio.Protocol):
    """Takes the transport over from a connection of redis-py that has logged in.

    An answer that takes longer than `timeout_s` ends the connection, and with it every command that waits on it.
    """

    def __init__(self, connection: Any, timeout_s: float) -> None:
        self.closed = False
        self._connection = connection  # its writer would close the transport when collected
        self._transport: asyncio.Transport = connection._writer.transport
        parse_error = connection._parser.parse_error
        self._reader = hiredis.Reader(protocolError=RedisConnectionError, replyError=parse_error)
        self._follows = isinstance(connection, FollowingConnection)
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._transport.set_protocol(self)

    def send(self, words: Command, *, at_once: bool = False) -> asyncio.Future[Any]:
        """The answer to come. Never raises: a connection that has just ended answers with its end.

        Without `at_once` uvloop holds it back until all that is ready now has run, to write once for many.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.closed:
            future.set_exception(RedisConnectionError("the connection was lost"))
            return future
        self._waiting.append((self._loop.time(), future))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._look)
        if at_once:
            self._transport.set_write_buffer_limits(high=0)
        self._transport.write(hiredis.pack_command(tuple(words)))
        if at_once:
            self._transport.set_write_buffer_limits()
        return future

    def data_received(self, data: bytes) -> None:
        """Hands answers out, the oldest command's first."""
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                self._hand_out(answer)
        except RedisConnectionError as error:
            self.end(error)

    def _hand_out(self, answer: Any) -> None:
        if not self._waiting:
            self.end(RedisConnectionError("Redis answered what nobody asked"))
            return
        _, future = self._waiting.popleft()
        if self._follows and isinstance(answer, ResponseError) and is_moved(answer):
            moved = ServerMoved(f"this server serves this no longer: {answer}")
            if not future.done():
                future.set_exception(moved)
            self.end(moved)
        elif future.done():
            return  # nobody waits any more
        elif isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server or the network ended it."""
        self.end(RedisConnectionError(f"the connection was lost: {exc or 'closed by the server'}"))

    def end(self, error: Exception) -> None:
        """Closes it, and fails all that waits."""
        self.closed = True
        self._transport.abort()
        # redis-py takes a connection that still has these for one that was forgotten.
        self._connection._reader = self._connection._writer = None
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        left_s = self._waiting[0][0] + self._timeout_s - self._loop.time()
        if left_s <= 0:
            self.end(RedisTimeoutError("no answer in time"))
        else:
            self._timer = self._loop.call_later(left_s, self._look)


_WIRES: WeakKeyDictionary[Redis, _Wire] = WeakKeyDictionary()
