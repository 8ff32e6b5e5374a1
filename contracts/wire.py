"""One connection to a server that many callers share without waiting for each other. Not for commands that block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from contracts.connection import ClusterRedis, tag_of
from contracts.pump import Command, Pump, Then
from contracts.tasks import until
from contracts.topology import ServerMoved

DEFAULT_TIMEOUT_S = 5.0
LOGIN_TIMEOUT_S = 10.0
MOVED_DELAY_S = 0.02
CLOSED = "the client was closed"


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


def _standing(redis: Redis) -> Pump | None:
    # What a server's commands go over, if it is there already. A cluster as a whole has none.
    wire = _WIRES.get(redis)
    return wire.pump if wire is not None and wire.pump is not None and not wire.pump.closed else None


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


async def _pump_of(redis: Redis) -> Pump:
    return await _wire_of(redis).connected()


def _wire_of(redis: Redis) -> Wire:
    wire = _WIRES.get(redis)
    if wire is None:
        wire = _WIRES[redis] = Wire(redis)
    return wire


def another(redis: Redis, key: str, timeout_s: float) -> Wire:
    """One more connection to the server that has the key, for commands that block so long at most."""
    target = _target_of(redis, ("", key))
    wire, made = _wire_of(target), Wire(target, timeout_s + DEFAULT_TIMEOUT_S)
    made.closed = wire.closed
    wire.others.add(made)
    return made


def shared(redis: Redis, key: str) -> Wire:
    """The connection that all commands share to the server that has the key."""
    return _wire_of(_target_of(redis, ("", key)))


def close(redis: Redis) -> None:
    """Ends the connections of a client, for good: who still sends is told so."""
    for each in [redis, *(redis.each() if isinstance(redis, ClusterRedis) else ())]:
        _wire_of(each).close()


class Wire:
    """One connection. Connects on first use, and anew after a loss, until it is closed.

    `timeout_s` is for each answer.
    """

    def __init__(self, redis: Redis, timeout_s: float | None = None) -> None:
        self._pool: Any = redis.connection_pool
        self._timeout_s = timeout_s or self._pool.connection_kwargs.get("socket_timeout") or DEFAULT_TIMEOUT_S
        self._attempt: asyncio.Task[Pump] | None = None
        self.pump: Pump | None = None
        self.closed = False
        self.others: WeakSet[Wire] = WeakSet()

    async def connected(self) -> Pump:
        """What commands are sent over. May raise redis.RedisError or OSError."""
        if self.pump is not None and not self.pump.closed:
            return self.pump
        if self.closed:
            raise RedisConnectionError(CLOSED)
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._connect())
            self._attempt.add_done_callback(self._attempted)
        # One attempt for all who wait, and its failure is everybody's: else each would wait out its own time in turn.
        attempt = self._attempt
        await asyncio.wait({attempt})
        if attempt.cancelled():
            raise RedisConnectionError(CLOSED)
        return attempt.result()

    async def _connect(self) -> Pump:
        connection: Any = self._pool.make_connection()
        try:
            # redis-py bounds the socket's connecting alone, not the login.
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                await connection.connect()
        except BaseException as error:
            # redis-py forgets the socket of one that is cancelled while it logs in.
            await connection.disconnect(nowait=True)
            if isinstance(error, TimeoutError):
                raise RedisTimeoutError("no connection in time") from error
            raise
        return Pump(connection, self._timeout_s)

    def _attempted(self, attempt: asyncio.Task[Pump]) -> None:
        self._attempt = None
        # Asked for its exception in any case: nobody may wait for it any more.
        if not attempt.cancelled() and attempt.exception() is None:
            self.pump = attempt.result()
            if self.closed:
                self.cut()

    def cut(self) -> None:
        """Ends the connection, and every command that waits for its answer. The next use connects anew."""
        if self.pump is not None:
            self.pump.end(RedisConnectionError(CLOSED))

    def close(self) -> None:
        """Cuts it for good, and those that were made beside it."""
        self.closed = True
        self.cut()
        if self._attempt is not None:
            self._attempt.cancel()
        for each in self.others:
            each.close()


_WIRES: WeakKeyDictionary[Redis, Wire] = WeakKeyDictionary()
