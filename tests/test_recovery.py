"""One fault at a time, at the moment where it hurts most. What happens then is seen from outside: streams and files."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from contracts import keys
from contracts.client import Client
from contracts.replies import Completed
from tests.chaos.proxy import Line, Proxy
from tests.conftest import assert_every_key_has_a_life
from tests.fleet import Agent, Fleet, Server, serve, wait_until
from tests.moments import (
    UNTIL_GO,
    assert_well,
    beat,
    begin,
    came,
    end,
    is_still,
    now_ms,
    outcomes,
    ran,
    restart,
    sha_of,
)

QUEUE = "recovery"
SHORT_LEASE_S = 1.2


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A Redis that may be hurt, and that keeps what it acknowledged."""
    home = tmp_path / "redis"
    home.mkdir()
    with serve(home, "--appendonly", "yes", "--appendfsync", "always") as running:
        yield running


@pytest.fixture
def fleet(own_server: Server, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on it, without workers yet. Afterwards nothing of a call may be left."""
    state = tmp_path / "state"
    state.mkdir()
    made = Fleet(own_server.url, state, QUEUE)
    yield made
    made.end()
    with redis.Redis.from_url(own_server.url) as client:
        assert_every_key_has_a_life(client, QUEUE)
        left = [key for kind in ("running", "waiting") for key in client.scan_iter(f"reef:{{{QUEUE}}}:{kind}:*")]
        assert left == []
        assert client.zcard(keys.leases(QUEUE)) == 0


@pytest.fixture
def proxy(own_server: Server) -> Iterator[Proxy]:
    """Another way to the same Redis."""
    made = Proxy(own_server.socket)
    yield made
    made.close()


@pytest.fixture
def agent(fleet: Fleet) -> Agent:
    """An agent in a new session of the fleet."""
    return fleet.agent()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_restart_of_redis_under_a_running_effect(
    own_server: Server, fleet: Fleet, agent: Agent, number: signal.Signals
) -> None:
    worker = fleet.start_worker()
    begin(agent, "c")
    agent.push("waits", "read_file", {"path": "log"})
    wait_until(lambda: fleet.redis.hget(keys.running(QUEUE, agent.session), "#w") == b"1", "a call to wait")
    restart(own_server, fleet, number)
    end(agent)
    assert outcomes(agent, 2) == [("c", "completed"), ("waits", "completed")]
    assert ran(agent) == ["+c", "-c"]
    assert_well(worker, agent)


def test_redis_away_longer_than_the_lease_stops_a_running_effect(
    own_server: Server, fleet: Fleet, agent: Agent
) -> None:
    worker = fleet.start_worker(lease_s=SHORT_LEASE_S)
    beat(agent, "c")
    own_server.kill()
    wait_until(lambda: is_still(agent), "the effect to be stopped", 60)
    own_server.start()
    fleet.redis.connection_pool.disconnect()
    assert outcomes(agent, 1) == [("c", "interrupted")]
    assert_well(worker, agent)


def test_redis_frozen_longer_than_the_lease(own_server: Server, fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker(lease_s=SHORT_LEASE_S)
    begin(agent, "c")
    assert own_server.process is not None
    own_server.process.send_signal(signal.SIGSTOP)
    threading.Event().wait(SHORT_LEASE_S * 1.5)
    own_server.process.send_signal(signal.SIGCONT)
    assert outcomes(agent, 1) == [("c", "interrupted")]
    assert ran(agent) == ["+c"]
    assert_well(worker, agent)
    assert len(fleet.replies(agent.session)) == 2


def test_a_claim_whose_answer_is_lost_is_given_back(proxy: Proxy, fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker(url=proxy.url, lease_s=SHORT_LEASE_S)
    lost = proxy.drop_answer(b"\r\nrun\r\n")
    agent.push("c", "run_command", {"command": "echo c >> log"})
    came(lost, "the claim's answer")
    assert outcomes(agent, 1) == [("c", "completed")]
    assert fleet.replies(agent.session)[0]["attempt"] == 1
    assert ran(agent) == ["c"]
    assert_well(worker, agent)


def test_an_ending_whose_answer_is_lost_is_published_once(proxy: Proxy, fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker(url=proxy.url, lease_s=SHORT_LEASE_S)
    lost = proxy.drop_answer(b"\r\ndone\r\n")
    agent.push("c", "run_command", {"command": "echo c >> log"})
    came(lost, "the ending's answer")
    assert_well(worker, agent)
    assert [reply["call"] for reply in fleet.replies(agent.session)].count("c") == 1
    assert ran(agent) == ["c"]


def test_giving_back_late_takes_nothing_that_runs(proxy: Proxy, fleet: Fleet, agent: Agent) -> None:
    """A network delivers what was sent before a connection was given up, after what was sent on the next one."""
    fleet.start_worker(url=proxy.url, lease_s=SHORT_LEASE_S)
    lost, held = proxy.drop_answer(b"\r\nrun\r\n"), proxy.hold_request(sha_of("release"))
    agent.push("c", "run_command", {"command": UNTIL_GO.format("c")})
    came(lost, "the claim's answer")
    came(held, "the giving back")
    wait_until((agent.workspace / "begun").exists, "the effect to start, after a second giving back")
    claim = fleet.redis.get(keys.in_progress(QUEUE, agent.session, "c"))
    before = fleet.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    proxy.let_pass()
    wait_until(lambda: fleet.redis.info("commandstats")["cmdstat_evalsha"]["calls"] > before, "it to be delivered")
    other = fleet.agent()
    assert other.complete("list_directory", path=".")["entries"] == []
    assert fleet.redis.get(keys.in_progress(QUEUE, agent.session, "c")) == claim
    end(agent)
    assert outcomes(agent, 1) == [("c", "completed")]
    assert ran(agent) == ["+c", "-c"]


def test_a_successor_of_the_same_name_gives_back_nothing_of_the_dead(proxy: Proxy, fleet: Fleet, agent: Agent) -> None:
    victim = fleet.start_worker(name="same", lease_s=5)
    begin(agent, "c")
    victim.signal(signal.SIGKILL)
    victim.wait()
    successor = fleet.start_worker(name="same", url=proxy.url, lease_s=SHORT_LEASE_S)
    lost = proxy.drop_answer(b"\r\nrun\r\n")
    other = fleet.agent()
    other.push("o", "run_command", {"command": "echo o"})
    came(lost, "the claim's answer")
    assert outcomes(other, 1) == [("o", "completed")]
    assert outcomes(agent, 1) == [("c", "interrupted")]
    assert ran(agent) == ["+c"]
    assert_well(successor, agent)


def test_a_worker_that_claims_its_own_lapsed_call_answers_it_once(fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker(lease_s=SHORT_LEASE_S)
    begin(agent, "c")
    worker.signal(signal.SIGSTOP)
    leases = keys.leases(QUEUE)
    wait_until(lambda: fleet.redis.zcount(leases, "-inf", now_ms(fleet)) == 1, "the lease to end")
    # The bell has rung when it wakes, so that it claims while it still stops what it was running.
    other = fleet.agent()
    other.push("o", "list_directory", {"path": "."})
    worker.signal(signal.SIGCONT)
    assert outcomes(other, 1) == [("o", "completed")]
    assert outcomes(agent, 1) == [("c", "interrupted")]
    assert_well(worker, agent)


def test_a_call_claimed_for_a_frozen_worker_is_not_started_late(fleet: Fleet, agent: Agent) -> None:
    """The claim waits at Redis behind the bell, so it is made whether the worker can hear of it or not."""
    worker = fleet.start_worker(lease_s=SHORT_LEASE_S)
    assert agent.complete("list_directory", path=".")["entries"] == []
    wait_until(lambda: fleet.redis.info("clients")["blocked_clients"] > 0, "the worker to wait for the bell")
    worker.signal(signal.SIGSTOP)
    agent.push("c", "run_command", {"command": "echo c >> log"})
    wait_until(lambda: fleet.redis.zcard(keys.leases(QUEUE)) == 1, "the claim to be made")
    fleet.start_worker()
    assert outcomes(agent, 2)[1:] == [("c", "interrupted")]
    worker.signal(signal.SIGCONT)
    assert_well(worker, agent)
    assert not (agent.workspace / "log").exists()


def test_a_call_that_comes_back_to_its_own_worker_is_stopped_and_answered_once(fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker()
    job_id = beat(agent, "c")
    fleet.redis.zadd(keys.leases(QUEUE), {job_id: 0})
    fleet.redis.lpush(keys.bell(QUEUE), 1)
    assert outcomes(agent, 1) == [("c", "interrupted")]
    wait_until(lambda: is_still(agent), "the effect to be stopped", 60)
    assert_well(worker, agent)
    assert [reply["call"] for reply in fleet.replies(agent.session)].count("c") == 1


def test_an_ending_that_redis_will_take_later_is_kept(fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker()
    begin(agent, "c")
    fleet.redis.config_set("min-replicas-to-write", 1)
    end(agent)
    refused = "errorstat_NOREPLICAS"
    wait_until(lambda: fleet.redis.info("errorstats").get(refused, {}).get("count", 0) >= 8, "refusals")
    assert fleet.replies(agent.session) == []
    fleet.redis.config_set("min-replicas-to-write", 0)
    assert outcomes(agent, 1) == [("c", "completed")]
    assert_well(worker, agent)


def test_scripts_that_redis_has_forgotten_are_loaded_again(fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker()
    begin(agent, "c")
    fleet.redis.script_flush()
    end(agent)
    assert outcomes(agent, 1) == [("c", "completed")]
    assert_well(worker, agent)


def test_with_memory_full_calls_are_refused_and_what_runs_is_answered(fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker()
    begin(agent, "c")
    agent.push("queued", "run_command", {"command": "echo queued >> log"})
    fleet.redis.config_set("maxmemory", 1)
    error = agent.fail("run_command", command="echo refused >> log")
    assert (error.code, error.effect, error.retryable) == ("unavailable", "none", True)
    with pytest.raises(redis.OutOfMemoryError):
        agent.with_client(lambda client: client.cancel(agent.session, "queued"))
    end(agent)
    assert outcomes(agent, 2) == [("c", "completed"), ("queued", "completed")]
    fleet.redis.config_set("maxmemory", 0)
    assert_well(worker, agent)
    assert ran(agent) == ["+c", "-c", "queued"]


def test_a_call_whose_bell_could_not_be_rung_is_accepted(fleet: Fleet, agent: Agent) -> None:
    fleet.redis.set(keys.bell(QUEUE), "a string, and no list")

    async def act(client: Client) -> Any:
        submitted = await client.submit("list_directory", {"path": "."}, session=agent.session, call_id="c")
        assert submitted.settled is None
        fleet.start_worker()
        return await client.wait(agent.session, "c", timeout_s=60)

    assert isinstance(agent.with_client(act), Completed)


@pytest.mark.parametrize("away, running", [("dead", False), ("dead", True), ("frozen", True)])
def test_sigterm_while_redis_is_away(own_server: Server, fleet: Fleet, agent: Agent, away: str, running: bool) -> None:
    worker = fleet.start_worker(lease_s=SHORT_LEASE_S, drain_s=0.5)
    if running:
        begin(agent, "c")
    assert own_server.process is not None
    own_server.process.send_signal(signal.SIGSTOP if away == "frozen" else signal.SIGKILL)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "Traceback" not in worker.log.read_text()
    own_server.kill()
    own_server.start()
    fleet.redis.connection_pool.disconnect()
    fleet.start_worker(lease_s=SHORT_LEASE_S)
    if running:
        assert outcomes(agent, 1) == [("c", "interrupted")]
        assert ran(agent) == ["+c"]


def test_an_unrung_bell_only_delays(fleet: Fleet, agent: Agent) -> None:
    fleet.start_worker()
    agent.push("first", "list_directory", {"path": "."})
    fleet.wait_replies(agent.session, 1)
    first = agent.push("c", "list_directory", {"path": "."})
    fleet.redis.delete(keys.bell(QUEUE))
    assert outcomes(agent, 2)[1] == ("c", "completed")
    assert first


def test_a_payload_that_expires_while_its_call_waits(fleet: Fleet, agent: Agent) -> None:
    worker = fleet.start_worker()
    begin(agent, "c")
    agent.push("waits", "run_command", {"command": "echo waits >> log"})
    wait_until(lambda: fleet.redis.hget(keys.running(QUEUE, agent.session), "#w") == b"1", "a call to wait")
    fleet.redis.delete(keys.job(QUEUE, agent.session, "waits"))
    end(agent)
    assert outcomes(agent, 2) == [("c", "completed"), ("waits", "expired")]
    assert ran(agent) == ["+c", "-c"]
    assert_well(worker, agent)


@pytest.mark.parametrize("line", [Line.HALF, Line.CUT])
def test_a_bad_line_to_one_worker(proxy: Proxy, fleet: Fleet, agent: Agent, line: Line) -> None:
    behind = fleet.start_worker(url=proxy.url, lease_s=SHORT_LEASE_S)
    begin(agent, "c")
    proxy.turn(line)
    fleet.start_worker(lease_s=SHORT_LEASE_S)
    got = outcomes(agent, 1)
    proxy.turn(Line.OPEN)
    assert got == [("c", "interrupted")]
    wait_until(lambda: fleet.redis.zcard(keys.leases(QUEUE)) == 0, "all leases to be closed")
    assert_well(behind, agent)
    assert [reply["call"] for reply in fleet.replies(agent.session)].count("c") == 1
    assert ran(agent) == ["+c"]


def test_a_client_waits_through_a_restart(own_server: Server, fleet: Fleet, agent: Agent) -> None:
    fleet.start_worker()

    async def act(client: Client) -> Any:
        waiting = asyncio.ensure_future(
            client.call("run_command", {"command": UNTIL_GO.format("c")}, session=agent.session, timeout_s=60)
        )
        await asyncio.to_thread(wait_until, (agent.workspace / "begun").exists, "the effect to start")
        await asyncio.to_thread(restart, own_server, fleet)
        end(agent)
        return await waiting

    reply = agent.with_client(act)
    assert isinstance(reply, Completed)
    assert len(fleet.replies(agent.session)) == 1
