"""Delivery, through the public entry: what goes in at the queue comes out of the reply stream, once, whatever dies."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from arq.connections import ArqRedis, RedisSettings, create_pool

from contracts import keys
from contracts.client import Client
from contracts.codec import encode
from contracts.replies import Completed, Failed, Progress
from tests.fleet import Agent, Fleet, wait_until

MakeFleet = Callable[..., Fleet]
SHORT_LEASE = {"lease_s": 1.5}


def outcome(reply: dict[str, Any]) -> tuple[str, str, str | None]:
    """What identifies an outcome: call, kind, error code."""
    return reply["call"], reply["kind"], reply["error"]["code"] if reply["error"] else None


def test_a_call_pushed_by_our_client_runs(agent: Agent) -> None:
    output = agent.complete("write_file", path="a.txt", content="hello\n")
    assert output["bytes"] == 6
    assert (agent.workspace / "a.txt").read_bytes() == b"hello\n"


def test_a_call_pushed_by_stock_arq_runs(agent: Agent) -> None:
    agent.complete("write_file", path="a.txt", content="by arq\n")
    queue, session = agent.fleet.queue, agent.session

    async def enqueue() -> None:
        settings = RedisSettings(unix_socket_path=agent.fleet.url.removeprefix("unix://"))
        pool: ArqRedis = await create_pool(settings, job_serializer=encode, job_deserializer=json.loads)
        await pool.enqueue_job(
            "read_file",
            {"v": 1, "args": {"path": "a.txt"}},
            _job_id=keys.job_id(queue, session, "from-arq"),
            _queue_name=keys.queue(queue),
        )
        await pool.aclose()

    asyncio.run(enqueue())
    reply = agent.fleet.wait_replies(session, 2)[1]
    assert outcome(reply) == ("from-arq", "completed", None)
    assert reply["output"]["text"] == "by arq\n"


def test_calls_that_come_one_by_one_hold_up_none_that_come_at_once(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    worker = fleet.start_worker()
    agent = fleet.agent()
    names = [f"c{number}" for number in range(11)]
    for number, name in enumerate(names):
        agent.push(name, "list_directory", {"path": "."})
        if number < 6 or number > 8:
            fleet.wait_replies(agent.session, number + 1)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    replies = sorted(fleet.replies(agent.session), key=lambda reply: int(reply["call"][1:]))
    assert [outcome(reply) for reply in replies] == [(name, "completed", None) for name in names]


def test_a_call_pushed_by_bare_commands_runs(agent: Agent) -> None:
    job_id = keys.job_id(agent.fleet.queue, agent.session, "bare")
    payload = b'{"t":null,"f":"list_directory","a":[{"v":1,"args":{"path":"."}}],"k":{},"et":0}'
    agent.fleet.push_raw(job_id, payload)
    reply = agent.fleet.wait_replies(agent.session, 1)[0]
    assert outcome(reply) == ("bare", "completed", None)
    assert reply["output"]["entries"] == []


@pytest.mark.parametrize(
    "payload, code",
    [
        (b"not json", "invalid_call"),
        (b"\xff\xfe", "invalid_call"),
        (b"[" * 100_000, "invalid_call"),
        (b"{}", "invalid_call"),
        (b'{"t":null,"f":"no_such_tool","a":[{"v":1,"args":{}}],"k":{},"et":0}', "invalid_call"),
        (b'{"t":null,"f":"read_file","a":[{"v":1,"args":{"path":7}}],"k":{},"et":0}', "invalid_call"),
        (b'{"t":null,"f":"read_file","a":[{"v":1,"args":{"path":"a","colour":1}}],"k":{},"et":0}', "invalid_call"),
        (b'{"t":null,"f":"read_file","a":[{"v":9,"args":{"path":"a"}}],"k":{},"et":0}', "invalid_call"),
        (b'{"t":null,"f":"read_file","a":[],"k":{},"et":0}', "invalid_call"),
        (
            b'{"t":null,"f":"read_file","f":"run_command","a":[{"v":1,"args":{"command":"id"}}],"k":{},"et":0}',
            "invalid_call",
        ),
        (b'{"t":null,"f":"read_file","a":[{"v":1,"args":{"path":"a"},"deadline_ms":1}],"k":{},"et":0}', "expired"),
        (b" " * (5 * 1024 * 1024), "too_large"),
    ],
)
def test_what_cannot_be_carried_out_still_gets_its_one_reply(agent: Agent, payload: bytes, code: str) -> None:
    agent.fleet.push_raw(keys.job_id(agent.fleet.queue, agent.session, "bad"), payload)
    replies = agent.fleet.wait_replies(agent.session, 1)
    assert [outcome(reply) for reply in replies] == [("bad", "failed", code)]
    assert replies[0]["error"]["effect"] in ("none", "failed")
    assert agent.complete("list_directory", path=".")["entries"] == []


@pytest.mark.parametrize(
    "member", ["no colon", "{other}:s:c", "{%s}:only-session", "{%s}:s:c:d", "{%s}:-s:c", "\udcff"]
)
def test_an_entry_that_is_no_call_goes_to_the_dead_letters(make_fleet: MakeFleet, member: str) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    raw = member.replace("%s", fleet.queue).encode("utf-8", "surrogateescape")
    fleet.redis.zadd(keys.queue(fleet.queue), {raw: 0})
    fleet.redis.lpush(keys.bell(fleet.queue), 1)
    wait_until(lambda: fleet.redis.xlen(keys.dead(fleet.queue)), "a dead letter")
    assert fleet.redis.xrange(keys.dead(fleet.queue))[0][1] == {b"id": raw, b"why": b"not a job id of this queue"}
    assert fleet.redis.zcard(keys.queue(fleet.queue)) == 0


def test_an_id_without_payload_goes_to_the_dead_letters(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    job_id = keys.job_id(fleet.queue, "s", "c")
    fleet.push_raw(job_id, None)
    wait_until(lambda: fleet.redis.xlen(keys.dead(fleet.queue)), "a dead letter")
    assert fleet.redis.xrange(keys.dead(fleet.queue))[0][1] == {b"id": job_id.encode(), b"why": b"no payload"}
    assert fleet.replies("s") == []


def test_a_payload_key_of_a_wrong_type_hurts_nobody_else(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    evil, good = fleet.agent(), fleet.agent()
    fleet.redis.rpush(f"arq:job:{keys.job_id(fleet.queue, evil.session, 'x')}", "a", "b")
    fleet.push_raw(keys.job_id(fleet.queue, evil.session, "x"), None)
    assert good.complete("list_directory", path=".")["entries"] == []
    wait_until(lambda: fleet.redis.xlen(keys.dead(fleet.queue)), "a dead letter")


def test_the_same_call_again_gets_the_first_outcome_and_runs_nothing(agent: Agent) -> None:
    command = {"command": "echo once >> log; cat log"}
    first = agent.call("run_command", command, call_id="twice")
    again = agent.call("run_command", command, call_id="twice")
    assert first == again
    assert (agent.workspace / "log").read_text() == "once\n"
    assert len(agent.fleet.replies(agent.session)) == 1


def test_the_same_call_id_for_another_call_is_a_conflict(agent: Agent) -> None:
    agent.call("run_command", {"command": "echo a"}, call_id="c")
    reply = agent.call("run_command", {"command": "echo b"}, call_id="c")
    assert isinstance(reply, Failed)
    assert reply.error is not None
    assert (reply.error.code, reply.error.effect) == ("conflict_call_id", "none")
    assert len(agent.fleet.replies(agent.session)) == 1


def test_a_call_on_its_way_is_told_so(agent: Agent) -> None:
    command = {"command": "while [ ! -e go ]; do sleep 0.02; done; echo done"}
    agent.push("slow", "run_command", command)
    wait_until(agent.workspace.exists, "the call to start")

    async def act(client: Client) -> tuple[Any, Any, Any]:
        same = await client.call("run_command", command, session=agent.session, call_id="slow", timeout_s=10)
        other = await client.call("run_command", {"command": "x"}, session=agent.session, call_id="slow", timeout_s=10)
        (agent.workspace / "go").touch()
        return same, other, await client.wait(agent.session, "slow", timeout_s=10)

    same, other, final = agent.with_client(act)
    assert [same.error.code, other.error.code] == ["in_flight", "conflict_call_id"]
    assert isinstance(final, Completed)
    assert final.output["stdout"] == "done\n"
    assert len(agent.fleet.replies(agent.session)) == 1


def test_effects_of_a_session_run_alone_and_in_order(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    fleet.start_worker()
    agent = fleet.agent()
    for number in range(20):
        agent.push(f"c{number:02}", "run_command", {"command": f"echo begin {number} >> log; echo end {number} >> log"})
    fleet.wait_replies(agent.session, 20)
    lines = [f"{word} {number}" for number in range(20) for word in ("begin", "end")]
    assert (agent.workspace / "log").read_text().splitlines() == lines
    assert [reply["call"] for reply in fleet.replies(agent.session)] == [f"c{number:02}" for number in range(20)]


def test_reads_wait_for_the_effect_before_them_and_effects_for_the_reads(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()
    agent.push("w1", "run_command", {"command": "sleep 0.3; echo 1 > f"})
    for number in range(5):
        agent.push(f"r1{number}", "read_file", {"path": "f"})
    agent.push("w2", "run_command", {"command": "echo 2 > f"})
    for number in range(5):
        agent.push(f"r2{number}", "read_file", {"path": "f"})
    replies = fleet.wait_replies(agent.session, 12)
    assert [reply["call"] for reply in replies if reply["call"].startswith("w")] == ["w1", "w2"]
    texts = {reply["call"]: reply["output"]["text"] for reply in replies if reply["call"].startswith("r")}
    assert texts == {f"r{which}{number}": f"{which}\n" for which in (1, 2) for number in range(5)}


def test_one_session_holds_up_nobody_else(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(concurrency=4)
    fleet.start_worker()
    hog, other = fleet.agent(), fleet.agent()
    hog.push("first", "run_command", {"command": "while [ ! -e go ]; do sleep 0.02; done"})
    for number in range(50):
        hog.push(f"c{number}", "run_command", {"command": "true"})
    assert other.complete("run_command", command="echo through")["stdout"] == "through\n"
    assert fleet.replies(hog.session) == []
    (hog.workspace / "go").touch()
    fleet.wait_replies(hog.session, 51)


def test_no_more_calls_run_at_once_than_there_are_slots(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(concurrency=2)
    worker = fleet.start_worker()
    agents = [fleet.agent() for _ in range(8)]
    for each in agents:
        fleet.redis.hset(keys.session(fleet.queue, each.session), "workspace", "shared")
        each.push("c", "run_command", {"command": "echo + >> log; sleep 0.1; echo - >> log"})
    for each in agents:
        fleet.wait_replies(each.session, 1)
    log = (fleet.workspace("shared") / "log").read_text().split()
    running = list(itertools.accumulate(1 if mark == "+" else -1 for mark in log))
    assert (len(log), max(running)) == (16, 2)
    assert worker.process.poll() is None


def test_batch_calls_run_after_interactive_ones_but_are_not_starved(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(concurrency=1)
    agents = [fleet.agent(f"i{number}") for number in range(20)]
    batch = fleet.agent("batch")

    async def submit(client: Client) -> None:
        for number in range(4):
            await client.submit(
                "list_directory", {"path": "."}, session=batch.session, call_id=f"b{number}", priority="batch"
            )
        for each in agents:
            await client.submit("list_directory", {"path": "."}, session=each.session, call_id="i")

    batch.with_client(submit)
    fleet.start_worker()
    for each in agents:
        fleet.wait_replies(each.session, 1)
    fleet.wait_replies(batch.session, 4)
    audit = [json.loads(fields[b"entry"])["id"] for _, fields in fleet.redis.xrange(keys.audit(fleet.queue))]
    places = [place for place, job in enumerate(audit) if ":batch:" in job]
    assert len(audit) == 24
    assert places[0] > 0
    assert places[-1] <= 20


def test_a_tool_that_takes_too_long_is_stopped(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(tool_timeout_s=0.25)
    worker = fleet.start_worker()
    agent = fleet.agent()
    agent.workspace.mkdir(parents=True)
    target = agent.workspace / "f"
    target.write_text("before\n")
    with target.open() as held:
        # A writer waits for another one that holds the file.
        fcntl.flock(held, fcntl.LOCK_EX)
        error = agent.fail("write_file", path="f", content="late\n")
        assert (error.code, error.message) == ("timeout", "write_file took longer than 0.25 s")
    assert target.read_text() == "before\n"
    agent.complete("write_file", path="f", content="after\n")
    assert target.read_text() == "after\n"
    assert "Traceback" not in worker.log.read_text()


def test_a_call_beyond_its_deadline_is_stopped(agent: Agent) -> None:
    async def act(client: Client) -> Any:
        command = {"command": "echo begun; sleep 60"}
        return await client.call("run_command", command, session=agent.session, deadline_s=1.0, timeout_s=20)

    reply = agent.with_client(act)
    assert (reply.error.code, reply.output["stdout"], reply.output["timed_out"]) == ("timeout", "begun\n", True)


@pytest.mark.parametrize("tool", ["run_command", "read_file"])
def test_a_call_is_cancelled_while_it_waits(make_fleet: MakeFleet, tool: str) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()
    agent.push("first", "run_command", {"command": "while [ ! -e go ]; do sleep 0.02; done"})
    agent.push("second", tool, {"command": "touch ran"} if tool == "run_command" else {"path": "x"})
    agent.push("third", "read_file", {"path": "go"})
    wait_until(lambda: fleet.redis.hget(keys.running(fleet.queue, agent.session), "#w") == b"2", "two calls to wait")
    agent.with_client(lambda client: client.cancel(agent.session, "second"))
    assert [outcome(r) for r in fleet.wait_replies(agent.session, 1)] == [("second", "failed", "cancelled")]
    assert fleet.replies(agent.session)[0]["error"]["effect"] == "none"
    (agent.workspace / "go").touch()
    replies = fleet.wait_replies(agent.session, 3)
    assert [outcome(r)[:2] for r in replies[1:]] == [("first", "completed"), ("third", "completed")]
    assert not (agent.workspace / "ran").exists()


def test_a_call_is_cancelled_before_any_worker_sees_it(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    agent = fleet.agent()
    agent.push("c", "run_command", {"command": "touch ran"})
    agent.with_client(lambda client: client.cancel(agent.session, "c"))
    fleet.start_worker()
    replies = fleet.wait_replies(agent.session, 1)
    assert [outcome(r) for r in replies] == [("c", "failed", "cancelled")]
    assert not (agent.workspace / "ran").exists()


def test_a_running_call_is_cancelled_with_its_whole_tree(agent: Agent) -> None:
    agent.push("c", "run_command", {"command": "echo begun; (while :; do date >> beat; sleep 0.05; done) & wait"})
    wait_until((agent.workspace / "beat").exists, "the command to run")
    agent.with_client(lambda client: client.cancel(agent.session, "c"))
    reply = agent.fleet.wait_replies(agent.session, 1)[0]
    assert outcome(reply) == ("c", "failed", "cancelled")
    assert (reply["error"]["effect"], reply["output"]["stdout"]) == ("unknown", "begun\n")
    size = (agent.workspace / "beat").stat().st_size
    agent.complete("run_command", command="sleep 0.2")
    assert (agent.workspace / "beat").stat().st_size == size


def test_a_wish_to_cancel_that_is_only_published_stops_nothing(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    victim, other = fleet.agent(), fleet.agent()
    for each in (victim, other):
        each.push("c", "run_command", {"command": "touch begun; while [ ! -e go ]; do sleep 0.02; done"})
        wait_until((each.workspace / "begun").exists, "the command to run")
    # Whoever may publish may name any call; only its own agent may write the key.
    fleet.redis.publish(keys.cancel_channel(fleet.queue), f"{victim.session}:c")
    other.with_client(lambda client: client.cancel(other.session, "c"))
    assert [outcome(r) for r in fleet.wait_replies(other.session, 1)] == [("c", "failed", "cancelled")]
    (victim.workspace / "go").touch()
    assert [outcome(r) for r in fleet.wait_replies(victim.session, 1)] == [("c", "completed", None)]


def test_an_effect_of_a_killed_worker_is_interrupted_and_never_run_again(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(**SHORT_LEASE)
    victim = fleet.start_worker()
    agent = fleet.agent()
    agent.push("c", "run_command", {"command": "echo run >> log; touch begun; sleep 30"})
    agent.push("after", "run_command", {"command": "cat log"})
    wait_until((agent.workspace / "begun").exists, "the effect to start")
    victim.signal(signal.SIGKILL)
    fleet.start_worker()
    replies = fleet.wait_replies(agent.session, 2)
    assert [outcome(r) for r in replies] == [("c", "failed", "interrupted"), ("after", "completed", None)]
    assert replies[0]["error"]["effect"] == "unknown"
    assert replies[0]["attempt"] == 2
    assert replies[1]["output"]["stdout"] == "run\n"


def test_a_worker_stopped_longer_than_its_lease_is_fenced(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(**SHORT_LEASE)
    frozen = fleet.start_worker()
    agent = fleet.agent()
    agent.push("c", "run_command", {"command": "touch begun; sleep 2"})
    wait_until((agent.workspace / "begun").exists, "the effect to start")
    frozen.signal(signal.SIGSTOP)
    fleet.start_worker()
    assert [outcome(r) for r in fleet.wait_replies(agent.session, 1)] == [("c", "failed", "interrupted")]
    frozen.signal(signal.SIGCONT)
    frozen.signal(signal.SIGTERM)
    assert frozen.wait() == 0
    assert len(fleet.replies(agent.session)) == 1


def test_sigterm_drains(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    worker = fleet.start_worker()
    agent = fleet.agent()
    agent.push("running", "run_command", {"command": "touch begun; sleep 0.7; echo whole"})
    agent.push("waiting", "run_command", {"command": "echo later"})
    wait_until((agent.workspace / "begun").exists, "the effect to start")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    replies = fleet.replies(agent.session)
    assert [(outcome(r), r["output"]["stdout"]) for r in replies] == [(("running", "completed", None), "whole\n")]
    assert fleet.redis.exists(keys.workers(fleet.queue)) == 0
    fleet.start_worker()
    assert [outcome(r)[0] for r in fleet.wait_replies(agent.session, 2)] == ["running", "waiting"]


def test_sigterm_interrupts_what_outlasts_the_drain(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(drain_s=0.5)
    worker = fleet.start_worker()
    agent = fleet.agent()
    agent.push("c", "run_command", {"command": "echo begun; touch begun; sleep 60"})
    wait_until((agent.workspace / "begun").exists, "the effect to start")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    reply = fleet.replies(agent.session)[0]
    assert (outcome(reply), reply["output"]["stdout"]) == (("c", "failed", "interrupted"), "begun\n")


def test_a_kill_under_load_loses_and_doubles_nothing(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(**SHORT_LEASE)
    victims = [fleet.start_worker() for _ in range(2)]
    agents = [fleet.agent() for _ in range(10)]
    for number in range(30):
        for each in agents:
            line = f"echo {number} >> log"
            tool, args = ("run_command", {"command": line}) if number % 3 == 0 else ("list_directory", {"path": "."})
            each.push(f"c{number}", tool, args)
        if number == 15:
            wait_until(lambda: sum(len(fleet.replies(each.session)) for each in agents) > 20, "some replies")
            victims[0].signal(signal.SIGKILL)
    fleet.start_worker()
    for each in agents:
        fleet.wait_replies(each.session, 30, 60)
    for each in agents:
        replies = fleet.replies(each.session)
        assert sorted(reply["call"] for reply in replies) == sorted(f"c{number}" for number in range(30))
        ran = (each.workspace / "log").read_text().split()
        assert len(ran) == len(set(ran))
        surely = {r["call"][1:] for r in replies if r["kind"] == "completed" and r["tool"] == "run_command"}
        assert surely <= set(ran)
        assert {outcome(r)[2] for r in replies} <= {None, "interrupted"}


def test_a_hostile_entry_moves_nothing_that_runs_or_waits(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()
    running = agent.push("running", "run_command", {"command": "echo 1 >> log; while [ ! -e go ]; do sleep 0.02; done"})
    waiting = agent.push("waiting", "run_command", {"command": "echo 2 >> log"})
    wait_until(lambda: fleet.redis.hget(keys.running(fleet.queue, agent.session), "#w") == b"1", "one call to wait")
    for score in (0, -1e18, 1e18):
        fleet.redis.zadd(keys.queue(fleet.queue), {running: score, waiting: score})
        fleet.redis.lpush(keys.bell(fleet.queue), 1)
    assert fleet.agent().complete("list_directory", path=".")["entries"] == []
    (agent.workspace / "go").touch()
    replies = fleet.wait_replies(agent.session, 2)
    assert [outcome(r) for r in replies] == [("running", "completed", None), ("waiting", "completed", None)]
    assert (agent.workspace / "log").read_text() == "1\n2\n"
    fleet.redis.zremrangebyscore(keys.queue(fleet.queue), "-inf", "+inf")


def test_a_callback_that_raises_ends_its_own_call_only(shared_fleet: Fleet) -> None:
    noisy, other = shared_fleet.agent(), shared_fleet.agent()

    async def act(client: Client) -> Any:
        def refuse(_: Progress) -> None:
            raise KeyError("the caller's own")

        slow = {"command": "echo one; sleep 0.5; echo two"}
        return await asyncio.gather(
            client.call("run_command", slow, session=noisy.session, on_progress=refuse),
            client.call("run_command", slow, session=other.session),
            return_exceptions=True,
        ), await client.call("run_command", {"command": "echo later"}, session=noisy.session)

    (refused, answered), later = noisy.with_client(act)
    assert repr(refused) == repr(KeyError("the caller's own"))
    assert (answered.output["stdout"], later.output["stdout"]) == ("one\ntwo\n", "later\n")
