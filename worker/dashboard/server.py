"""The HTTP server around the app: stops at once when told to, whatever streams are open."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import uvicorn

from worker.dashboard.app import Config, Dashboard


class _Server(uvicorn.Server):
    """Ends the open streams with the signal; uvicorn would wait for their readers to leave."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """In place of uvicorn's, which sends itself the signal again at the end: an ordered stop exits with 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stopping.set()
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at host and port; port 0 takes any.

    Raises:
        OSError: the address can't be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(256)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


async def serve(config: Config, listener: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT."""
    dashboard = Dashboard(config)
    settings = uvicorn.Config(
        dashboard.app(),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        # The peer's address decides whether a proxy's headers are believed; nothing in them may change it.
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=3,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=32 * 1024,
    )
    await _Server(settings, dashboard.stopping).serve(sockets=[listener])
