"""One connection that many callers share without waiting for each other: commands go out, answers come in order.

redis-py makes the connection (TLS, passwords, Sentinels, sockets); from then on hiredis packs and reads, which costs a
tenth of redis-py's own way. Not for commands that block.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import hiredis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from contracts.connection import ClusterRedis, tag_of
from contracts.tasks import until
from contracts.topology import FollowingConnection, ServerMoved, is_moved

DEFAULT_TIMEOUT_S = 5.0
MOVED_DELAY_S = 0.02
Command = Sequence[Any]
Then = Callable[[list[Any]], None]


async def execute(redis: Redis, *words: Any) -> Any:
    """The answer to one command.

    Raises:
        redis.RedisError, OSError: Redis refused it, or is out of reach; whether it was carried out is then unknown.
    """
    (answer,) = await execute_all(redis, [words])
    if isinstance(answer, BaseException):
        raise answer
    return answer


def begin(redis: Redis, words: Command, then: Callable[[], None] | None = None) -> Coroutine[Any, Any, Any]:
    """Sends a command before this returns, if the connection stands: Redis works on it while the caller goes on.

    What comes back must be awaited; it gives the answer and raises like `execute`. `then` is called when that is worth
    it: once the answer is there, or at once where the connection is still to be made.
    """
    pump = _standing(_target_of(redis, words))
    if pump is None:
        if then is not None:
            then()
        return _answer(redis, words, None)
    return _answer(redis, words, pump.send([words], at_once=True, then=None if then is None else lambda _: then()))


async def _answer(redis: Redis, words: Command, sent: asyncio.Future[list[Any]] | None) -> Any:
    if sent is None:
        return await execute(redis, *words)
    (answer,) = await sent
    if isinstance(answer, ServerMoved):
        await asyncio.sleep(MOVED_DELAY_S)
        return await execute(redis, *words)
    if isinstance(answer, BaseException):
        raise answer
    return answer


async def execute_all(redis: Redis, commands: Sequence[Command]) -> list[Any]:
    """The answers to commands sent in one go, in order. Refusals, and what a loss cut off, come back as values.

    What a server refused because it serves these keys no longer is sent once more, to the one that does.

    Raises:
        redis.RedisError, OSError: a server can't be reached, so that none of its commands was sent.
    """
    pump = _standing(redis)
    answers = await (pump.send(commands) if pump is not None else _send(redis, commands))
    return await resend_moved(redis, commands, answers)


async def send(
    redis: Redis, commands: Sequence[Command], then: Then, ends: float | None = None
) -> asyncio.Future[list[Any]]:
    """Sends commands on keys of one server in one go; the answers come with what this returns, for `resend_moved`.

    `then` is called with them in the moment they come, one turn of the loop before who awaits them. Refusals, and what
    a loss cut off, are values. Nothing is sent once `ends` has come, a time of the loop.

    Raises:
        redis.RedisError, OSError: the server can't be reached, so that nothing was sent.
        TimeoutError: not until then.
    """
    target = _target_of(redis, commands[0])
    pump = _standing(target)
    return (pump if pump is not None else await until(ends, _pump_of(target))).send(commands, then=then)


async def resend_moved(redis: Redis, commands: Sequence[Command], answers: list[Any]) -> list[Any]:
    """The answers, where some commands are sent anew to the server that now has their keys.

    Raises:
        redis.RedisError, OSError: it can't be reached, so that none of these was sent.
    """
    moved = [place for place, answer in enumerate(answers) if isinstance(answer, ServerMoved)]
    if moved:
        await asyncio.sleep(MOVED_DELAY_S)
        for place, answer in zip(moved, await _send(redis, [commands[place] for place in moved]), strict=True):
            answers[place] = answer
    return answers


def _standing(redis: Redis) -> _Pump | None:
    # What a server's commands go over, if it is there already. A cluster as a whole has none.
    wire = _WIRES.get(redis)
    return wire.pump if wire is not None and wire.pump is not None and not wire.pump.closed else None


def server_of(redis: Redis, key: str) -> Redis:
    """The client of the server that has the key: on a cluster the queue's, else the one there is."""
    return _target_of(redis, ("", key))


async def _send(redis: Redis, commands: Sequence[Command]) -> list[Any]:
    if type(redis) is not ClusterRedis:
        return await (await _pump_of(redis)).send(commands)
    places: dict[Redis, list[int]] = {}
    for place, command in enumerate(commands):
        places.setdefault(_target_of(redis, command), []).append(place)
    sent = [(own, (await _pump_of(each)).send([commands[place] for place in own])) for each, own in places.items()]
    answers: list[Any] = [None] * len(commands)
    for own, future in sent:
        for place, answer in zip(own, await future, strict=True):
            answers[place] = answer
    return answers


def _target_of(redis: Redis, command: Command) -> Redis:
    # Not isinstance: redis-py's classes are protocols, which look through all of their attributes for that.
    return redis.at(tag_of(command)) if type(redis) is ClusterRedis else redis


async def _pump_of(redis: Redis) -> _Pump:
    wire = _WIRES.get(redis)
    if wire is None:
        wire = _WIRES[redis] = Wire(redis)
    return await wire.connected()


def close(redis: Redis) -> None:
    """Ends the shared connections of a client."""
    for each in [redis, *(redis.each() if isinstance(redis, ClusterRedis) else ())]:
        wire = _WIRES.pop(each, None)
        if wire is not None:
            wire.close()


class Wire:
    """One connection. Connects on first use, and anew after a loss; `timeout_s` is for each answer."""

    def __init__(self, redis: Redis, timeout_s: float | None = None) -> None:
        self._pool: Any = redis.connection_pool
        self._timeout_s = timeout_s or self._pool.connection_kwargs.get("socket_timeout") or DEFAULT_TIMEOUT_S
        self._connecting = asyncio.Lock()
        self.pump: _Pump | None = None

    async def connected(self) -> _Pump:
        """What commands are sent over. May raise redis.RedisError or OSError."""
        if self.pump is not None and not self.pump.closed:
            return self.pump
        async with self._connecting:
            if self.pump is None or self.pump.closed:
                connection: Any = self._pool.make_connection()
                try:
                    await connection.connect()
                except BaseException:
                    # redis-py forgets the socket of one that is cancelled while it logs in.
                    await connection.disconnect(nowait=True)
                    raise
                self.pump = _Pump(connection, self._timeout_s)
            return self.pump

    def close(self) -> None:
        """Ends the connection, and every command that waits for its answer."""
        if self.pump is not None:
            self.pump.end(RedisConnectionError("closed"))


class _Sent:
    """Commands that went out together, and the answers so far."""

    __slots__ = ("answers", "at", "count", "future", "then")

    def __init__(self, count: int, at: float, future: asyncio.Future[list[Any]], then: Then | None) -> None:
        self.answers: list[Any] = []
        self.count = count
        self.at = at
        self.future = future
        self.then = then

    def tell(self) -> None:
        """Hands the answers over, if anybody waits for them still."""
        if self.future.done():
            return
        try:
            if self.then is not None:
                self.then(self.answers)
        finally:
            self.future.set_result(self.answers)

    def end(self, error: Exception) -> None:
        """Hands over what there is; the rest is the error."""
        self.answers += [error] * (self.count - len(self.answers))
        self.tell()


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
        self._waiting: deque[_Sent] = deque()
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._transport.set_protocol(self)

    def send(
        self, commands: Sequence[Command], *, at_once: bool = False, then: Then | None = None
    ) -> asyncio.Future[list[Any]]:
        """The answers to come, errors as values. Never raises: a connection that has ended answers with its end.

        Without `at_once` uvloop holds them back until all that is ready now has run, to write once for many. `then` is
        called with the answers the moment they are there, one turn of the loop before who awaits them.
        """
        sent = _Sent(len(commands), self._loop.time(), self._loop.create_future(), then)
        if self.closed:
            sent.end(RedisConnectionError("the connection was lost"))
            return sent.future
        self._waiting.append(sent)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._look)
        if at_once:
            self._transport.set_write_buffer_limits(high=0)
        self._transport.write(b"".join([hiredis.pack_command(tuple(words)) for words in commands]))
        if at_once:
            self._transport.set_write_buffer_limits()
        return sent.future

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
        if self._follows and isinstance(answer, ResponseError) and is_moved(answer):
            self.end(ServerMoved(f"this server serves this no longer: {answer}"))
            return
        sent = self._waiting[0]
        sent.answers.append(answer)
        if len(sent.answers) == sent.count:
            self._waiting.popleft()
            sent.tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server or the network ended it."""
        self.end(RedisConnectionError(f"the connection was lost: {exc or 'closed by the server'}"))

    def end(self, error: Exception) -> None:
        """Closes it, and answers all that waits with the error."""
        self.closed = True
        self._transport.abort()
        # redis-py takes a connection that still has these for one that was forgotten.
        self._connection._reader = self._connection._writer = None
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._waiting.popleft().end(error)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        left_s = self._waiting[0].at + self._timeout_s - self._loop.time()
        if left_s <= 0:
            self.end(RedisTimeoutError("no answer in time"))
        else:
            self._timer = self._loop.call_later(left_s, self._look)


_WIRES: WeakKeyDictionary[Redis, Wire] = WeakKeyDictionary()
