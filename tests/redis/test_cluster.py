"""Three primaries with queues spread over them: each queue lives on one, and survives that one's restart or death."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

from contracts import keys
from contracts.connection import connect, tag_of
from contracts.provisioner import Provisioner
from contracts.replies import Completed
from tests.fleet import Fleet, wait_until
from tests.redis.servers import Cluster, FollowingFleet, call_until_accepted, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), replicas=1)
    with running(made.nodes):
        made.join()
        yield made


@pytest.fixture
def looker(cluster: Cluster) -> Iterator[Any]:
    make_node: Any = ClusterNode
    client = RedisCluster(startup_nodes=[make_node("127.0.0.1", node.port) for node in cluster.primaries])
    yield client
    client.close()


def start_fleet(cluster: Cluster, looker: Any, state: Path, queues: list[str]) -> list[Fleet]:
    """One worker over all queues; a view for each."""
    fleets: list[Fleet] = [FollowingFleet(looker, cluster.url, state, queue, lease_s=6) for queue in queues]
    fleets[0].start_worker(*(word for queue in queues for word in ("--queue", queue)))
    return fleets


def test_one_worker_serves_queues_of_every_primary(cluster: Cluster, looker: Any, tmp_path: Path) -> None:
    queues = cluster.queues()
    fleets = start_fleet(cluster, looker, tmp_path, queues)
    try:
        for fleet in fleets:
            agent = fleet.agent("s")
            assert agent.complete("write_file", path="a.txt", content="hello\n")["bytes"] == 6
            assert agent.complete("run_command", command="cat a.txt")["stdout"] == "hello\n"
            first = agent.call("run_command", {"command": "echo x >> log"}, call_id="twice")
            assert agent.call("run_command", {"command": "echo x >> log"}, call_id="twice") == first
        for node, queue in zip(cluster.primaries, queues, strict=True):
            with node.client as client:
                own = [key.decode() for key in client.keys("*")]
            assert keys.fence(queue) in own
            assert {tag_of(("x", key)) for key in own} & set(queues) == {queue}
        said = fleets[1].run("status", "--json")
        assert (said.returncode, said.stderr) == (0, b"")
        opened = fleets[2].run("session", "open", "--session", "s2", "--level", "INTERNAL")
        assert opened.returncode == 0, opened.stderr
        cancelled = fleets[2].run("cancel", "--session", "s2", "--call-id", "none")
        assert cancelled.returncode == 0, cancelled.stderr
    finally:
        for fleet in fleets:
            fleet.end()


def test_a_waiting_call_is_cancelled_over_the_cluster(cluster: Cluster, looker: Any, tmp_path: Path) -> None:
    (fleet,) = start_fleet(cluster, looker, tmp_path, cluster.queues()[1:2])
    try:
        agent = fleet.agent()
        agent.push("c", "run_command", {"command": "touch begun; sleep 60"})
        wait_until((agent.workspace / "begun").exists, "the command to run")
        agent.with_client(lambda client: client.cancel(agent.session, "c"))
        reply = fleet.wait_replies(agent.session, 1)[0]
        assert (reply["call"], reply["error"]["code"]) == ("c", "cancelled")
    finally:
        fleet.end()


def test_a_primary_restarts_and_a_primary_dies(cluster: Cluster, looker: Any, tmp_path: Path) -> None:
    queues = cluster.queues()
    fleets = start_fleet(cluster, looker, tmp_path, queues)
    failing, steady, restarted = (fleet.agent("s") for fleet in fleets)
    line = {"command": "echo x >> log"}
    try:
        for agent in (failing, steady, restarted):
            assert isinstance(agent.call("run_command", line, call_id="c0"), Completed)

        cluster.primaries[2].kill()
        assert isinstance(steady.call("run_command", line, call_id="c1"), Completed)
        assert isinstance(failing.call("run_command", line, call_id="c1"), Completed)
        cluster.primaries[2].start()
        assert isinstance(call_until_accepted(restarted, "run_command", line, "c1", 30), Completed)

        with cluster.primaries[0].client as client:
            assert client.wait(1, 5000) == 1
        cluster.primaries[0].kill()
        assert isinstance(steady.call("run_command", line, call_id="c2"), Completed)
        assert isinstance(call_until_accepted(failing, "run_command", line, "c2", 30), Completed)
        with cluster.replicas[0].client as client:
            assert client.info("replication")["role"] == "master"

        counts = [(agent.workspace / "log").read_text().count("x") for agent in (failing, steady, restarted)]
        assert counts == [3, 3, 2]
        for fleet, count in zip(fleets, counts, strict=True):
            assert len(fleet.replies("s")) == count
        assert fleets[0].workers[0].process.poll() is None
    finally:
        for fleet in fleets:
            fleet.end()


def test_a_pipeline_over_several_queues_keeps_its_order(cluster: Cluster) -> None:
    queues = cluster.queues()

    async def act() -> list[Any]:
        client = connect(cluster.url)
        try:
            async with client.pipeline(transaction=False) as pipe:
                for queue in [*queues, *queues]:
                    pipe.execute_command("INCR", keys.fence(queue))
                pipe.execute_command("PING")
                answers: list[Any] = await pipe.execute()
            async with client.pipeline(transaction=True) as pipe:
                pipe.incr(keys.fence(queues[0]))
                pipe.incr(keys.fence(queues[1]))
                with pytest.raises(ValueError, match="one queue"):
                    await pipe.execute()
            return answers
        finally:
            await client.aclose()

    assert asyncio.run(act()) == [1, 1, 1, 2, 2, 2, True]


def test_a_queue_moves_to_another_primary_while_calls_come(cluster: Cluster, looker: Any, tmp_path: Path) -> None:
    source, target = cluster.primaries[1], cluster.primaries[2]
    queue = cluster.queues()[1]
    slot = key_slot(queue.encode())
    (fleet,) = start_fleet(cluster, looker, tmp_path, [queue])
    agent = fleet.agent("s")
    replies: list[Any] = []

    def keep_calling() -> None:
        for number in range(30):
            args = {"command": f"echo {number} >> log"}
            replies.append(call_until_accepted(agent, "run_command", args, f"c{number}", 30))

    caller = threading.Thread(target=keep_calling)
    try:
        caller.start()
        wait_until(lambda: len(replies) > 3, "some replies")
        with source.client as old, target.client as new:
            ids = [client.execute_command("CLUSTER", "MYID") for client in (old, new)]
            new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
            old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
            while keys_left := old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                for key in keys_left:
                    old.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            for client in (new, old):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        caller.join(timeout=60)
        assert [type(reply) for reply in replies] == [Completed] * 30
        assert (agent.workspace / "log").read_text().split() == [str(number) for number in range(30)]
        with target.client as new:
            assert new.exists(keys.fence(queue)) == 1
    finally:
        fleet.end()
        caller.join()


def test_an_agents_user_is_made_on_every_node(cluster: Cluster, looker: Any, tmp_path: Path) -> None:
    nodes = [node for node in cluster.nodes if node.process is not None]
    queue = cluster.queues()[1]
    (fleet,) = start_fleet(cluster, looker, tmp_path, [queue])

    def know(user: str) -> list[bool]:
        found = []
        for node in nodes:
            with node.client as client:
                found.append(user.encode() in client.execute_command("ACL", "USERS"))
        return found

    try:
        env = {"TOOLREEF_PROVISIONER_URL": cluster.url}
        opened = fleet.run("session", "open", "--session", "s1", env=env)
        login = json.loads(opened.stdout)["agent"]
        assert know(login["user"]) == [True] * len(nodes)
        mine = fleet.run("call", "list_directory", "path=.", "--session", "s1", env={"REDIS_URL": login["url"]})
        other = fleet.run("call", "list_directory", "path=.", "--session", "s2", env={"REDIS_URL": login["url"]})
        assert (mine.returncode, other.returncode, b"permission" in other.stderr) == (0, 4, True)

        with nodes[-1].client as forgetful:
            forgetful.execute_command("ACL", "DELUSER", login["user"])

        async def copy() -> list[int]:
            async with await Provisioner.connect(cluster.url, queue=queue) as provisioner:
                return [await provisioner.copy_agents() for _ in range(2)]

        assert asyncio.run(copy()) == [1, 0]
        # The same rules in another order, as Redis 7.0 lists them on each server, are no difference.
        with nodes[-1].client as other_order:
            (line,) = [each.decode() for each in other_order.execute_command("ACL", "LIST") if b"agent:" in each]
            words = re.findall(r"\([^)]*\)|\S+", line)[2:]
            turned = [re.sub(r"(\+\S+) (\+[^\s)]+)", r"\2 \1", word) for word in words]
            assert turned != words
            other_order.execute_command("ACL", "SETUSER", login["user"], "reset", *turned)
        assert asyncio.run(copy()) == [0, 0]
        assert know(login["user"]) == [True] * len(nodes)
        assert fleet.run("session", "close", "--session", "s1", env=env).returncode == 0
        assert know(login["user"]) == [False] * len(nodes)
    finally:
        fleet.end()
