"""Calls that ask: denied at once, approved by somebody else, run once, under the users of the ACL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from contracts import keys
from contracts.acl import ROLES, rules, users_acl
from contracts.approver import Approver, NothingToJudge
from contracts.asks import read_pending
from contracts.connection import connect
from contracts.replies import Completed, Denied
from tests.fleet import Agent, Fleet, Server, serve
from tests.policies.test_rules_fleet import audit

POLICY = (
    'version = 1\n[[rule]]\nname = "ask-first"\naction = "ask"\ncommand = "touch"\nreason = "touching needs a yes"\n'
)
TOUCH = {"command": "touch a; echo done"}
PASSWORDS = {role: f"secret-of-{role}" for role in ROLES}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one user a role and no default user."""
    home = tmp_path_factory.mktemp("acl")
    lines = users_acl(["asking"], PASSWORDS).splitlines()
    agent = " ".join(["user alone", *rules("agent", ["asking"], "s1"), "on", ">x"])
    boss = "user boss reset on nopass ~* &* +@all"
    (home / "users.acl").write_text("\n".join([*lines[1:], agent, boss, "user default reset on nopass +ping"]) + "\n")
    with serve(home, "--aclfile", str(home / "users.acl")) as server:
        yield server


def url(server: Server, user: str, password: str = "") -> str:
    return f"unix://{user}:{password}@{server.socket}"


@pytest.fixture(scope="module")
def asking(guarded: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    state = tmp_path_factory.mktemp("asking")
    (state / "policy.toml").write_text(POLICY)
    fleet = Fleet(url(guarded, "boss"), state, "asking", policy=state / "policy.toml")
    fleet.start_worker(url=url(guarded, "worker", PASSWORDS["worker"]))
    yield fleet
    fleet.end()


@pytest.fixture
def judge(guarded: Server) -> Callable[[Any], Any]:
    """Runs something with the approver's own user."""

    def run(act: Any) -> Any:
        async def main() -> Any:
            async with Approver.connect(url(guarded, "approver", PASSWORDS["approver"]), queue="asking") as approver:
                return await act(approver)

        return asyncio.run(main())

    return run


def test_an_ask_is_denied_listed_approved_and_runs_once(asking: Fleet, guarded: Server, judge: Any) -> None:
    agent = asking.agent()
    error = agent.deny("run_command", TOUCH)
    assert (error.code, error.effect, error.policy, error.rule) == ("approval_required", "none", "rules", "ask-first")
    assert not (agent.workspace / "a").exists()
    (pending,) = judge(lambda a: a.pending(agent.session))
    shown = (pending.ask.digest, pending.ask.tool, pending.ask.about, pending.ask.reason, pending.ask.rule)
    assert shown == (error.digest, "run_command", TOUCH["command"], "touching needs a yes", "ask-first")
    dashboard = connect(url(guarded, "dashboard", PASSWORDS["dashboard"]))

    async def listed() -> Any:
        async with dashboard:
            return await read_pending(dashboard, "asking", agent.session)

    assert asyncio.run(listed()) == [pending]
    judge(lambda a: a.approve_call(agent.session, error.digest, approver="ann", reason="fine"))
    assert judge(lambda a: a.pending(agent.session)) == []
    assert agent.complete("run_command", TOUCH)["stdout"] == "done\n"
    assert audit(asking, agent)[-1]["approver"] == "ann"
    again = agent.deny("run_command", TOUCH)
    assert (again.code, again.digest) == ("approval_required", error.digest)
    assert [each.ask.call for each in judge(lambda a: a.pending(agent.session))] != [pending.ask.call]
    judge(lambda a: a.approve_call(agent.session, error.digest, approver="ann"))
    agent.complete("run_command", TOUCH)


def test_a_yes_counts_for_one_content_of_one_session(asking: Fleet, judge: Any) -> None:
    agent, other = asking.agent(), asking.agent()
    digest = agent.deny("run_command", TOUCH).digest
    other.deny("run_command", TOUCH)
    judge(lambda a: a.approve_call(agent.session, digest, approver="ann"))
    assert agent.deny("run_command", command="touch b").code == "approval_required"
    assert agent.deny("run_command", TOUCH | {"timeout_s": 5}).code == "approval_required"
    assert other.deny("run_command", TOUCH).code == "approval_required"
    agent.complete("run_command", {"command": TOUCH["command"]})


def test_of_many_who_send_it_at_once_one_runs(asking: Fleet, judge: Any) -> None:
    agent = asking.agent()
    args = {"command": "touch a; echo x >> ran"}
    digest = agent.deny("run_command", args).digest
    judge(lambda a: a.approve_call(agent.session, digest, approver="ann"))
    for number in range(8):
        agent.push(f"c{number}", "run_command", args)
    kinds = [reply["kind"] for reply in asking.wait_replies(agent.session, 9)[1:]]
    assert sorted(kinds) == ["completed"] + ["denied"] * 7
    assert (agent.workspace / "ran").read_text() == "x\n"


def test_a_no_is_told_and_a_yes_expires(asking: Fleet, judge: Any) -> None:
    agent = asking.agent()
    digest = agent.deny("run_command", TOUCH).digest
    judge(lambda a: a.reject_call(agent.session, digest, approver="ann", reason="not today"))
    error = agent.deny("run_command", TOUCH)
    assert (error.code, error.policy, error.rule) == ("forbidden", "approval", "rejected")
    assert error.message == "ann rejected this call: not today"
    asking.redis.delete(keys.permit("asking", agent.session, digest))
    agent.deny("run_command", TOUCH)
    judge(lambda a: a.approve_call(agent.session, digest, approver="ann"))
    key = keys.permit("asking", agent.session, digest)
    assert 0 < asking.redis.pttl(key) <= 900_000
    asking.redis.pexpire(key, 1)
    while asking.redis.exists(key):
        pass
    assert agent.deny("run_command", TOUCH).code == "approval_required"


def test_only_what_is_asked_can_be_answered(asking: Fleet, judge: Any) -> None:
    agent = asking.agent()
    with pytest.raises(NothingToJudge):
        judge(lambda a: a.approve_call(agent.session, "0" * 32, approver="ann"))
    digest = agent.deny("run_command", TOUCH).digest
    for life_s in (0, 8 * 24 * 3600):
        with pytest.raises(ValueError, match="between a second and seven days"):
            judge(lambda a, life_s=life_s: a.approve_call(agent.session, digest, approver="ann", life_s=life_s))


def test_no_agent_can_say_yes_to_itself(asking: Fleet, guarded: Server, judge: Any) -> None:
    agent = Agent(asking, "s1")
    digest = agent.deny("run_command", TOUCH).digest
    permit, used = keys.permit("asking", "s1", digest), keys.used("asking", "s1", digest)
    for user, password in (("alone", "x"), ("agent", PASSWORDS["agent"]), ("orchestrator", PASSWORDS["orchestrator"])):
        with redis.Redis.from_url(url(guarded, user, password), lib_name=None, lib_version=None) as client:
            for command in (
                ("HSET", permit, "nonce", "00", "verdict", "approved"),
                ("SET", permit, "x"),
                ("DEL", used),
                ("SET", used, "x"),
                ("XADD", keys.asks("asking"), "*", "ask", "{}"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command)
    with (
        redis.Redis.from_url(url(guarded, "worker", PASSWORDS["worker"]), lib_name=None, lib_version=None) as worker,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        worker.hset(permit, "nonce", "00")
    assert judge(lambda a: a.pending("s1")) != []


def test_a_permit_that_never_ends_or_says_something_else_is_none(asking: Fleet) -> None:
    agent = asking.agent()
    digest = agent.deny("run_command", TOUCH).digest
    key = keys.permit("asking", agent.session, digest)
    for fields, life_ms in (
        ({"nonce": "ab", "verdict": "approved", "approver": "x"}, 0),
        ({"nonce": "ab", "verdict": "APPROVED", "approver": "x"}, 60_000),
        ({"nonce": "not hex", "verdict": "approved", "approver": "x"}, 60_000),
        ({"verdict": "approved", "approver": "x"}, 60_000),
    ):
        asking.redis.delete(key)
        asking.redis.hset(key, mapping=fields)
        if life_ms:
            asking.redis.pexpire(key, life_ms)
        assert agent.deny("run_command", TOUCH).code == "approval_required"
    asking.redis.delete(key)


def test_the_command_line_answers(asking: Fleet, guarded: Server) -> None:
    agent = asking.agent()
    env = {"REDIS_URL": url(guarded, "approver", PASSWORDS["approver"])}
    digest = agent.deny("run_command", TOUCH).digest
    listed = asking.run("policy", "pending", "--session", agent.session, env=env)
    assert [msgspec.json.decode(line)["digest"] for line in listed.stdout.splitlines()] == [digest]
    whom = ("--session", agent.session, "--digest", digest, "--approver", "ann")
    said = asking.run("policy", "approve", *whom, "--for", "60", env=env)
    assert (said.returncode, msgspec.json.decode(said.stdout)["verdict"]) == (0, "approved")
    twice = asking.run("policy", "approve", *whom, env=env)
    assert (twice.returncode, twice.stdout) == (4, b"")
    assert isinstance(agent.call("run_command", TOUCH), Completed)
    assert isinstance(agent.call("run_command", TOUCH), Denied)
    assert asking.run("policy", "reject", *whom, "--reason", "no", env=env).returncode == 0
    assert agent.deny("run_command", TOUCH).rule == "rejected"
    assert asking.run("policy", "approve", *whom, "--for", "0", env=env).returncode == 2
