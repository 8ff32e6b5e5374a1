"""A full queue says so at the door, a full session at its turn, and a reader that fell behind learns of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import keys
from contracts.client import Client, Missed
from contracts.pressure import Gauge, Pressure, read_pressure
from contracts.replies import Completed, Failed
from tests.fleet import Agent, Fleet, serve, wait_until

MakeFleet = Callable[..., Fleet]
HOLD = {"command": "while [ ! -e go ]; do sleep 0.02; done"}


def submit_many(agent: Agent, count: int, tool: str = "run_command", **args: Any) -> list[Failed | Any]:
    """What the client answers at once, a call after the other."""

    async def act(client: Client) -> list[Any]:
        return [(await client.submit(tool, args, session=agent.session)).settled for _ in range(count)]

    return agent.with_client(act)


def pressure_of(fleet: Fleet) -> Pressure:
    return read_pressure(fleet.redis.get(keys.pressure(fleet.queue)))


def wait_pressure(fleet: Fleet, holds: Callable[[Pressure], bool]) -> None:
    wait_until(lambda: holds(pressure_of(fleet)), "the queue's pressure to be published")


def hold(agent: Agent) -> None:
    """Keeps the session busy until its workspace has `go`."""
    agent.push("hold", "run_command", HOLD)
    wait_until(agent.workspace.exists, "the first call to start")


def test_a_full_queue_refuses_at_the_door_and_takes_calls_again_later(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(max_queue_calls=5, concurrency=1)
    fleet.start_worker()
    holder, agent = fleet.agent(), fleet.agent()
    hold(holder)
    wait_pressure(fleet, lambda seen: seen.max_calls == 5)
    settled = submit_many(agent, 8, command="echo x >> log")
    assert settled[:5] == [None] * 5
    for refused in settled[5:]:
        assert isinstance(refused, Failed)
        assert refused.error is not None
        assert (refused.error.code, refused.error.effect, refused.error.retryable) == ("unavailable", "none", True)
        assert 1000 <= (refused.error.retry_after_ms or 0) < 2000
    assert fleet.redis.zcard(keys.queue(fleet.queue)) == 5
    (holder.workspace / "go").touch()
    fleet.wait_replies(agent.session, 5)
    assert agent.complete("run_command", command="cat log")["stdout"] == "x\n" * 5


def test_a_client_counts_what_waits_without_any_worker(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.redis.set(keys.pressure(fleet.queue), "1 0 0 0 0 0 3", px=60_000)
    first, second = fleet.agent(), fleet.agent()
    assert [reply is None for reply in submit_many(first, 4, path=".")] == [True, True, True, False]
    assert [reply is None for reply in submit_many(second, 1, path=".")] == [False]
    assert fleet.redis.zcard(keys.queue(fleet.queue)) == 3
    fleet.redis.delete(keys.queue(fleet.queue))


def test_a_repeat_is_settled_even_at_a_full_queue(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()
    args = {"command": "echo once >> log; cat log"}
    first = agent.call("run_command", args, call_id="c")
    fleet.end()
    fleet.redis.set(keys.pressure(fleet.queue), "1 0 0 0 0 0 0", px=60_000)
    assert agent.call("run_command", args, call_id="c") == first
    conflict = agent.call("run_command", {"command": "other"}, call_id="c")
    refused = agent.call("run_command", args, call_id="another")
    assert [reply.error and reply.error.code for reply in (conflict, refused)] == ["conflict_call_id", "unavailable"]


def test_bytes_and_memory_have_limits_too() -> None:
    gauge = Gauge("q")
    gauge.learn([b"1 2 100 50 0 0 1000 1000", 10, 0])
    assert gauge.refusal(400) is None
    assert gauge.refusal(401) == "about 600 bytes of calls wait in the queue, 1000 is the most"
    gauge.note(100)
    assert gauge.refusal(301) is not None
    gauge.learn([b"1 0 0 0 790 1000 1000 1000 80", 0, 0])
    assert gauge.refusal(10) is None
    assert gauge.refusal(11) == "Redis uses more than 80 % of its memory"
    gauge.learn([b"1 0 0 0 790 0 1000 1000 80", 0, 0])
    assert gauge.refusal(11) is None
    for garbage in (b"", b"x", None):
        assert read_pressure(garbage) == Pressure()


def test_redis_short_of_memory_takes_no_more_calls_and_answers_those_it_has(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        fleet = Fleet(server.url, tmp_path, "q")
        try:
            fleet.start_worker()
            agent = fleet.agent()
            assert isinstance(agent.call("list_directory", {"path": "."}), Completed)
            used = fleet.redis.info("memory")["used_memory"]
            fleet.redis.config_set("maxmemory", int(used * 1.1))
            wait_pressure(fleet, lambda seen: seen.max_memory == int(used * 1.1))
            refused = agent.fail("list_directory", path=".")
            assert (refused.code, refused.effect) == ("unavailable", "none")
            assert refused.message == "Redis uses more than 80 % of its memory"
            fleet.redis.config_set("maxmemory", 1)
            fleet.redis.delete(keys.pressure("q"))
            refused = agent.fail("list_directory", path=".")
            assert refused.code == "unavailable"
            fleet.redis.config_set("maxmemory", 0)
            wait_pressure(fleet, lambda seen: seen.max_memory == 0)
            assert isinstance(agent.call("list_directory", {"path": "."}), Completed)
        finally:
            fleet.end()


@pytest.mark.parametrize("limit", [{"max_session_calls": 3}, {"max_session_bytes": 3_000}], ids=["calls", "bytes"])
def test_a_session_with_too_many_waiting_calls_is_told_at_once(make_fleet: MakeFleet, limit: dict[str, int]) -> None:
    fleet = make_fleet(**limit)
    fleet.start_worker()
    agent, other = fleet.agent(), fleet.agent()
    hold(agent)
    for number in range(5):
        agent.push(f"c{number}", "run_command", {"command": "true" + " " * 800})
    replies = fleet.wait_replies(agent.session, 2)
    assert {(reply["call"], reply["error"]["code"], reply["error"]["effect"]) for reply in replies} == {
        ("c3", "unavailable", "none"),
        ("c4", "unavailable", "none"),
    }
    assert all(reply["error"]["retryable"] and reply["error"]["retry_after_ms"] == 1000 for reply in replies)
    assert fleet.redis.hget(keys.parked(fleet.queue), "calls") == b"3"
    assert isinstance(other.call("list_directory", {"path": "."}), Completed)
    (agent.workspace / "go").touch()
    last = fleet.wait_replies(agent.session, 6)[2:]
    assert [(reply["call"], reply["kind"]) for reply in last] == [
        (name, "completed") for name in ("hold", "c0", "c1", "c2")
    ]
    assert fleet.redis.exists(keys.parked(fleet.queue), keys.running(fleet.queue, agent.session)) == 0


def test_what_is_cancelled_while_it_waits_waits_no_longer(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()
    hold(agent)
    for number in range(3):
        agent.push(f"c{number}", "run_command", {"command": "true"})
    parked = keys.parked(fleet.queue)
    wait_until(lambda: fleet.redis.hget(parked, "calls") == b"3", "three calls to wait")
    whole = int(fleet.redis.hget(parked, "bytes"))
    agent.with_client(lambda client: client.cancel(agent.session, "c1"))
    fleet.wait_replies(agent.session, 1)
    counted = [int(number) for number in fleet.redis.hmget(parked, "calls", "bytes")]
    own = [int(number) for number in fleet.redis.hmget(keys.running(fleet.queue, agent.session), "#w", "#b")]
    assert counted == own == [2, whole * 2 // 3]
    (agent.workspace / "go").touch()
    fleet.wait_replies(agent.session, 4)
    assert fleet.redis.exists(parked) == 0


def test_a_call_costs_at_most_eight_commands(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent, calls = fleet.agent(), 100

    async def act(client: Client) -> None:
        for number in range(calls):
            await client.call("list_directory", {"path": "."}, session=agent.session, call_id=f"c{number}")

    sent: Counter[str] = Counter()
    with fleet.redis.monitor() as monitor:
        agent.with_client(act)
        fleet.redis.echo(fleet.queue)
        # What a script does is no command on the wire.
        for each in iter(monitor.next_command, None):
            if each["command"] == f"ECHO {fleet.queue}":
                break
            if each["client_type"] != "lua" and fleet.queue in each["command"]:
                sent[each["command"].split()[0]] += 1
    assert sent["SET"] == sent["ZADD"] == sent["LPUSH"] == calls
    # Eight a call; the rest is what the client and an idle worker ask once a second.
    assert {name: round(count / calls) for name, count in sent.items() if count > calls // 2} == {
        **dict.fromkeys(("SET", "ZADD", "LPUSH", "GET", "XREAD", "BLPOP"), 1),
        "EVALSHA": 2,
    }
    assert sent.total() < 8.5 * calls, sent


def test_a_reader_that_fell_behind_learns_of_it(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(replies_kept=10)
    fleet.start_worker()
    agent = fleet.agent()

    async def act(client: Client) -> tuple[list[Any], list[Any]]:
        await client.call("list_directory", {"path": "."}, session=agent.session, call_id="first")
        reader = client.replies(agent.session, follow=True)
        read = [await anext(reader)]
        calls = (
            client.call("list_directory", {"path": "."}, session=agent.session, call_id=f"c{number}")
            for number in range(300)
        )
        await asyncio.gather(*calls)
        read += [await anext(reader), await anext(reader)]
        steady = [each async for each in client.replies(agent.session, after=read[-1][0])]
        return read, steady

    read, steady = agent.with_client(act)
    (first_id, first), (missed_id, missed), (next_id, after) = read
    assert (first.call, missed_id) == ("first", first_id)
    assert missed == Missed(session=agent.session, after=first_id, next=next_id)
    assert isinstance(after, Completed)
    assert not any(isinstance(reply, Missed) for _, reply in steady)
    said = fleet.run("replies", "--session", agent.session, "--after", first_id)
    lines = [msgspec.json.decode(line) for line in said.stdout.splitlines()]
    assert lines[0] == {"v": 1, "kind": "missed", "session": agent.session, "after": first_id, "next": next_id}
    assert [line["kind"] for line in lines[1:]] == ["completed"] * (len(steady) + 1)


@pytest.mark.parametrize("size, effect", [(10, None), (9_000, "unknown")])
def test_a_waiter_gets_what_is_known_of_a_trimmed_reply(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, size: int, effect: str | None
) -> None:
    monkeypatch.setattr("contracts.streams.BLOCK_MS", 500)
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()
    agent.complete("write_file", path="a.txt", content="x" * size)

    async def act(client: Client) -> Any:
        stream = keys.replies(fleet.queue, agent.session)
        submitted = await client.submit("read_file", {"path": "a.txt"}, session=agent.session, call_id="c")
        assert submitted.settled is None
        await asyncio.to_thread(fleet.wait_replies, agent.session, 2)
        done = fleet.redis.get(keys.done(fleet.queue, agent.session, "c"))
        fleet.redis.xtrim(stream, maxlen=0, approximate=False)
        fleet.redis.delete(keys.done(fleet.queue, agent.session, "c"))
        waiting = asyncio.create_task(client.wait(agent.session, "c", timeout_s=20))
        await asyncio.sleep(0.1)
        fleet.redis.set(keys.done(fleet.queue, agent.session, "c"), done, px=60_000)
        return await waiting

    reply = agent.with_client(act)
    if effect is None:
        assert isinstance(reply, Completed)
        assert reply.output["text"] == "x" * size
    else:
        assert (reply.error.code, reply.error.effect, reply.error.retryable) == ("unavailable", effect, False)
