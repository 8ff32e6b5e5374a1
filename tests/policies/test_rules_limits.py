"""Limits on calls a second, calls at once and stored bytes: what is over them is refused before anything starts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts import keys
from contracts.replies import Completed, Failed, TerminalReply
from tests.fleet import Agent, Fleet, wait_until
from worker.policies.rules.schema import Limit, Limits, limits_for_scripts

MakeFleet = Callable[[str], Fleet]


@pytest.fixture
def limited(make_fleet: Any, tmp_path: Path) -> MakeFleet:
    def make(limits: str) -> Fleet:
        (tmp_path / "policy.toml").write_text(f"version = 1\n{limits}")
        fleet: Fleet = make_fleet(policy=tmp_path / "policy.toml")
        fleet.start_worker()
        return fleet

    return make


def look(agent: Agent) -> TerminalReply:
    return agent.call("list_directory", path=".")


def refused(reply: TerminalReply, whose: str) -> int:
    """After how many ms the call may come again."""
    assert isinstance(reply, Failed), reply
    assert reply.error
    assert (reply.error.code, reply.error.effect, reply.error.retryable) == ("rate_limited", "none", True)
    assert whose in reply.error.message
    assert reply.error.retry_after_ms is not None
    return reply.error.retry_after_ms


def test_a_session_has_its_burst_and_others_have_theirs(limited: MakeFleet) -> None:
    fleet = limited("[limits.session]\ncalls_per_s = 0.01\nburst = 3\n")
    agent, other = fleet.agent(), fleet.agent()
    assert all(isinstance(look(agent), Completed) for _ in range(3))
    assert 50_000 < refused(look(agent), "session") <= 100_000
    assert 50_000 < refused(agent.call("write_file", path="a", content="a"), "session") <= 100_000
    assert not (agent.workspace / "a").exists()
    assert isinstance(look(other), Completed)


def test_the_bucket_fills_again_by_redis_clock(limited: MakeFleet) -> None:
    fleet = limited("[limits.session]\ncalls_per_s = 5\nburst = 1\n")
    agent = fleet.agent()
    key = keys.rate(fleet.queue, f"session:{agent.session}")
    for _ in range(3):
        assert isinstance(look(agent), Completed)
        seconds, micros = fleet.redis.time()
        assert float(fleet.redis.get(key) or 0) <= seconds * 1000 + micros / 1000 + 200
        wait_until(lambda: float(fleet.redis.get(key) or 0) <= fleet.redis.time()[0] * 1000, "a token")


def test_tools_and_tenants_have_limits_of_their_own(limited: MakeFleet) -> None:
    fleet = limited(
        "[limits.tool.list_directory]\ncalls_per_s = 0.01\n[limits.tenant]\ncalls_per_s = 0.01\nburst = 3\n"
    )
    agent, other = fleet.agent(), fleet.agent()
    assert isinstance(look(agent), Completed)
    refused(look(other), "tool")
    for _ in range(2):
        assert isinstance(other.call("write_file", path="a", content="a"), Completed), "a refused call costs nothing"
    refused(agent.call("read_file", path="a"), "tenant")


def test_so_many_at_once(limited: MakeFleet) -> None:
    fleet = limited("[limits.tool.run_command]\nconcurrent = 1\n")
    agent, other = fleet.agent(), fleet.agent()
    agent.push("c1", "run_command", {"command": "touch up; while [ ! -e go ]; do sleep 0.05; done"})
    wait_until((agent.workspace / "up").exists, "the command")
    assert refused(other.call("run_command", command="true"), "tool") == 1000
    assert isinstance(look(other), Completed)
    agent.push("c2", "run_command", {"command": "echo second"})
    (agent.workspace / "go").touch()
    kinds = {reply["call"]: reply["kind"] for reply in fleet.wait_replies(agent.session, 2)}
    assert kinds == {"c1": "completed", "c2": "completed"}, "what waits for its own session runs after it"
    assert isinstance(other.call("run_command", command="true"), Completed)
    left = fleet.redis.hgetall(keys.active(fleet.queue))
    assert {name for name in left if name != b"#checked"} == set()


def test_what_ended_uncounted_is_forgotten(limited: MakeFleet) -> None:
    fleet = limited("[limits.tenant]\nconcurrent = 2\n")
    agent = fleet.agent()
    key = keys.active(fleet.queue)
    gone = {keys.job_id(fleet.queue, "gone", f"c{n}"): "read_file" for n in range(2)}
    fleet.redis.hset(key, mapping={**gone, "#tenant": 2, "#session:gone": 2, "#tool:read_file": 2})
    fleet.redis.pexpire(key, 60_000)
    assert isinstance(look(agent), Completed)
    assert b"#session:gone" not in fleet.redis.hgetall(key)


def test_a_killed_worker_gives_its_places_back(limited: MakeFleet) -> None:
    fleet = limited("[limits.tool.run_command]\nconcurrent = 1\n")
    fleet.settings["TOOLREEF_LEASE_S"] = "1"
    (worker,) = fleet.workers
    worker.end()
    worker = fleet.start_worker()
    agent, other = fleet.agent(), fleet.agent()
    agent.push("c1", "run_command", {"command": "touch up; sleep 600"})
    wait_until((agent.workspace / "up").exists, "the command")
    worker.signal(signal.SIGKILL)
    fleet.start_worker()
    assert fleet.wait_replies(agent.session, 1)[0]["error"]["code"] == "interrupted"
    assert isinstance(other.call("run_command", command="true"), Completed)


def test_stored_bytes_have_a_window(limited: MakeFleet) -> None:
    fleet = limited("[limits]\nwindow_s = 600\n[limits.session]\nstored_bytes = 30000\n")
    agent, other = fleet.agent(), fleet.agent()
    agent.complete("write_file", path="a", content="x" * 12_000)
    assert isinstance(agent.call("read_file", path="a"), Completed)
    assert 0 < refused(agent.call("write_file", path="b", content="x" * 12_000), "session") <= 600_000
    assert isinstance(look(agent), Completed), "what still fits may run"
    assert isinstance(other.call("write_file", path="a", content="x"), Completed)
    assert 0 < fleet.redis.pttl(keys.stored(fleet.queue, f"session:{agent.session}")) <= 600_000


def test_without_limits_nothing_is_counted(limited: MakeFleet) -> None:
    fleet = limited('default = "allow"\n')
    look(fleet.agent())
    for kind in ("rate", "stored", "active"):
        assert list(fleet.redis.scan_iter(match=f"reef:{{{fleet.queue}}}:{kind}*")) == []


def test_limits_are_reloaded(limited: MakeFleet, tmp_path: Path) -> None:
    fleet = limited("")
    (worker,) = fleet.workers
    agent = fleet.agent()
    assert isinstance(look(agent), Completed)
    (tmp_path / "policy.toml").write_text("version = 1\n[limits.session]\ncalls_per_s = 0.01\n")
    worker.signal(signal.SIGHUP)
    wait_until(lambda: "is in force" in worker.log.read_text(), "the reload")
    assert isinstance(look(agent), Completed)
    refused(look(agent), "session")


def test_what_the_scripts_are_told() -> None:
    assert limits_for_scripts(Limits()) == b""
    told = limits_for_scripts(Limits(session=Limit(calls_per_s=2.5), tool={"run_command": Limit(concurrent=3)}))
    assert told == (
        b'{"session":{"interval_ms":400.0,"burst":3},"tool":{"run_command":{"concurrent":3}},'
        b'"window_ms":3600000,"crowds":true,"stores":false}'
    )
