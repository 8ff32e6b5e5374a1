"""Who waits in this process for the terminal reply of which call, and until when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from contracts.replies import AnyReply, Progress, TerminalReply

OnProgress = Callable[[Progress], None]


class Waiter:
    """One wait for the terminal reply of one call. `future` gives it, None to who is called off, or raises `error`.

    `ends` is the loop's time at which it ends by a TimeoutError, None for never. What comes is held back until
    `confirm` says that it is of this call: an earlier one may have the same id.
    """

    __slots__ = ("_held", "ends", "error", "future", "key", "on_progress", "since")

    def __init__(self, session: str, call: str, on_progress: OnProgress | None, ends: float | None) -> None:
        self.key = (session, call)
        self.on_progress = on_progress
        self.ends = ends
        self.since = time.monotonic()
        self.error: Exception | None = None
        self._held: list[AnyReply] | None = []
        self.future: asyncio.Future[TerminalReply | None] = asyncio.get_running_loop().create_future()

    def confirm(self) -> None:
        """The call is on its way as a new one: all that came and comes of its id is its own."""
        held, self._held = self._held, None
        for reply in held or ():
            self.hand_over(reply)

    def again(self) -> None:
        """Waits on after it was called off, since the call is a new one after all."""
        self.future = asyncio.get_running_loop().create_future()
        if self.error is not None:
            self.end(self.error)
        self.confirm()

    def end(self, error: Exception) -> None:
        """Ends the wait by an error, also for who has not come to wait yet."""
        self.error = error
        if not self.future.done():
            self.future.set_exception(error)
            # Nobody may come: what the call does meanwhile may raise as well.
            self.future.exception()

    def call_off(self) -> None:
        """Wakes who waits without a reply."""
        if not self.future.done():
            self.future.set_result(None)

    def hand_over(self, reply: AnyReply) -> None:
        """The terminal reply ends the wait; progress is told."""
        if self._held is not None:
            self._held.append(reply)
            return
        if not isinstance(reply, Progress):
            if not self.future.done():
                self.future.set_result(reply)
            return
        try:
            if self.on_progress is not None:
                self.on_progress(reply)
        except Exception as error:  # noqa: BLE001 - handed to whose it is
            # It is the caller's own, and must not end what others wait for.
            if not self.future.done():
                self.future.set_exception(error)


class Waiters:
    """All of one client. One timer serves them all: most waits end long before their time is over."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], list[Waiter]] = {}
        self._calls: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed: Exception | None = None

    def __bool__(self) -> bool:
        return bool(self._of)

    def expect(
        self, session: str, call: str, on_progress: OnProgress | None = None, timeout_s: float | None = None
    ) -> Waiter:
        """Announces a wait, before the call is submitted. Ends with `forget`. Raises what they were closed with."""
        if self._closed is not None:
            raise self._closed
        loop = asyncio.get_running_loop()
        waiter = Waiter(session, call, on_progress, None if timeout_s is None else loop.time() + timeout_s)
        others = self._of.get(waiter.key)
        if others is None:
            self._of[waiter.key] = [waiter]
            self._calls[session] = self._calls.get(session, 0) + 1
        else:
            others.append(waiter)
        if waiter.ends is not None and (self._timer is None or waiter.ends < self._timer.when()):
            self._set_timer(loop, waiter.ends)
        return waiter

    def forget(self, waiter: Waiter) -> None:
        """Ends a wait."""
        waiters = self._of[waiter.key]
        waiters.remove(waiter)
        if not waiters:
            del self._of[waiter.key]
            session = waiter.key[0]
            left = self._calls[session] = self._calls[session] - 1
            if not left:
                del self._calls[session]

    def of(self, session: str, call: str) -> Iterable[Waiter]:
        """Those for one call."""
        return self._of.get((session, call), ())

    def calls_of(self, session: str) -> int:
        """How many calls of a session are waited for."""
        return self._calls.get(session, 0)

    def sessions(self) -> Iterable[str]:
        """The sessions of which any call is waited for."""
        return self._calls.keys()

    def since_before(self, at: float) -> list[tuple[str, str]]:
        """Session and call of those waited for since that time of CLOCK_MONOTONIC or longer."""
        return [key for key, waiters in self._of.items() if waiters[0].since <= at]

    def close(self, error: Exception) -> None:
        """Ends every wait with the error, now and later: no reply comes any more."""
        self._closed = error
        if self._timer is not None:
            self._timer.cancel()
        for waiters in self._of.values():
            for waiter in waiters:
                waiter.end(error)

    def _set_timer(self, loop: Any, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(at, self._end_those_over, loop)

    def _end_those_over(self, loop: Any) -> None:
        # The timer itself may come a little early.
        now = max(loop.time(), self._timer.when() if self._timer is not None else 0.0)
        self._timer, next_end = None, None
        for waiters in self._of.values():
            for waiter in waiters:
                if waiter.ends is None or waiter.error is not None:
                    continue
                if waiter.ends <= now:
                    waiter.end(TimeoutError())
                elif next_end is None or waiter.ends < next_end:
                    next_end = waiter.ends
        if next_end is not None:
            self._set_timer(loop, next_end)
