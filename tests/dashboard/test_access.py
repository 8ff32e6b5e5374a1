"""Who may look, who may act, with which Redis user, and that it is on record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts import keys
from contracts.acl import rules
from contracts.plans import Mode
from tests.dashboard.conftest import Dashboard, wait_for_running, write_tokens
from tests.dashboard.test_api import PAGES, call_path, prepare
from tests.fleet import Agent, Fleet, wait_until
from worker.audit import verify

MakeFleet = Callable[..., Fleet]
MakeDashboard = Callable[..., Dashboard]
STEP = {"description": "write it", "paths": ["a.txt"], "tools": ["write_file"]}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def run_with_tokens(fleet: Fleet, file: Path) -> subprocess.CompletedProcess[bytes]:
    """A dashboard that is to end at once, with that file of tokens."""
    command = [sys.executable, "-m", "worker", "dashboard", "--port", "0"]
    env = {**fleet.env, "TOOLREEF_DASHBOARD_TOKENS": str(file)}
    return subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)


def as_role(fleet: Fleet, role: str) -> str:
    """A Redis user of the role, for this fleet's queue only. Its URL."""
    name = f"{role}-{fleet.queue}"
    fleet.redis.execute_command("ACL", "SETUSER", name, *rules(role, [fleet.queue]), "on", ">secret")
    return fleet.url.replace("unix://", f"unix://{name}:secret@")


@pytest.fixture(scope="module")
def guarded(watched: Fleet) -> Iterator[tuple[Dashboard, dict[str, str]]]:
    """A dashboard with a person a role and a Redis user a role, and their tokens."""
    tokens = write_tokens(watched, vera="viewer", otto="operator", anna="approver", both="operator,approver")
    urls = {
        "REDIS_URL": as_role(watched, "dashboard"),
        "TOOLREEF_ORCHESTRATOR_URL": as_role(watched, "orchestrator"),
        "TOOLREEF_APPROVER_URL": as_role(watched, "approver"),
    }
    started = Dashboard(watched, "--trusted-proxy", "127.0.0.2", **urls)
    yield started, tokens
    assert started.end() == 0
    (watched.state / "dashboard.tokens").unlink()


# -- looking


def test_everybody_on_loopback_may_look_and_nobody_may_act(dashboard: Dashboard, looker: Agent) -> None:
    me = dashboard.get("/api/me")
    assert (me["name"], me["roles"], me["can_cancel"], me["can_judge"]) == ("anonymous", ["viewer"], False, False)
    answer = dashboard.ask(call_path(looker, "c") + "/cancel", method="POST", body={})
    assert (answer.status, answer.json) == (403, {"error": "not_allowed", "message": "this needs the role operator"})
    plan = f"/api/plans/{looker.fleet.queue}/{looker.session}/approve"
    assert dashboard.ask(plan, method="POST", body={"digest": "x"}).status == 403
    assert not looker.fleet.redis.exists(keys.cancel(looker.fleet.queue, looker.session, "c"))


def test_with_tokens_only_people_look(guarded: tuple[Dashboard, dict[str, str]]) -> None:
    dashboard, tokens = guarded
    for page in (*PAGES, "live/queues", "openapi.json"):
        answer = dashboard.ask(f"/api/{page}")
        assert (answer.status, answer.json["error"]) == (401, "sign_in")
        assert answer.headers["www-authenticate"] == "Bearer"
    for wrong in ("nonsense", tokens["vera"] + "x", "", "é"):
        assert dashboard.ask("/api/me", authorization=f"Bearer {wrong}").status == 401
    assert dashboard.ask("/api/me", authorization=f"Basic {tokens['vera']}").status == 401
    for name, roles in (("vera", ["viewer"]), ("otto", ["operator"]), ("both", ["approver", "operator"])):
        me = dashboard.get("/api/me", **bearer(tokens[name]))
        assert (me["name"], me["roles"]) == (name, roles)


def test_the_dashboards_redis_user_is_enough_for_every_page(
    guarded: tuple[Dashboard, dict[str, str]], looker: Agent
) -> None:
    dashboard, tokens = guarded
    prepare(looker.fleet, looker.session, mode="plan")
    looker.complete("plan.propose", summary="Write a file.", steps=[STEP])
    looker.call("run_command", command="sudo id", call_id="d")
    paths = [f"/api/{page}" for page in PAGES]
    paths += [
        call_path(looker, "d"),
        f"/api/sessions/{looker.fleet.queue}/{looker.session}",
        "/api/calls?status=queued",
    ]
    for path in paths:
        dashboard.get(path, **bearer(tokens["vera"]))


def test_tokens_are_kept_as_hashes_in_a_private_file(watched: Fleet, guarded: tuple[Dashboard, dict[str, str]]) -> None:
    _, tokens = guarded
    file = watched.state / "dashboard.tokens"
    assert file.stat().st_mode & 0o777 == 0o600
    assert not any(token in file.read_text() for token in tokens.values())


@pytest.mark.parametrize(
    "lines, says",
    [
        ("anna approver", "line 1 is not `name roles sha256`"),
        (f"anna boss {'0' * 64}", "no such role: boss"),
        (f"# a comment\nanna viewer {'0' * 63}", "line 2 is not"),
    ],
)
def test_a_file_of_tokens_that_makes_no_sense_stops_the_start(
    watched: Fleet, tmp_path: Path, lines: str, says: str
) -> None:
    file = tmp_path / "tokens"
    file.write_text(lines)
    ended = run_with_tokens(watched, file)
    assert ended.returncode == 2
    assert says in ended.stderr.decode()
    assert b"Traceback" not in ended.stderr


def test_an_open_address_needs_people_first(make_fleet: MakeFleet) -> None:
    ended = make_fleet().run("dashboard", "--host", "0.0.0.0", "--port", "0")
    assert ended.returncode == 2
    assert "--host 0.0.0.0 is open to others" in ended.stderr.decode()


# -- where requests come from


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]", "localhost.:1"]
)
def test_another_host_name_is_refused(dashboard: Dashboard, host: str) -> None:
    for path in ("/", "/api/me", "/static/main.js"):
        assert dashboard.ask(path, host=host).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8646", "[::1]:1", "LOCALHOST"])
def test_loopbacks_names_are_answered(dashboard: Dashboard, host: str) -> None:
    assert dashboard.ask("/api/me", host=host).status == 200


def test_health_is_told_to_anybody(dashboard: Dashboard) -> None:
    assert dashboard.ask("/healthz", host="10.0.0.7:8646").json == {"alive": True}
    assert dashboard.ask("/readyz", host="10.0.0.7:8646").json == {"ready": True}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_pages_neither_read_nor_act(guarded: tuple[Dashboard, dict[str, str]], site: str) -> None:
    dashboard, tokens = guarded
    known = bearer(tokens["both"])
    assert dashboard.ask("/api/me", sec_fetch_site=site, **known).status == 403
    assert dashboard.ask("/api/live/queues", sec_fetch_site=site, **known).status == 403
    path = "/api/calls/watched/s/c/cancel"
    assert dashboard.ask(path, method="POST", body={}, sec_fetch_site=site, **known).status == 403
    assert dashboard.ask(path, method="POST", body={}, origin="http://evil.example", **known).status == 403
    assert dashboard.ask(path, method="POST", body={}, content_type="text/plain", **known).status == 415
    # A link that somebody was sent still opens: the page itself holds nothing.
    assert dashboard.ask("/calls/watched/s/c", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200


def test_a_proxys_word_counts_from_the_proxy_alone(
    make_dashboard: MakeDashboard, watched: Fleet, guarded: tuple[Dashboard, dict[str, str]]
) -> None:
    said = {"x_forwarded_user": "petra", "x_forwarded_roles": "operator, boss"}
    assert guarded[0].ask("/api/me", **said).status == 401
    behind = make_dashboard(watched, "--trusted-proxy", "127.0.0.0/8")
    me = behind.get("/api/me", **said)
    assert (me["name"], me["roles"], me["can_cancel"]) == ("petra", ["operator"], True)
    assert behind.ask("/api/me", x_forwarded_user="petra", x_forwarded_roles="boss").status == 401
    assert behind.ask("/api/me", x_forwarded_roles="operator").status == 401
    assert behind.ask("/api/me").status == 401


def test_every_answer_keeps_to_itself(dashboard: Dashboard) -> None:
    for path in ("/", "/api/me", "/static/main.js", "/nothing", "/healthz"):
        headers = dashboard.ask(path).headers
        policy = headers["content-security-policy"].split("; ")
        assert "default-src 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert not any("unsafe" in each or "http" in each or "*" in each for each in policy)
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in headers


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"]
)
def test_only_static_files_are_files(dashboard: Dashboard, path: str) -> None:
    assert dashboard.ask(path).status == 404


# -- acting


def actions(fleet: Fleet, session: str) -> list[dict[str, str]]:
    """What is on record of a session, oldest first."""
    entries = fleet.redis.xrange(keys.actions(fleet.queue))
    decoded = [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in entries]
    return [fields for fields in decoded if fields["session"] == session]


def test_an_operator_cancels_a_call(guarded: tuple[Dashboard, dict[str, str]], looker: Agent) -> None:
    dashboard, tokens = guarded
    looker.push("slow", "run_command", {"command": "sleep 60"})
    wait_for_running(looker, "slow")
    path = call_path(looker, "slow") + "/cancel"
    for name in ("vera", "anna"):
        assert dashboard.ask(path, method="POST", body={}, **bearer(tokens[name])).status == 403
    assert actions(looker.fleet, looker.session) == []
    answer = dashboard.ask(path, method="POST", body={"reason": "runs wild"}, **bearer(tokens["otto"]))
    assert answer.json == {"action": "cancel", "actor": "otto", "session": looker.session, "call": "slow"}
    (reply,) = looker.fleet.wait_replies(looker.session, 1)
    assert (reply["kind"], reply["error"]["code"]) == ("failed", "cancelled")
    (action,) = actions(looker.fleet, looker.session)
    assert (action["actor"], action["action"], action["call"], action["reason"]) == (
        "otto",
        "cancel",
        "slow",
        "runs wild",
    )
    shown = wait_until(lambda: dashboard.get(call_path(looker, "slow"), **bearer(tokens["vera"]))["actions"], "it")
    assert [(each["actor"], each["reason"]) for each in shown] == [("otto", "runs wild")]


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_an_approver_judges_the_plan_they_saw(
    guarded: tuple[Dashboard, dict[str, str]], looker: Agent, verdict: str
) -> None:
    dashboard, tokens = guarded
    mode: Mode = "plan"
    prepare(looker.fleet, looker.session, mode=mode)
    digest = looker.complete("plan.propose", summary="Write a file.", steps=[STEP])["digest"]
    path = f"/api/plans/{looker.fleet.queue}/{looker.session}/{verdict}"

    def judge(name: str, **body: Any) -> int:
        return dashboard.ask(path, method="POST", body=body, **bearer(tokens[name])).status

    assert judge("otto", digest=digest, reason="no") == 403
    assert judge("anna", digest="0" * 64, reason="another plan") == 409
    assert [each["action"] for each in actions(looker.fleet, looker.session)] == [
        verdict,
        f"{verdict}, but nothing to judge",
    ]
    assert judge("anna", digest=digest, reason="x", life_s=0) == 400
    assert judge("anna", digest=digest, reason="x", colour="red") == 400
    assert looker.call("write_file", path="a.txt", content="x").error is not None
    if verdict == "reject":
        assert judge("anna", digest=digest) == 400
    assert judge("anna", digest=digest, reason="looks right") == 200
    approval = looker.fleet.redis.hgetall(keys.approval(looker.fleet.queue, looker.session))
    assert approval[b"approver"] == b"anna"
    assert approval[b"reason"] == b"looks right"
    done = looker.call("write_file", path="a.txt", content="x")
    assert (done.error is None) == (verdict == "approve")
    (*_, last) = actions(looker.fleet, looker.session)
    assert (last["actor"], last["action"], last["digest"]) == ("anna", verdict, digest)
    views = dashboard.get("/api/plans", **bearer(tokens["vera"]))
    assert looker.session in [view["session"] for view in views["judged"]] or wait_until(
        lambda: (
            looker.session
            in [view["session"] for view in dashboard.get("/api/plans", **bearer(tokens["vera"]))["judged"]]
        ),
        "the verdict",
    )


def test_an_approver_lets_one_call_run_once(guarded: tuple[Dashboard, dict[str, str]], looker: Agent) -> None:
    dashboard, tokens = guarded
    looker.call("run_command", command="touch a", call_id="t1")
    known = bearer(tokens["anna"])

    def asks() -> list[dict[str, Any]]:
        return [ask for ask in dashboard.get("/api/plans", **known)["asks"] if ask["session"] == looker.session]

    (ask,) = wait_until(asks, "the ask")
    assert (ask["call"], ask["tool"], ask["about"]["value"], ask["rule"]) == (
        "t1",
        "run_command",
        "touch a",
        "ask-first",
    )
    path = f"/api/asks/watched/{looker.session}"
    body = {"digest": ask["digest"], "reason": "fine", "life_s": 60}
    assert dashboard.ask(f"{path}/approve", method="POST", body=body, **bearer(tokens["otto"])).status == 403
    assert dashboard.ask(f"{path}/approve", method="POST", body={**body, "digest": "0"}, **known).status == 409
    assert dashboard.ask(f"{path}/approve", method="POST", body=body, **known).status == 200
    assert looker.call("run_command", command="touch a").error is None
    assert looker.call("run_command", command="touch a").error is not None
    assert [each["action"] for each in actions(looker.fleet, looker.session)][-1] == "approve_call"


def test_without_the_roles_redis_user_nothing_is_done(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    tokens = write_tokens(fleet, both="operator,approver")
    dashboard = make_dashboard(fleet, REDIS_URL=as_role(fleet, "dashboard"))
    known = bearer(tokens["both"])
    me = dashboard.get("/api/me", **known)
    assert (me["can_cancel"], me["can_judge"]) == (False, False)
    answer = dashboard.ask(f"/api/calls/{fleet.queue}/s/c/cancel", method="POST", body={}, **known)
    assert (answer.status, answer.json["error"]) == (501, "not_possible")
    assert not fleet.redis.exists(keys.cancel(fleet.queue, "s", "c"))
    assert not fleet.redis.exists(keys.actions(fleet.queue))


def test_actions_and_refusals_stand_in_a_file_that_shows_tampering(
    make_fleet: MakeFleet, make_dashboard: MakeDashboard
) -> None:
    fleet = make_fleet()
    tokens = write_tokens(fleet, otto="operator", vera="viewer")
    dashboard = make_dashboard(fleet, TOOLREEF_WORKER="desk")
    path = f"/api/calls/{fleet.queue}/s/c/cancel"
    assert dashboard.ask(path, method="POST", body={"reason": "why"}, **bearer(tokens["vera"])).status == 403
    assert dashboard.ask(path, method="POST", body={"reason": "why"}, **bearer(tokens["otto"])).status == 200
    assert dashboard.end() == 0
    (file,) = (fleet.state / "audit").glob("dashboard-desk.*.jsonl")
    decided = [each for line in file.read_text().splitlines() if (each := json.loads(line))["entry"] == "decided"]
    target = keys.job_id(fleet.queue, "s", "c")
    assert [(each["job"], each["tool"], each["verdict"], each["rule"], each["args_text"]) for each in decided] == [
        (target, "dashboard.cancel", "deny", "vera", "why"),
        (target, "dashboard.cancel", "allow", "otto", "why"),
    ]
    assert [each for each in verify(fleet.state / "audit") if each.certain] == []
    fleet.redis.delete(keys.cancel(fleet.queue, "s", "c"))


def test_what_cannot_be_recorded_is_not_done(make_fleet: MakeFleet, make_dashboard: MakeDashboard) -> None:
    fleet = make_fleet()
    tokens = write_tokens(fleet, otto="operator")
    url = as_role(fleet, "orchestrator")
    dashboard = make_dashboard(fleet, TOOLREEF_ORCHESTRATOR_URL=url)
    fleet.redis.set(keys.actions(fleet.queue), "no stream", px=60_000)
    path = f"/api/calls/{fleet.queue}/s/c/cancel"
    assert dashboard.ask(path, method="POST", body={}, **bearer(tokens["otto"])).status == 503
    assert not fleet.redis.exists(keys.cancel(fleet.queue, "s", "c"))
