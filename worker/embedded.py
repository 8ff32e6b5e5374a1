"""A local Redis for the zero-setup default: one server a state directory, shared by whoever starts it.

Three locks (flock, so the kernel drops them with their holder, however it dies), all in `<state>/redis`:

* `start.lock`, exclusive, for the moments of starting and stopping;
* `users.lock`, shared, held by each user for as long as it uses the server: the last one out stops it;
* `server.lock`, exclusive, inherited by the server itself: held means that a server runs, whoever started it.

So a server whose users were all killed goes on, and the next start adopts it. Its password, socket and pid stand in
files of mode 0600; the password is never in an argv, an environment or a log.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Self

from worker.filelocks import (
    exclusive,
    is_private,
    make_private,
    make_short_directory,
    open_lock,
    open_log,
    read_or_make_secret,
    try_lock,
    wait_for_lock,
    write_private,
)
from worker.redis_probe import ask
from worker.server_binary import EmbeddedUnavailable, locate_server, spawn_server

__all__ = ["EmbeddedRedis", "EmbeddedUnavailable", "Fsync", "locate_server", "open_redis"]

Fsync = Literal["always", "everysec", "no"]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
MAX_LOG_BYTES = 1024 * 1024

_POLL_S = 0.002
_MAX_SOCKET_PATH_BYTES = 107
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+")
_STRICTNESS: dict[str, int] = {"no": 0, "everysec": 1, "always": 2}


@contextmanager
def open_redis(redis_url: str | None, state_dir: Path, *, fsync: Fsync = "always") -> Iterator[str]:
    """The URL of the Redis to use: the one configured, else that of an embedded server kept up meanwhile.

    Raises:
        EmbeddedUnavailable: none is configured and none can be started.
    """
    if redis_url:
        yield redis_url
        return
    with EmbeddedRedis.start(state_dir, fsync=fsync) as server:
        yield server.url


class EmbeddedRedis:
    """One use of the state directory's server. Make it with `start`; end it with `stop` or as a context manager."""

    def __init__(self, home: Path, *, fsync: Fsync, port: int | None) -> None:
        self._home = home
        self._fsync = fsync
        self._port = port
        self._password = ""
        self._socket = home / "redis.sock"
        self._locks: list[int] = []
        self._child = 0
        self.pid = 0

    @classmethod
    def start(
        cls, state_dir: Path, *, fsync: Fsync = "always", port: int | None = None, timeout_s: float = START_TIMEOUT_S
    ) -> Self:
        """Starts the state directory's server, or joins the one that runs there. Blocks until it answers.

        A joined server's `fsync` is made stricter where asked, never laxer. `port` adds a TCP port on 127.0.0.1.

        Raises:
            EmbeddedUnavailable: there is no server program, the directory can't be used, or the server doesn't answer
                in time.
        """
        server = cls(state_dir.absolute() / "redis", fsync=fsync, port=port)
        deadline = time.monotonic() + timeout_s
        try:
            make_private(server._home)
            with exclusive(server._home / "start.lock", deadline):
                server._join_or_launch(deadline)
        except OSError as error:
            server._abandon()
            raise EmbeddedUnavailable(
                f"no Redis can be kept in {server._home}: {error.strerror or error}; "
                "choose another directory with TOOLREEF_STATE, or set REDIS_URL"
            ) from error
        except BaseException:
            server._abandon()
            raise
        return server

    @property
    def url(self) -> str:
        """For redis-py's and arq's readers of URLs; holds the password."""
        return f"unix://:{self._password}@{self._socket}?db=0"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leaves the server, and stops it if nobody else uses it. May be called again."""
        if not self._locks:
            return
        server_lock, users_lock = self._locks
        try:
            with exclusive(self._home / "start.lock", time.monotonic() + STOP_TIMEOUT_S):
                if try_lock(users_lock):
                    self._shut_down(server_lock)
        except TimeoutError:
            pass  # somebody is starting or stopping right now, and uses the server, or ends it
        except FileNotFoundError:
            # The directory was removed under us: nobody can join any more, so the present users are all there are.
            if try_lock(users_lock):
                self._shut_down(server_lock)
        finally:
            self._leave()

    def _leave(self) -> None:
        while self._locks:
            os.close(self._locks.pop())

    def _abandon(self) -> None:
        """Ends a start that failed: what it launched does not stay behind."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            self._reap()
        self._leave()

    def _reap(self) -> None:
        if self._child:
            with suppress(ChildProcessError):
                os.waitpid(self._child, 0)
            self._child = 0

    def _join_or_launch(self, deadline: float) -> None:
        self._locks.append(open_lock(self._home / "server.lock"))
        self._locks.append(open_lock(self._home / "users.lock"))
        fcntl.flock(self._locks[1], fcntl.LOCK_SH)
        self._password = read_or_make_secret(self._home / "password")
        while not self._launch_if_none_runs(deadline):
            self._read_record()
            if self._answers(deadline):
                with suppress(OSError):  # it died since: start it again
                    self._adjust()
                    return
            time.sleep(_POLL_S)

    def _launch_if_none_runs(self, deadline: float) -> bool:
        # Not self._locks[0]: a lock belongs to its opening, and this one becomes the server's.
        server_lock = open_lock(self._home / "server.lock")
        try:
            if not try_lock(server_lock):
                return False
            self._launch(server_lock)
        finally:
            os.close(server_lock)
        while not self._answers(deadline):
            time.sleep(_POLL_S)
        return True

    def _launch(self, server_lock: int) -> None:
        program = locate_server()
        self._choose_socket()
        self._write_record()
        log = open_log(self._home / "redis.log", MAX_LOG_BYTES)
        try:
            self.pid = self._child = spawn_server(program, self._config(), log=log, server_lock=server_lock)
        finally:
            os.close(log)
        self._write_record()

    def _config(self) -> str:
        home = "".join(f"\\x{byte:02x}" for byte in os.fsencode(self._home))
        return f"""\
port {self._port or 0}
bind 127.0.0.1
protected-mode yes
unixsocket {self._socket}
unixsocketperm 600
requirepass {self._password}
dir "{home}"
daemonize no
save ""
appendonly yes
appendfsync {self._fsync}
aof-load-truncated yes
auto-aof-rewrite-min-size 16mb
maxmemory-policy noeviction
"""

    def _write_record(self) -> None:
        write_private(
            self._home / "server.json", json.dumps({"pid": self.pid, "socket": os.fspath(self._socket)}).encode()
        )

    def _read_record(self) -> None:
        try:
            record = json.loads((self._home / "server.json").read_bytes())
            self.pid, self._socket = int(record["pid"]), Path(record["socket"])
        except (ValueError, KeyError, TypeError, FileNotFoundError):
            raise EmbeddedUnavailable(
                f"a server runs in {self._home}, but server.json there does not tell which: end it, then try again"
            ) from None

    def _choose_socket(self) -> None:
        """In the state directory, or elsewhere where its path is past the kernel's limit or would need quoting.

        The one that the last server had where it can be, so that its users find the new one; it is dead for certain,
        since its lock was free.
        """
        with suppress(EmbeddedUnavailable):
            self._read_record()
        self.pid = 0
        self._socket.unlink(missing_ok=True)
        if self._socket.parent == self._home or not is_private(self._socket.parent):
            self._socket = self._home / "redis.sock"
            if len(os.fsencode(self._socket)) > _MAX_SOCKET_PATH_BYTES or not _PLAIN_PATH.fullmatch(str(self._socket)):
                self._socket = make_short_directory() / "redis.sock"

    def _remove_socket(self) -> None:
        self._socket.unlink(missing_ok=True)
        if self._socket.parent != self._home:
            with suppress(OSError):
                self._socket.parent.rmdir()

    def _answers(self, deadline: float) -> bool:
        if self._child and os.waitpid(self._child, os.WNOHANG) != (0, 0):
            self._child = 0
            raise EmbeddedUnavailable(f"the server in {self._home} ended at once: {self._last_words()}")
        try:
            answer = self._ask("PING")
        except OSError as error:
            answer = error.strerror or str(error)
        if answer.startswith("-") and not answer.startswith(("-LOADING", "-BUSY")):
            raise EmbeddedUnavailable(f"the server in {self._home} (pid {self.pid}) refuses us: {answer[1:]}")
        if answer != "+PONG" and time.monotonic() > deadline:
            raise EmbeddedUnavailable(f"the server in {self._home} (pid {self.pid}) is not ready: {answer}")
        return answer == "+PONG"

    def _last_words(self) -> str:
        lines = (self._home / "redis.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(line.strip() for line in lines[-3:]).replace(self._password, "***")

    def _adjust(self) -> None:
        running = self._ask("CONFIG", "GET", "appendfsync")
        if _STRICTNESS[self._fsync] > _STRICTNESS.get(running, 0):
            self._ask("CONFIG", "SET", "appendfsync", self._fsync)
        if self._port:
            answer = self._ask("CONFIG", "SET", "port", str(self._port))
            if answer != "+OK":
                raise EmbeddedUnavailable(f"the server in {self._home} can't listen on port {self._port}: {answer}")

    def _ask(self, *command: str) -> str:
        return ask(self._socket, self._password, *command)

    def _shut_down(self, server_lock: int) -> None:
        with suppress(EmbeddedUnavailable):
            self._read_record()  # another user may have replaced a server that died
        try:
            self._ask("SHUTDOWN", "NOSAVE", "NOW", "FORCE")
        except OSError:
            # What it does when it obeys, too; where it has not heard, its socket being gone, this tells it.
            self._signal(signal.SIGTERM)
        if not wait_for_lock(server_lock, time.monotonic() + STOP_TIMEOUT_S / 2):
            self._signal(signal.SIGKILL)
            wait_for_lock(server_lock, time.monotonic() + STOP_TIMEOUT_S / 2)
        self._reap()
        self._remove_socket()
        (self._home / "server.json").unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        """Signals the server if the pid is still a server's: a number from a file may have passed on to another."""
        with suppress(OSError):
            if b"-server" in Path(f"/proc/{self.pid}/cmdline").read_bytes():
                os.kill(self.pid, number)
