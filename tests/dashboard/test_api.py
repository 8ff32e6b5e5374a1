"""What the API says, against real workers: the same as the command line, bounded, and whatever agents have written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest

from contracts import keys
from contracts.levels import Level
from contracts.orchestrator import Orchestrator
from tests.dashboard.conftest import Dashboard, wait_for_running
from tests.fleet import Agent, Fleet, wait_until

MakeFleet = Callable[..., Fleet]
MakeDashboard = Callable[..., Dashboard]
PAGES = ["queues", "workers", "running", "calls", "sessions", "plans", "failures", "me"]


def prepare(fleet: Fleet, session: str, **options: Any) -> None:
    """Opens a session as the orchestrator does."""

    async def main() -> None:
        async with Orchestrator.connect(fleet.url, queue=fleet.queue) as orchestrator:
            await orchestrator.open_session(session, **options)

    asyncio.run(main())


def call_path(agent: Agent, call: str) -> str:
    return f"/api/calls/{agent.fleet.queue}/{agent.session}/{call}"


def found(dashboard: Dashboard, agent: Agent, **query: object) -> list[str]:
    """The calls of the agent's session that a search finds, sorted."""
    asked = urlencode({"session": agent.session, **query})
    return sorted(row["call"] for row in dashboard.get(f"/api/calls?{asked}")["calls"])


def test_a_queue_says_what_the_command_line_says(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    for number in range(3):
        fleet.push_raw(keys.job_id(fleet.queue, "s", f"c{number}"), b"{}", 1)
    fleet.redis.xadd(keys.dead(fleet.queue), {"id": "x", "why": "test"})
    fleet.redis.hset(keys.workers(fleet.queue), "w1", '1 {"slots":4,"running":1}')
    fleet.redis.pexpire(keys.workers(fleet.queue), 60_000)
    said = json.loads(fleet.run("status", "--json").stdout)
    (shown,) = make_dashboard(fleet).get("/api/queues")["queues"]
    for each in (said, shown):
        for field in ("now_ms", "oldest_ms"):
            assert each.pop(field) > 1_000_000_000_000
        for worker in each["workers"]:
            assert worker.pop("age_ms") > 1_000_000_000_000
    assert {name: shown[name] for name in said} == said
    assert (shown["depth"], shown["dead"], shown["workers_alive"]) == (3, 1, 0)
    fleet.redis.delete(keys.queue(fleet.queue))


def test_a_call_from_submit_to_reply(dashboard: Dashboard, looker: Agent) -> None:
    looker.complete("write_file", path="a.txt", content="one\ntwo\n")
    looker.call("read_file", path="a.txt", call_id="r1")
    call = dashboard.get(call_path(looker, "r1"))
    assert (call["state"], call["tool"], call["attempt"], call["level"]) == ("completed", "read_file", 1, "PUBLIC")
    assert call["output"]["value"]["text"] == "one\ntwo\n"
    assert call["args"]["value"] == "a.txt"
    assert call["decision"] == {"verdict": "allow", "policy": "", "rule": "", "reason": "no policy objected"}
    assert [step["name"] for step in call["timeline"]] == ["submitted", "claimed", "replied"]
    times = [step["at_ms"] for step in call["timeline"]]
    assert times == sorted(times)
    assert times[2] - times[1] == call["run_ms"]
    assert times[1] - times[0] == call["queued_ms"]
    (entry,) = call["audit"]
    assert (entry["call"], entry["state"], entry["worker"]) == ("r1", "completed", call["worker"])


def test_a_denied_call_says_which_rule(dashboard: Dashboard, looker: Agent) -> None:
    looker.call("run_command", command="sudo id", call_id="d1")
    call = dashboard.get(call_path(looker, "d1"))
    assert call["state"] == "denied"
    assert (call["decision"]["verdict"], call["decision"]["policy"]) == ("deny", "command_denylist")
    assert call["decision"]["rule"]
    assert call["decision"]["reason"] == call["error"]["value"]["message"]
    (row,) = dashboard.get(f"/api/calls?session={looker.session}&status=denied")["calls"]
    assert (row["about"]["value"], row["rule"]) == ("sudo id", call["decision"]["rule"])


def test_a_failed_call_keeps_what_it_printed(dashboard: Dashboard, looker: Agent) -> None:
    looker.call("run_command", command="echo so far; sleep 30", timeout_s=0.3, call_id="t1")
    call = dashboard.get(call_path(looker, "t1"))
    assert (call["state"], call["error"]["value"]["code"]) == ("failed", "timeout")
    assert call["output"]["value"]["stdout"] == "so far\n"
    assert call["output"]["value"]["timed_out"] is True


def test_a_running_call_shows_its_output_and_age(dashboard: Dashboard, looker: Agent) -> None:
    looker.push("slow", "run_command", {"command": "echo first; echo second; sleep 60"})
    wait_for_running(looker, "slow")
    wait_until(lambda: dashboard.get(call_path(looker, "slow"))["pieces"], "its output")
    call = dashboard.get(call_path(looker, "slow"))
    assert (call["state"], call["args"]["value"]) == ("running", {"command": "echo first; echo second; sleep 60"})
    assert "".join(piece["text"]["value"] for piece in call["pieces"]) == "first\nsecond\n"
    assert 0 <= call["run_ms"] < 60_000
    rows = [row for row in dashboard.get("/api/running")["calls"] if row["session"] == looker.session]
    assert [(row["call"], row["tool"], row["state"], row["attempt"]) for row in rows] == [
        ("slow", "run_command", "running", 1)
    ]
    assert rows[0]["last_output"]["value"] == "second"
    assert rows[0]["worker"] == call["worker"]
    assert abs(rows[0]["started_ms"] - call["timeline"][1]["at_ms"]) < 20
    looker.with_client(lambda client: client.cancel(looker.session, "slow"))
    looker.fleet.wait_replies(looker.session, 1)
    wait_until(lambda: dashboard.get(call_path(looker, "slow"))["state"] == "failed", "its end")
    assert dashboard.get(call_path(looker, "slow"))["error"]["value"]["code"] == "cancelled"


def test_a_call_that_waits_says_for_what(dashboard: Dashboard, looker: Agent) -> None:
    looker.push("first", "run_command", {"command": "sleep 60"})
    wait_for_running(looker, "first")
    looker.push("second", "write_file", {"path": "x", "content": "y"})
    wait_until(lambda: dashboard.get(call_path(looker, "second"))["state"] == "waiting", "it to be parked")
    session = dashboard.get(f"/api/sessions/{looker.fleet.queue}/{looker.session}")
    assert (session["running"], session["waiting"], session["waiting_first"]) == (["first"], 1, ["second"])
    looker.with_client(lambda client: client.cancel(looker.session, "first"))
    looker.fleet.wait_replies(looker.session, 2)


def test_what_nobody_submitted_is_unknown(dashboard: Dashboard, looker: Agent) -> None:
    answer = dashboard.ask(call_path(looker, "never"))
    assert (answer.status, answer.json["error"]) == (404, "unknown")
    assert dashboard.ask(f"/api/sessions/{looker.fleet.queue}/never").status == 404
    assert dashboard.ask("/api/sessions/other-queue/s").status == 404
    assert dashboard.ask("/api/calls/watched/-bad/c").status == 400
    assert dashboard.ask("/api/calls?since_ms=yesterday").status == 400
    assert dashboard.ask("/api/queues?window=1y").status == 400
    assert dashboard.ask("/api/live/nothing").status == 404


def test_search_by_each_field(dashboard: Dashboard, looker: Agent) -> None:
    looker.call("write_file", path="notes/plan.txt", content="x", call_id="w1")
    middle_ms = int(looker.fleet.redis.time()[0]) * 1000 + 999
    wait_until(lambda: int(looker.fleet.redis.time()[0]) * 1000 > middle_ms, "the next second")
    looker.call("read_file", path="notes/plan.txt", call_id="r1")
    looker.call("read_file", path="missing.txt", call_id="r2")
    looker.call("run_command", command="sudo id", call_id="c1")
    assert found(dashboard, looker) == ["c1", "r1", "r2", "w1"]
    assert found(dashboard, looker, tool="read_file") == ["r1", "r2"]
    assert found(dashboard, looker, status="completed") == ["r1", "w1"]
    assert found(dashboard, looker, status="not_found") == ["r2"]
    assert found(dashboard, looker, status="denied") == ["c1"]
    assert found(dashboard, looker, text="plan.txt") == ["r1", "w1"]
    assert found(dashboard, looker, text=f"{looker.session}:w1") == ["w1"]
    assert found(dashboard, looker, since_ms=middle_ms) == ["c1", "r1", "r2"]
    assert found(dashboard, looker, until_ms=middle_ms) == ["w1"]
    assert found(dashboard, looker, text="no such thing") == []


def test_a_search_goes_on_where_it_stopped(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    put_entries(fleet, 12_345, lambda n: {"id": keys.job_id(fleet.queue, f"s{n % 7}", f"c{n}"), "tool": "read_file"})
    dashboard = make_dashboard(fleet)
    first = dashboard.get("/api/calls")
    assert [row["call"] for row in first["calls"][:2]] == ["c12344", "c12343"]
    assert (len(first["calls"]), first["looked_at"]) == (100, 100)
    second = dashboard.get(f"/api/calls?before={first['more']}")
    assert second["calls"][0]["call"] == "c12244"
    empty = dashboard.get("/api/calls?session=nobody")
    assert (empty["calls"], empty["looked_at"]) == ([], 5_000)
    rare = dashboard.get(f"/api/calls?text=:c39&session=s3&before={empty['more']}")
    assert [row["call"] for row in rare["calls"]] == [f"c{n}" for n in range(3993, 3899, -7)]
    rest = dashboard.get(f"/api/calls?session=nobody&before={rare['more']}")
    assert (rest["looked_at"], rest["more"]) == (2_345, None)
    assert dashboard.get("/api/calls?before=5-0")["calls"] == []
    assert dashboard.get(f"/api/sessions/{fleet.queue}/s3")["calls"][0]["session"] == "s3"


def put_entries(fleet: Fleet, count: int, make: Callable[[int], dict[str, Any]]) -> None:
    """Writes the audit stream as finish.lua does, without the work."""
    with fleet.redis.pipeline(transaction=False) as pipe:
        for number in range(count):
            entry = {"kind": "completed", "code": "", "run_ms": 3, "queued_ms": 1, "worker": "w", **make(number)}
            pipe.xadd(keys.audit(fleet.queue), {"entry": json.dumps(entry)})
        pipe.execute()


def test_the_next_to_run_can_be_looked_at(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    agent = fleet.agent()
    for number in range(3):
        agent.push(f"c{number}", "run_command", {"command": f"echo {number}"})
    agent.push("late", "read_file", {"path": "x"})
    dashboard = make_dashboard(fleet)
    rows = dashboard.get("/api/calls?status=queued")["calls"]
    assert [(row["call"], row["about"]["value"]) for row in rows] == [
        ("c0", "echo 0"),
        ("c1", "echo 1"),
        ("c2", "echo 2"),
        ("late", "x"),
    ]
    assert found(dashboard, agent, status="queued", tool="read_file") == ["late"]
    assert dashboard.get(call_path(agent, "c1"))["state"] == "queued"
    fleet.redis.delete(keys.queue(fleet.queue))


def test_a_session_shows_how_its_taint_rose(dashboard: Dashboard, looker: Agent) -> None:
    prepare(looker.fleet, looker.session, level=Level.INTERNAL, workspace=looker.session)
    looker.complete("write_file", path="finance/q3.txt", content="42")
    looker.call("read_file", path="finance/q3.txt", call_id="look")
    session = dashboard.get(f"/api/sessions/{looker.fleet.queue}/{looker.session}")
    assert (session["taint"], session["workspace"], session["mode"], session["opened"]) == (
        "CONFIDENTIAL",
        looker.session,
        "normal",
        True,
    )
    steps = [(step["level"], step["by"]) for step in session["taint_history"]]
    assert steps[0] == ("INTERNAL", "orchestrator")
    assert steps[-1][0] == "CONFIDENTIAL"
    assert session["calls"][0]["call"] == "look"
    rows = {row["session"]: row for row in dashboard.get("/api/sessions")["sessions"]}
    assert (rows[looker.session]["taint"], rows[looker.session]["calls"]) == ("CONFIDENTIAL", 2)


def test_what_is_above_the_ceiling_is_withheld(watched: Fleet, dashboard: Dashboard, looker: Agent) -> None:
    looker.complete("write_file", path="finance/q3.txt", content="the figures")
    looker.call("read_file", path="finance/q3.txt", call_id="look")
    withheld = {"value": None, "withheld": "CONFIDENTIAL"}
    call = dashboard.get(call_path(looker, "look"))
    assert {name: call["output"][name] for name in withheld} == withheld
    assert {name: call["args"][name] for name in withheld} == withheld
    (row, *_) = dashboard.get(f"/api/calls?session={looker.session}")["calls"]
    assert row["about"]["withheld"] == "CONFIDENTIAL"
    trusted = Dashboard(watched, "--payloads", "CONFIDENTIAL")
    try:
        assert trusted.get(call_path(looker, "look"))["output"]["value"]["text"] == "the figures"
    finally:
        trusted.end()


def test_secrets_are_redacted_in_arguments_too(dashboard: Dashboard, looker: Agent) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    looker.push("slow", "run_command", {"command": f"export KEY={secret}; sleep 60"})
    wait_for_running(looker, "slow")
    answer = dashboard.ask(call_path(looker, "slow"))
    assert secret.encode() not in answer.body
    assert answer.json["args"]["redacted"]
    assert secret.encode() not in dashboard.ask("/api/running").body
    looker.with_client(lambda client: client.cancel(looker.session, "slow"))
    looker.fleet.wait_replies(looker.session, 1)
    assert secret.encode() not in dashboard.ask(f"/api/calls?session={looker.session}").body
    assert secret not in str(looker.fleet.redis.xrange(keys.audit(looker.fleet.queue)))


def test_plans_wait_with_what_they_would_change(dashboard: Dashboard, looker: Agent) -> None:
    prepare(looker.fleet, looker.session, mode="plan")
    step = {"description": "write it", "paths": ["a.txt"], "tools": ["write_file"]}
    looker.complete("plan.propose", summary="Write a file.", steps=[step])
    plan = next(p for p in dashboard.get("/api/plans")["waiting"] if p["session"] == looker.session)
    assert (plan["state"], plan["version"], plan["approval"]) == ("awaiting", 1, None)
    assert plan["body"]["value"] == {"summary": "Write a file.", "steps": [step]}
    session = dashboard.get(f"/api/sessions/{looker.fleet.queue}/{looker.session}")
    assert (session["plan_state"], session["plan"]["digest"]) == ("awaiting", plan["digest"])


def test_a_plan_is_found_however_many_calls_came_after_it(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()
    prepare(fleet, agent.session, mode="plan")
    agent.complete("plan.propose", summary="Write a file.", steps=[])
    audit = keys.audit(fleet.queue)
    ((_, entry),) = fleet.redis.xrange(audit)
    with fleet.redis.pipeline(transaction=False) as pipe:
        for _ in range(6000):
            pipe.xadd(audit, {"entry": entry[b"entry"].replace(b"plan.propose", b"read_file")})
        pipe.execute()
    plans = make_dashboard(fleet).get("/api/plans")
    assert [(plan["session"], plan["state"]) for plan in plans["waiting"]] == [(agent.session, "awaiting")]
    assert plans["looked_back_to_ms"] is None


def test_of_many_plans_the_latest_are_shown(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    now_ms = fleet.redis.time()[0] * 1000
    with fleet.redis.pipeline(transaction=False) as pipe:
        for number in range(201):
            pipe.zadd(keys.plans(fleet.queue), {f"s{number}": now_ms + number})
            pipe.hset(keys.session(fleet.queue, f"s{number}"), "mode", "plan")
            plan = {"digest": "d", "version": 1, "body": "{}", "proposed_ms": now_ms + number, "call": "c"}
            pipe.hset(keys.plan(fleet.queue, f"s{number}"), mapping=plan)
            pipe.pexpire(keys.plan(fleet.queue, f"s{number}"), 60_000)
        pipe.pexpire(keys.plans(fleet.queue), 60_000)
        pipe.execute()
    plans = make_dashboard(fleet).get("/api/plans")
    assert [plan["session"] for plan in plans["waiting"]] == [f"s{number}" for number in range(1, 201)]
    assert plans["looked_back_to_ms"] == now_ms + 1


def test_failures_are_grouped_by_cause(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    one, two = fleet.agent(), fleet.agent()
    for agent in (one, two):
        agent.call("read_file", path="missing.txt", call_id="lost")
    one.call("run_command", command="sudo id", call_id="root")
    one.complete("list_directory", path=".")
    fleet.push_raw("no job id", None)
    wait_until(lambda: fleet.redis.xlen(keys.dead(fleet.queue)), "a dead letter")
    failures = make_dashboard(fleet).get("/api/failures")
    groups = [(g["kind"], g["code"], g["policy"], g["tool"], g["count"], g["sessions"]) for g in failures["groups"]]
    assert groups == [
        ("failed", "not_found", "", "read_file", 2, 2),
        ("denied", "forbidden", "command_denylist", "run_command", 1, 1),
    ]
    assert failures["groups"][0]["latest"][0]["session"] == two.session
    assert failures["looked_at"] == 4
    assert [(letter["id"], letter["why"]) for letter in failures["dead"]] == [
        ("no job id", "not a job id of this queue")
    ]


@pytest.mark.parametrize("path", PAGES)
def test_every_answer_is_as_the_openapi_document_says(dashboard: Dashboard, looker: Agent, path: str) -> None:
    looker.call("run_command", command="echo hello; sudo id", call_id="c")
    document = dashboard.get("/api/openapi.json")
    schema = document["paths"][f"/api/{path}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    resolved = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator(resolved).validate(dashboard.get(f"/api/{path}"))


def test_the_openapi_document_names_every_route_and_nothing_else(dashboard: Dashboard, looker: Agent) -> None:
    looker.call("list_directory", path=".", call_id="c")
    paths = dashboard.get("/api/openapi.json")["paths"]
    names = {"{queue}": looker.fleet.queue, "{session}": looker.session, "{call}": "c", "{view}": "nothing"}
    for path, methods in paths.items():
        real = path
        for name, value in names.items():
            real = real.replace(name, value)
        for method in methods:
            answer = dashboard.ask(real, method=method.upper(), body={} if method == "post" else None)
            expected = (403, 400) if method == "post" else (404,) if "{view}" in path else (200,)
            assert answer.status in expected, (path, answer)


def test_garbage_in_redis_hides_nothing_else(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    agent = fleet.agent()
    q = fleet.queue
    wrong = json.dumps({"id": keys.job_id(q, "s", "c"), "run_ms": "x"})
    for entry in ("", "[", "null", '{"id":7}', '{"id":"no job id"}', wrong, "\udcff"):
        fleet.redis.xadd(keys.audit(q), {"entry": entry.encode("utf-8", "surrogateescape")})
    fleet.redis.xadd(keys.audit(q), {"something": "else"})
    put_entries(fleet, 1, lambda _: {"id": keys.job_id(q, agent.session, "good"), "tool": "read_file"})
    beats = {"w1": "no time", "w2": "5 [", "w3": b"\xff", "w4": '9 {"slots":"many","queues":7,"metrics":[]}'}
    fleet.redis.hset(keys.workers(q), mapping=beats)
    fleet.redis.pexpire(keys.workers(q), 60_000)
    fleet.redis.hset(
        keys.session(q, agent.session), mapping={"taint": "SECRET?", "taint:ODD": "when?", "mode": "\x1b[31m"}
    )
    fleet.push_raw(keys.job_id(q, agent.session, "odd"), b"[" * 100_000, 1)
    fleet.redis.zadd(keys.queue(q), {b"\xff\xfe": 2, "x": 3})
    fleet.redis.zadd(keys.leases(q), {b"\xff": 1, "{other}:s:c": 2})
    dashboard = make_dashboard(fleet)
    for page in PAGES:
        dashboard.get(f"/api/{page}")
    assert [row["call"] for row in dashboard.get("/api/calls")["calls"]] == ["good"]
    assert len(dashboard.get("/api/workers")["workers"]) == 4
    assert [row["call"] for row in dashboard.get("/api/calls?status=queued")["calls"]] == ["odd"]
    session = dashboard.get(f"/api/sessions/{q}/{agent.session}")
    assert (session["taint"], session["mode"], session["plan_state"]) == ("RESTRICTED", "\x1b[31m", "planning")
    assert dashboard.get(call_path(agent, "odd"))["state"] == "queued"
    fleet.redis.delete(keys.queue(q), keys.leases(q))


def problems(dashboard: Dashboard) -> list[tuple[str, str]]:
    (queue,) = dashboard.get("/api/queues")["queues"]
    return [(problem["code"], problem["severity"]) for problem in queue["problems"]]


def beat(fleet: Fleet, **more: object) -> None:
    """A heartbeat of a worker that does nothing."""
    seconds, micros = fleet.redis.time()
    now_ms = seconds * 1000 + micros // 1000
    body = json.dumps({"worker": "w", "queues": [fleet.queue], "slots": 4, "running": 0, "draining": False, **more})
    fleet.redis.hset(keys.workers(fleet.queue), "w", f"{now_ms} {body}")
    fleet.redis.pexpire(keys.workers(fleet.queue), 60_000)


def test_what_is_wrong_is_said_in_order_of_weight(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    dashboard = make_dashboard(fleet)
    assert problems(dashboard) == [("no_workers", "warning")]
    seconds, _ = fleet.redis.time()
    fleet.push_raw(keys.job_id(fleet.queue, "s", "c"), b"{}", (seconds - 20) * 1000)
    wait_until(lambda: problems(dashboard) == [("no_workers", "critical")], "no workers")
    beat(fleet)
    wait_until(lambda: problems(dashboard) == [("stalled", "critical")], "a stall")
    beat(fleet, running=4)
    wait_until(lambda: problems(dashboard) == [("saturated", "warning")], "every slot taken")
    beat(fleet, draining=True)
    wait_until(lambda: problems(dashboard) == [("draining", "critical")], "all draining")
    put_entries(fleet, 20, lambda n: {"id": keys.job_id(fleet.queue, "s", f"f{n}"), "kind": "failed", "code": "limit"})
    beat(fleet)
    wait_until(lambda: problems(dashboard) == [("failing", "warning")], "calls that fail")
    (queue,) = dashboard.get("/api/queues")["queues"]
    assert (queue["failed_share"], queue["denied_share"], queue["sampled"]) == (1.0, 0.0, False)
    assert (queue["run"], queue["wait"]) == ({"p50_ms": 3, "p95_ms": 3}, {"p50_ms": 1, "p95_ms": 1})
    fleet.redis.delete(keys.queue(fleet.queue))


def test_workers_are_told_apart(watched: Fleet, dashboard: Dashboard) -> None:
    (worker,) = dashboard.get("/api/workers")["workers"]
    assert (worker["state"], worker["queues"], worker["slots"]) == ("serving", ["watched"], 32)
    assert worker["version"]
    assert worker["sandbox"]
    assert 0 <= worker["age_ms"] < 30_000
