"""A counting proxy before Redis: commands as clients sent them, and how many writes carried them.

Redis' own counters do not serve: `INFO commandstats` and `total_commands_processed` also count each command that a
script runs inside. The proxy costs latency, so nothing is timed through it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter


class _CommandCounter:
    """Reads one direction of a RESP connection, in whatever pieces it comes."""

    def __init__(self, names: Counter[str]) -> None:
        self._names = names
        self._buffer = bytearray()
        self._skip = 0  # bytes of the value being passed over, with its line end
        self._left = 0  # values of the current command still to come
        self._first = False

    def feed(self, piece: bytes) -> None:
        buffer = self._buffer
        buffer += piece
        position = 0
        while True:
            if self._skip:
                if len(buffer) - position < self._skip:
                    break
                if self._first:
                    name = bytes(buffer[position : position + self._skip - 2])
                    self._names[name.decode("ascii", "replace").upper()] += 1
                    self._first = False
                position += self._skip
                self._skip = 0
                continue
            line_end = buffer.find(b"\r\n", position)
            if line_end < 0:
                break
            kind, number = buffer[position], int(buffer[position + 1 : line_end])
            position = line_end + 2
            if kind == ord("*"):
                self._left, self._first = number, True
            else:
                self._left -= 1
                self._skip = number + 2
        del buffer[:position]


class CountingProxy:
    """Listens on a loopback port in a thread of its own, and forwards to `port`."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.names: Counter[str] = Counter()
        self.writes = 0
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._thread.start()
        self._listening.wait()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}/0"

    def reset(self) -> None:
        """Begin to count anew."""
        self.names.clear()
        self.writes = 0

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stop.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._to)
        counter = _CommandCounter(self.names)

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, count: bool) -> None:
            try:
                while piece := await source.read(65536):
                    if count:
                        self.writes += 1
                        counter.feed(piece)
                    target.write(piece)
                    await target.drain()
            except OSError:
                pass  # the other side was ended, which is how each measurement stops
            finally:
                target.close()

        await asyncio.gather(
            pass_on(reader, upstream_writer, count=True), pass_on(upstream_reader, writer, count=False)
        )

    def close(self) -> None:
        """Stop listening and cut what is open."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)
