"""A TCP proxy before Redis that can be told to cut, delay, half-open or blackhole what passes through it."""

from __future__ import annotations

import asyncio
import random
import threading
from enum import Enum
from pathlib import Path

LATE_S = 0.8


class Line(Enum):
    """What becomes of bytes that reach the proxy."""

    OPEN = "open"
    HALF = "half"
    """Requests pass, answers are swallowed: the client can't know that it was heard."""
    DEAD = "dead"
    """Nothing passes and nothing is closed."""
    HELD = "held"
    """Requests are kept, and pass up to LATE_S after the line has opened again, when their sender may be gone."""
    CUT = "cut"
    """Connections are reset, and new ones refused."""


class Proxy:
    """Listens on a loopback port in a thread of its own, and forwards to a Unix socket."""

    def __init__(self, upstream: Path, seed: int = 0) -> None:
        self._upstream = upstream
        self._random = random.Random(seed)
        self._line = Line.OPEN
        self._delay_s = 0.0
        self._drop: tuple[bytes, threading.Event] | None = None
        self._hold: tuple[bytes, threading.Event] | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._thread.start()
        self._listening.wait()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}/0"

    def drop_answer(self, marker: bytes) -> threading.Event:
        """Swallows the next piece of an answer that contains the marker. The event says when it has come."""
        self._drop = (marker, threading.Event())
        return self._drop[1]

    def hold_request(self, marker: bytes) -> threading.Event:
        """Keeps the next request that contains the marker until `let_pass`. The event says when it has come."""
        self._hold = (marker, threading.Event())
        return self._hold[1]

    def let_pass(self) -> None:
        """Delivers what `hold_request` keeps, whether its sender still waits or not."""
        self._loop.call_soon_threadsafe(self._passing.set)

    def turn(self, line: Line, *, delay_s: float = 0.0) -> None:
        """Changes what the proxy does, also to connections that stand. Returns when it is so."""
        asyncio.run_coroutine_threadsafe(self._turn(line, delay_s), self._loop).result(30)

    def close(self) -> None:
        """Stops listening and cuts what is open."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    async def _turn(self, line: Line, delay_s: float) -> None:
        self._line, self._delay_s = line, delay_s
        if line is Line.CUT:
            self._cut()
        if line is not Line.HELD:
            self._may_pass.set()
        else:
            self._may_pass.clear()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _run(self) -> None:
        self._stop, self._may_pass, self._passing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._may_pass.set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stop.wait()
        server.close()
        self._cut()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        # Transports close their sockets in the turn after they are told to.
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._line is Line.CUT:
                raise ConnectionRefusedError
            there, back = await asyncio.open_unix_connection(str(self._upstream))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pass_on(reader, back, asks=True), self._pass_on(there, writer, asks=False))
        finally:
            self._writers -= {writer, back}
            writer.transport.abort()
            back.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, asks: bool) -> None:
        """One direction. What was sent before its sender hung up is still delivered, as TCP does.

        After a piece that is lost nothing passes any more, even when the line is open again: TCP leaves no holes.
        """
        lost = False
        try:
            while piece := await source.read(65536):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                lost = lost or self._line is Line.DEAD or (self._line is Line.HALF and not asks)
                if not asks and self._drop is not None and self._drop[0] in piece:
                    self._drop[1].set()
                    self._drop = None
                    lost = True
                if lost:
                    continue
                if asks and self._hold is not None and self._hold[0] in piece:
                    self._hold[1].set()
                    self._hold = None
                    await self._passing.wait()
                if asks and self._line is Line.HELD:
                    await self._may_pass.wait()
                    await asyncio.sleep(self._random.uniform(0.0, LATE_S))
                target.write(piece)
                await target.drain()
        except OSError:
            pass  # either side was ended, which is what this proxy is for
        finally:
            target.close()
