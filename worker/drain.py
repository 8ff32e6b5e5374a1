"""One pipe of a command: read as fast as it comes, kept in part, spilled to a file when a reply can't hold it."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from worker.capture import Capture
from worker.relay import Stream

log = logging.getLogger("toolreef")

_PIPE_BYTES = 256 * 1024
_FLOOD_BYTES = 256 * 1024**2
_FLOOD_BYTES_PER_S = 256 * 1024**2
_MAX_UNWRITTEN_BYTES = 4 * 1024**2

CreateSpill = Callable[[Stream], tuple[int, str] | None]
"""Makes the file that takes a stream's whole output: its descriptor and its path. None where none can be made."""


@dataclass(slots=True)
class StreamEnd:
    """What became of one stream: its text, what was left out of it, and the file that has its bytes.

    `spill_cut` says that even the file does not have all of them.
    """

    text: str = ""
    omitted_bytes: int = 0
    spill: str | None = None
    spill_cut: bool = False


class Drain:
    """Reads one stream to its end. `took` is told of every chunk."""

    def __init__(
        self,
        stream: Stream,
        took: Callable[[Stream, bytes], None],
        create_spill: CreateSpill | None,
        *,
        keep_bytes: int,
        spill_bytes: int,
    ) -> None:
        self.capture = Capture(keep_bytes)
        self.end = StreamEnd()
        self._stream: Stream = stream
        self._took = took
        self._create_spill = create_spill
        self._keep_bytes = keep_bytes
        self._spill_room = spill_bytes
        self._spill_fd = -1
        self._writing: asyncio.Future[bool] | None = None
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._fd = -1

    def open(self) -> int:
        """The end that the command writes to, for the caller to close."""
        self._fd, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._fd, False)
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # this user's share of pipe memory is used up; the usual size does
        return theirs

    async def read(self) -> None:
        """Until the last writer is gone."""
        spilling = False
        while True:
            try:
                chunk = os.read(self._fd, _PIPE_BYTES)
            except BlockingIOError:
                await readable(self._fd)
                continue
            if not chunk:
                return
            if not spilling and self.capture.total_bytes + len(chunk) > self._keep_bytes:
                spilling = True
                await self._spill(self.capture.raw())
            self.capture.add(chunk)
            self._took(self._stream, chunk)
            if spilling:
                await self._spill(chunk)
            # One piece a turn of the loop, so that others are heard; and what is a flood waits in its pipe.
            is_flood = self.capture.total_bytes > _FLOOD_BYTES
            await asyncio.sleep(len(chunk) / _FLOOD_BYTES_PER_S if is_flood else 0)

    async def conclude(self) -> StreamEnd:
        """The stream's end. Bytes that the text can't show as they are go to a file."""
        _, _, differs = self.capture.text(None)
        if differs and not self.capture.overflows:
            await self._spill(self.capture.raw())
        await self._written()
        if self._unwritten:
            self._write()
            await self._written()
        self.end.text, self.end.omitted_bytes, _ = self.capture.text(self.end.spill)
        return self.end

    async def _spill(self, data: bytes) -> None:
        if self._create_spill is not None and self._spill_fd < 0:
            made = self._create_spill(self._stream)
            self._create_spill = None
            if made is not None:
                self._spill_fd, self.end.spill = made
        if self._spill_fd < 0 or not data:
            return
        if len(data) > self._spill_room:
            self.end.spill_cut = True
            data = data[: self._spill_room]
        self._spill_room -= len(data)
        if data:
            self._unwritten.append(data)
            self._unwritten_bytes += len(data)
        # Reading goes on while a thread writes, unless the disk is the slower of the two.
        idle = self._writing is None or self._writing.done()
        if idle or self._unwritten_bytes > _MAX_UNWRITTEN_BYTES:
            await self._written()
            if self._unwritten:
                self._write()

    def _write(self) -> None:
        data, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        self._writing = asyncio.get_running_loop().run_in_executor(None, _write_all, self._spill_fd, data)

    async def _written(self) -> None:
        # Shielded: the thread goes on when this task is cancelled, and its descriptor must stay open as long.
        if self._writing and not await asyncio.shield(self._writing):
            self.end.spill_cut = True
            self._spill_room = 0
            self._unwritten.clear()
            self._unwritten_bytes = 0

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in (self._fd, self._spill_fd):
            if descriptor < 0:
                continue
            if descriptor == self._spill_fd and self._writing and not self._writing.done():
                self._writing.add_done_callback(functools.partial(_close_after, descriptor))
            else:
                os.close(descriptor)
        self._fd = self._spill_fd = -1


def _close_after(descriptor: int, _: asyncio.Future[bool]) -> None:
    os.close(descriptor)


def _write_all(descriptor: int, pieces: list[bytes]) -> bool:
    try:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
    except OSError as error:
        log.warning("a command's output could not be kept: %s", error.strerror)
        return False
    return True


async def readable(descriptor: int) -> None:
    """Until there is something to read, or the other end is closed. On any event loop."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _wake, waiter)
    try:
        await waiter
    finally:
        loop.remove_reader(descriptor)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
