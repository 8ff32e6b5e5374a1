"""Commands go out over one connection, answers come in order: a protocol in the place of redis-py's own.

redis-py makes the connection (TLS, passwords, Sentinels, sockets); from then on hiredis packs and reads, which costs a
tenth of redis-py's own way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from contracts.topology import FollowingConnection, ServerMoved, is_moved

Command = Sequence[Any]
Then = Callable[[list[Any]], None]


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


class Pump(asyncio.Protocol):
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
        """The answers to come, errors as values: a connection that has ended answers with its end.

        Without `at_once` uvloop holds them back until all that is ready now has run, to write once for many. `then` is
        called with the answers the moment they are there, one turn of the loop before who awaits them.

        Raises:
            ValueError: a word can't be sent, such as a lone surrogate.
        """
        sent = _Sent(len(commands), self._loop.time(), self._loop.create_future(), then)
        # What can't be packed raises before anything waits for an answer that never comes.
        packed = b"".join([hiredis.pack_command(tuple(words)) for words in commands])
        if self.closed:
            sent.end(RedisConnectionError("the connection was lost"))
            return sent.future
        self._waiting.append(sent)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._look)
        if at_once:
            self._transport.set_write_buffer_limits(high=0)
        self._transport.write(packed)
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
