"""Real servers, real worker processes, and an agent that speaks to them, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import redis

from contracts import keys
from contracts.client import Client
from contracts.codec import encode_call
from contracts.replies import Completed, Denied, Failed, TerminalReply
from worker.server_binary import locate_server

T = TypeVar("T")
WAIT_S = 20.0


def wait_until(holds: Callable[[], T], what: str, timeout_s: float = WAIT_S) -> T:
    """The first true answer of `holds`."""
    end = time.monotonic() + timeout_s
    while True:
        if answer := holds():
            return answer
        assert time.monotonic() < end, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.01)


class Server:
    """A Redis of its own, on a Unix socket in a directory, that can be killed and started again on the same data."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.socket = home / "r.sock"
        self.url = f"unix://{self.socket}"
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        base = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.home), "--save", ""]
        command = [str(locate_server()), *base, "--maxmemory-policy", "noeviction", *self._options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        wait_until(self._answers, "Redis to answer")

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self.url) as client:
            return bool(client.ping())
        return False

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            self.process.wait(timeout=WAIT_S)
            self.process = None


class Worker:
    """One worker process."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, env=env, stdout=file, stderr=file, start_new_session=True)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the worker alone."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(timeout=60)

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=WAIT_S)


class Fleet:
    """Workers and agents of one queue on one server. `settings` become TOOLREEF_ variables of every worker."""

    def __init__(self, url: str, state: Path, queue: str, **settings: object) -> None:
        self.url, self.state, self.queue = url, state, queue
        self.settings = {f"TOOLREEF_{name.upper()}": str(value) for name, value in settings.items()}
        self.redis: Any = redis.Redis.from_url(url)
        self.workers: list[Worker] = []

    @property
    def env(self) -> dict[str, str]:
        """The environment of this fleet's processes."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TOOLREEF_")}
        base = {"REDIS_URL": self.url, "TOOLREEF_STATE": str(self.state), "TOOLREEF_QUEUE": self.queue}
        return {**clean, **base, **self.settings}

    def start_worker(
        self, *arguments: str, name: str | None = None, url: str | None = None, **settings: object
    ) -> Worker:
        """Returns when its first heartbeat stands in Redis. `url` is another way to the same Redis."""
        name = name or f"w-{uuid.uuid4().hex[:8]}"
        more = {f"TOOLREEF_{key.upper()}": str(value) for key, value in settings.items()}
        more |= {"REDIS_URL": url} if url else {}
        self.redis.hdel(keys.workers(self.queue), name)
        command = [sys.executable, "-m", "worker", "worker", *arguments]
        worker = Worker(command, {**self.env, "TOOLREEF_WORKER": name, **more}, self.state / f"{name}.log")
        self.workers.append(worker)

        def beats() -> bool:
            assert worker.process.poll() is None, worker.log.read_text()
            return bool(self.redis.hexists(keys.workers(self.queue), name))

        wait_until(beats, "a heartbeat", 60)
        return worker

    def start_supervisor(self, processes: int) -> Worker:
        """`worker --processes N`; returns when all of them have sent a heartbeat."""
        command = [sys.executable, "-m", "worker", "worker", "--processes", str(processes)]
        supervisor = Worker(command, self.env, self.state / "supervisor.log")
        self.workers.append(supervisor)
        wait_until(lambda: len(self.beating()) == processes, "all heartbeats", 60)
        return supervisor

    def beating(self) -> dict[str, int]:
        """The process ids of the workers in the heartbeats, by their names."""
        beats = self.redis.hgetall(keys.workers(self.queue))
        return {name.decode(): msgspec.json.decode(beat.split(b" ", 1)[1])["pid"] for name, beat in beats.items()}

    def run(
        self, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """One command of the command line, run to its end, with `env` on top of the fleet's environment."""
        command = [sys.executable, "-m", "worker", *arguments]
        whole = {**self.env, **(env or {})}
        return subprocess.run(command, env=whole, input=stdin, capture_output=True, timeout=90, check=False)

    def workspace(self, name: str) -> Path:
        """Where a workspace's files are."""
        return self.state / "workspaces" / self.queue / name

    def agent(self, session: str | None = None) -> Agent:
        """An agent in a session of its own."""
        return Agent(self, session or f"s-{uuid.uuid4().hex[:12]}")

    def push_raw(self, job_id: str, payload: bytes | None, score: float = 0) -> None:
        """What any Redis client can do: payload, queue entry, bell."""
        if payload is not None:
            self.redis.set(f"arq:job:{job_id}", payload, px=3_600_000)
        self.redis.zadd(keys.queue(self.queue), {job_id: score})
        self.redis.lpush(keys.bell(self.queue), 1)

    def replies(self, session: str) -> list[dict[str, Any]]:
        """The terminal replies on a session's stream, in order."""
        entries: Any = self.redis.xrange(keys.replies(self.queue, session))
        decoded = [msgspec.json.decode(fields[b"reply"]) for _, fields in entries]
        return [reply for reply in decoded if reply["kind"] != "progress"]

    def wait_replies(self, session: str, count: int, timeout_s: float = WAIT_S) -> list[dict[str, Any]]:
        """The terminal replies, once there are so many."""
        wait_until(lambda: len(self.replies(session)) >= count, f"{count} replies", timeout_s)
        return self.replies(session)

    def end(self) -> None:
        """Ends every worker that this fleet started."""
        for worker in self.workers:
            worker.end()
        self.redis.close()


class Agent:
    """One agent session, spoken to without async: each method runs the real client to its end."""

    def __init__(self, fleet: Fleet, session: str) -> None:
        self.fleet, self.session = fleet, session

    @property
    def workspace(self) -> Path:
        """Where its files are."""
        return self.fleet.workspace(self.session)

    def with_client(self, act: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Runs `act` with a client of the agent's queue."""

        async def main() -> T:
            async with Client.connect(self.fleet.url, queue=self.fleet.queue) as client:
                return await act(client)

        return run_async(main)

    def call(
        self, tool: str, args: dict[str, Any] | None = None, *, call_id: str | None = None, **named: Any
    ) -> TerminalReply:
        """One call's terminal reply."""
        wanted = {**(args or {}), **named}
        return self.with_client(
            lambda client: client.call(tool, wanted, session=self.session, call_id=call_id, timeout_s=60)
        )

    def complete(self, tool: str, args: dict[str, Any] | None = None, **named: Any) -> dict[str, Any]:
        """The output of a call that must complete."""
        reply = self.call(tool, args, **named)
        assert isinstance(reply, Completed), reply
        output: dict[str, Any] = reply.output
        return output

    def fail(self, tool: str, args: dict[str, Any] | None = None, **named: Any) -> Any:
        """The error of a call that must fail."""
        reply = self.call(tool, args, **named)
        assert isinstance(reply, Failed), reply
        return reply.error

    def deny(self, tool: str, args: dict[str, Any] | None = None, **named: Any) -> Any:
        """The error of a call that must be denied."""
        reply = self.call(tool, args, **named)
        assert isinstance(reply, Denied), reply
        return reply.error

    def push(self, call: str, tool: str, args: dict[str, Any], **body: Any) -> str:
        """Submits without the client and without waiting. The job id."""
        job_id = keys.job_id(self.fleet.queue, self.session, call)
        now_ms = time.time() * 1000
        self.fleet.push_raw(job_id, encode_call(tool, args, enqueued_ms=int(now_ms), **body), now_ms)
        return job_id


@contextlib.contextmanager
def serve(home: Path, *options: str) -> Iterator[Server]:
    """A server that is ended with the block."""
    server = Server(home, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def run_async(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine function on a loop of its own, on a thread where this one has a loop (a browser's driver)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(main())).result()
