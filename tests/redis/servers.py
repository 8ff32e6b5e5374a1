"""Redis servers on loopback ports, Sentinels and a cluster of them, for tests of what one socket can't show."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot
from redis.sentinel import Sentinel

from contracts.client import Client
from contracts.connection import UNREACHABLE
from contracts.replies import TerminalReply
from tests.fleet import WAIT_S, Agent, Fleet, wait_until
from worker.server_binary import locate_server

SERVICE = "mymaster"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """One server process on a port, that can be killed and started again on the same data."""

    def __init__(self, home: Path, *options: str, sentinel: bool = False) -> None:
        self.home, self.port = home, free_port()
        self._options, self._sentinel = options, sentinel
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir()

    @property
    def client(self) -> Any:
        """A client of this server alone. To be closed."""
        return redis.Redis(port=self.port, socket_timeout=5)

    def start(self) -> None:
        """Returns when it answers."""
        command = [str(locate_server())]
        if self._sentinel:
            file = self.home / "sentinel.conf"
            if not file.exists():
                file.write_text(f"port {self.port}\ndir {self.home}\n" + "\n".join(self._options) + "\n")
            command += [str(file), "--sentinel"]
        else:
            base = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.home), "--save", ""]
            command += [*base, "--maxmemory-policy", "noeviction", *self._options]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        wait_until(self._answers, "a server to answer")

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), self.client as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        """Ends it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=WAIT_S)
            self.process = None


@contextlib.contextmanager
def running(nodes: Sequence[Node]) -> Iterator[None]:
    """Starts the servers, and ends them with the block."""
    try:
        for node in nodes:
            node.start()
        yield
    finally:
        for node in nodes:
            node.kill()


class Watched:
    """A primary, a replica and three Sentinels."""

    def __init__(self, home: Path) -> None:
        sync = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
        self.primary = Node(home / "primary", *sync)
        self.replica = Node(home / "replica", *sync, "--replicaof", "127.0.0.1", str(self.primary.port))
        watch = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} 500",
            f"sentinel failover-timeout {SERVICE} 3000",
        )
        self.sentinels = [Node(home / f"sentinel{number}", *watch, sentinel=True) for number in range(3)]
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{SERVICE}/0"
        make: Any = Sentinel
        self._finder = make([("127.0.0.1", each.port) for each in self.sentinels], socket_timeout=1)
        self.client: Any = self._finder.master_for(SERVICE, socket_timeout=5)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """All of them, until every Sentinel knows the replica and the other two; ended with the block."""
        # In this order: Sentinels look for replicas at once, and then only every ten seconds.
        with running([self.primary, self.replica]), self.replica.client as replica:
            wait_until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica to be in step")
            with running(self.sentinels):
                wait_until(self._know_each_other, "the Sentinels to know each other")
                yield
                self.client.close()
                for each in self._finder.sentinels:
                    each.close()

    def _know_each_other(self) -> bool:
        for each in self.sentinels:
            with each.client as sentinel:
                state = sentinel.sentinel_masters()[SERVICE]
                if (state["num-slaves"], state["num-other-sentinels"]) != (1, 2):
                    return False
        return True

    def primary_port(self) -> int:
        """The port that the Sentinels name."""
        with contextlib.suppress(redis.RedisError):
            port: int = self._finder.discover_master(SERVICE)[1]
            return port
        return 0


class Cluster:
    """Three primaries, each with a third of the slots, and `replicas` replicas of the first."""

    def __init__(self, home: Path, *options: str, replicas: int = 0) -> None:
        base = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--appendonly", "yes")
        sync = ("--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0")
        whole = "--cluster-require-full-coverage"
        self.nodes = [
            Node(home / f"node{number}", *base, *sync, whole, "no", "--cluster-port", str(free_port()), *options)
            for number in range(3 + replicas)
        ]
        self.primaries, self.replicas = self.nodes[:3], self.nodes[3:]
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.primaries)

    def join(self) -> None:
        """Makes a cluster of the running servers; returns when every one of them says that it stands."""
        ids: dict[int, str] = {}
        for number, node in enumerate(self.nodes):
            with node.client as client:
                ids[number] = client.execute_command("CLUSTER", "MYID").decode()
                if number < 3:
                    bounds = number * 16384 // 3, (number + 1) * 16384 // 3 - 1
                    client.execute_command("CLUSTER", "ADDSLOTSRANGE", *bounds)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                bus = node._options[node._options.index("--cluster-port") + 1]
                with self.nodes[0].client as first:
                    first.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes), "the cluster to meet")
        for node in self.replicas:
            with node.client as client:
                client.execute_command("CLUSTER", "REPLICATE", ids[0])
                wait_until(lambda: client.info("replication").get("master_link_status") == "up", "the replica")
        wait_until(lambda: all(self._stands(node) for node in self.nodes), "the cluster to stand")

    def _knows_all(self, node: Node) -> bool:
        with node.client as client:
            lines = client.execute_command("CLUSTER", "NODES")
            text = lines.decode() if isinstance(lines, bytes) else str(lines)
        return len(text.strip().splitlines()) == len(self.nodes) and "handshake" not in text

    def _stands(self, node: Node) -> bool:
        with contextlib.suppress(redis.RedisError), node.client as client:
            return b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO")
        return False

    def queues(self) -> list[str]:
        """One name for a queue on each primary, in their order."""
        names: dict[int, str] = {}
        while len(names) < 3:
            name = f"q-{uuid.uuid4().hex[:8]}"
            names.setdefault(min(2, key_slot(name.encode()) * 3 // 16384), name)
        return [names[number] for number in range(3)]


class FollowingFleet(Fleet):
    """A fleet whose Redis is not one server: `client` looks into it for the tests."""

    def __init__(self, client: Any, url: str, state: Path, queue: str, **settings: object) -> None:
        self.url, self.state, self.queue = url, state, queue
        self.settings = {f"TOOLREEF_{name.upper()}": str(value) for name, value in settings.items()}
        self.redis = client
        self.workers = []


def call_until_accepted(
    agent: Agent, tool: str, args: dict[str, Any], call_id: str, timeout_s: float = WAIT_S
) -> TerminalReply:
    """What an agent does while Redis is away: the same call with the same id, until it has a terminal reply."""

    async def act(client: Client) -> TerminalReply:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    submitted = await client.submit(tool, args, session=agent.session, call_id=call_id)
                    if submitted.settled is None or getattr(submitted.settled.error, "code", "") == "in_flight":
                        return await client.wait(agent.session, call_id)
                    return submitted.settled
                except UNREACHABLE:
                    await asyncio.sleep(0.05)

    return agent.with_client(act)
