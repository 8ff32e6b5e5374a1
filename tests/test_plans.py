"""Plan mode by the public entry: what is blocked, what an approval covers, and what can't be forged or used again."""

from __future__ import annotations

import base64
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import structs

from contracts import keys
from contracts.acl import ROLES, rules, users_acl
from contracts.approver import Approver, NothingToJudge
from contracts.calls import Session, ToolCall
from contracts.codec import encode_call
from contracts.orchestrator import Orchestrator
from contracts.plans import Approval, Covered, Plan, read_scope, scope_of, scope_text
from contracts.signing import ApproverKey, ApproverKeys, new_private_key, plan_message, signed_approval
from contracts.tools import TOOLS, Effect, PlanProposeArgs, PlanStep, ReadFileArgs, RunCommandArgs, WriteFileArgs
from tests.fleet import Agent, Fleet, run_async, serve
from worker.decisions import Judged, Verdict
from worker.policies import plan_gate

WRITE = {"path": "a.txt", "content": "a"}


def orchestrate(fleet: Fleet, act: Callable[[Orchestrator], Any]) -> Any:
    async def main() -> Any:
        async with Orchestrator.connect(fleet.url, queue=fleet.queue) as orchestrator:
            return await act(orchestrator)

    return run_async(main)


def judge(fleet: Fleet, act: Callable[[Approver], Any], key: ApproverKey | None = None) -> Any:
    async def main() -> Any:
        async with Approver.connect(fleet.url, queue=fleet.queue).signing_with(key) as approver:
            return await act(approver)

    return run_async(main)


def approve(agent: Agent, key: ApproverKey | None = None, **more: Any) -> Approval:
    approval: Approval = judge(agent.fleet, lambda a: a.approve(agent.session, approver="ann", **more), key)
    return approval


def planning(fleet: Fleet) -> Agent:
    agent = fleet.agent()
    orchestrate(fleet, lambda o: o.open_session(agent.session, mode="plan"))
    return agent


def propose(agent: Agent, *steps: dict[str, Any], summary: str = "a plan") -> str:
    wanted = [{"description": "do it", **step} for step in steps]
    digest: str = agent.complete("plan.propose", summary=summary, steps=wanted)["digest"]
    return digest


@pytest.fixture(scope="module")
def key() -> ApproverKey:
    return ApproverKey(new_private_key())


@pytest.fixture(scope="module")
def signed(server: Any, tmp_path_factory: pytest.TempPathFactory, key: ApproverKey) -> Iterator[Fleet]:
    """A fleet that takes approvals signed by `key` only."""
    state = tmp_path_factory.mktemp("signed")
    (state / "approvers").write_text(f"# who may approve\nann {key.public}\n")
    fleet = Fleet(server.url, state, "signed", approver_keys=state / "approvers")
    fleet.start_worker()
    yield fleet
    fleet.end()


@pytest.fixture(scope="module")
def looking(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet whose sessions in plan mode may run commands that write nothing."""
    fleet = Fleet(server.url, tmp_path_factory.mktemp("looking"), "looking", plan_commands="read_only")
    fleet.start_worker()
    yield fleet
    fleet.end()


# -- the gate by itself


def judged(tool: str, args: Any, plan: Plan | None, approval: Approval | None, **more: Any) -> Judged:
    session = Session(name="s", workspace="w", mode="plan", plan=plan, approval=approval)
    call = ToolCall(session="s", call="c", tool=tool, args=args)
    return Judged(call=call, session=session, workspace_roots=("/nowhere/w",), now_ms=1000, **more)


def test_every_effect_but_proposing_is_blocked_before_the_approval() -> None:
    free = {name for name, tool in TOOLS.items() if tool.allowed_while_planning}
    assert free == {name for name, tool in TOOLS.items() if tool.effect is Effect.READ} | {"plan.propose"}
    plan = Plan(digest="d", version=1)
    for name, tool in TOOLS.items():
        for state in (None, plan):
            for read_only in (False, True):
                args = RunCommandArgs(command="ls", background=True) if tool.args is RunCommandArgs else None
                decision = plan_gate.judge(judged(name, args, state, None), read_only_commands=read_only)
                assert decision is not None
                assert (decision.verdict is Verdict.ALLOW) == (name in free), name


@pytest.mark.parametrize(
    "scope, tool, path, allowed",
    [
        ([], "write_file", "x", True),
        ([], "run_command", "", True),
        ([Covered(paths=["src"])], "write_file", "src/a/b", True),
        ([Covered(paths=["src"])], "write_file", "./src/../src/a", True),
        ([Covered(paths=["src"])], "write_file", "/nowhere/w/src/a", True),
        ([Covered(paths=["src"])], "write_file", "src2/a", False),
        ([Covered(paths=["src"])], "write_file", "a/src/b", False),
        ([Covered(paths=["src"])], "write_file", "src/../a", False),
        ([Covered(paths=["src"])], "run_command", "", False),
        ([Covered(paths=["./src/"])], "edit_file", "src/a", True),
        ([Covered(paths=["*.md"])], "write_file", "a.md", True),
        ([Covered(paths=["*.md"])], "write_file", "docs/a.md", False),
        ([Covered(paths=["**/*.md"])], "write_file", "docs/a.md", True),
        ([Covered(paths=["."])], "write_file", "any/thing", True),
        ([Covered(paths=[".."])], "write_file", "x", False),
        ([Covered(tools=["write_file"])], "write_file", "x", True),
        ([Covered(tools=["write_file"])], "edit_file", "x", False),
        ([Covered(tools=["write_file"])], "run_command", "", False),
        ([Covered(tools=["run_command"], paths=["src"])], "run_command", "", True),
        ([Covered(tools=["run_command"], paths=["src"])], "write_file", "src/a", False),
        ([Covered(tools=["edit_file"], paths=["a"]), Covered(paths=["b"])], "write_file", "b", True),
        ([Covered(tools=["edit_file"], paths=["a"]), Covered(paths=["b"])], "write_file", "a", False),
    ],
)
def test_an_approval_covers_what_its_scope_says(scope: list[Covered], tool: str, path: str, allowed: bool) -> None:
    args: Any = RunCommandArgs(command="ls") if tool == "run_command" else WriteFileArgs(path=path, content="")
    text = scope_text(scope)
    assert read_scope(text) == scope
    approval = Approval(digest="d", verdict="approved", approver="a", expires_ms=2000)
    for of_plan, of_approval in ((text, ""), ("", text), ('[{"tools":["nothing"]}]', text)):
        plan = Plan(digest="d", version=1, scope=of_plan)
        decision = plan_gate.judge(judged(tool, args, plan, structs.replace(approval, scope=of_approval)))
        assert decision is not None
        assert (decision.rule, decision.verdict is Verdict.ALLOW) == (
            ("approved", True) if allowed else ("out_of_scope", False)
        )


def test_a_scope_that_cant_be_read_covers_nothing_and_reads_need_none() -> None:
    plan = Plan(digest="d", version=1, scope="[{")
    approval = Approval(digest="d", verdict="approved", approver="a", expires_ms=2000)
    decision = plan_gate.judge(judged("write_file", WriteFileArgs(path="a", content=""), plan, approval))
    assert decision is not None
    assert (decision.verdict, decision.rule) == (Verdict.DENY, "scope")
    decision = plan_gate.judge(judged("read_file", ReadFileArgs(path="a"), plan, approval))
    assert decision is not None
    assert decision.verdict is Verdict.ALLOW


def test_a_plan_covers_what_its_steps_name() -> None:
    def scope(*steps: PlanStep) -> list[Covered]:
        return scope_of(PlanProposeArgs(summary="s", steps=list(steps)))

    named = PlanStep(description="x", tools=["b", "a", "b"], paths=["p"])
    assert scope() == scope(named, PlanStep(description="anything")) == []
    assert scope(named, named) == [Covered(tools=["a", "b"], paths=["p"])]


# -- keys and signatures


def test_a_signature_is_for_one_plan_of_one_session_of_one_queue(key: ApproverKey) -> None:
    trusted = ApproverKeys(f"ann {key.public}")
    plain = Approval(digest="d", verdict="approved", approver="ann", expires_ms=9, reason="r", scope="[]", nonce="n")
    approval = signed_approval(key, "q", "s", plain)
    assert (trusted.name_of(key.id), trusted.name_of("0" * 16)) == ("ann", None)

    def verifies(queue: str, session: str, signed: Approval) -> bool:
        return trusted.verifies(signed.key, plan_message(queue, session, signed), signed.signature)

    assert verifies("q", "s", approval)
    assert not verifies("other", "s", approval)
    assert not verifies("q", "other", approval)
    changes = {"digest": "e", "approver": "bob", "expires_ms": 10, "reason": "", "scope": "", "nonce": "m", "key": "k"}
    for field, value in changes.items():
        assert not verifies("q", "s", structs.replace(approval, **{field: value})), field
    other = ApproverKey(new_private_key())
    assert not verifies("q", "s", signed_approval(other, "q", "s", plain))
    assert not verifies("q", "s", structs.replace(signed_approval(other, "q", "s", plain), key=key.id))
    for junk in ("", "00", "zz", approval.signature[:-2], approval.signature + "00"):
        assert not verifies("q", "s", structs.replace(approval, signature=junk))


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "nobody could ever approve"),
        ("# ann x\n\n", "nobody could ever approve"),
        ("ann", "line 1"),
        ("\nann AAAA", "line 2: not an Ed25519"),
        ("ann !!!!", "line 1: the key is not base64"),
    ],
)
def test_keys_that_cant_be_used_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ApproverKeys(text)
    for pem in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(ValueError, match="cannot be read"):
            ApproverKey(pem)


def test_a_public_key_as_openssl_writes_it_is_taken() -> None:
    private = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    der = bytes.fromhex("302a300506032b6570032100") + private
    ids = {key_id for raw in (private, der) for key_id in ApproverKeys(f"x {base64.b64encode(raw).decode()}")._keys}
    assert len(ids) == 1


# -- by the public entry


def test_states_versions_scope_rejection_and_old_effects(shared_fleet: Fleet) -> None:
    agent = planning(shared_fleet)
    first = propose(agent, {"paths": ["docs"]}, {"tools": ["edit_file"], "paths": ["a.txt"]})
    with pytest.raises(NothingToJudge):
        approve(agent, digest="0" * 64)
    approval = approve(agent, digest=first)
    assert read_scope(approval.scope) == [Covered(paths=["docs"]), Covered(tools=["edit_file"], paths=["a.txt"])]
    agent.complete("write_file", path="docs/a.md", content="x")
    (agent.workspace / "docs/out").symlink_to("..")
    (agent.workspace / "a.txt").write_text("old")
    agent.complete("edit_file", path="a.txt", old_text="old", new_text="new")
    for tool, args in (
        ("write_file", WRITE),
        ("write_file", {"path": "docs/out/b.txt", "content": "b"}),
        ("run_command", {"command": "touch docs/b"}),
    ):
        assert agent.deny(tool, args).rule == "out_of_scope", args
    judge(shared_fleet, lambda a: a.reject(agent.session, approver="ann", reason="touch no docs"))
    error = agent.deny("write_file", path="docs/b.md", content="x")
    assert error.rule == "planning"
    assert "ann rejected the plan: touch no docs" in error.message
    before_ms = int(time.time() * 1000)
    propose(agent, summary="another")
    approve(agent)
    job_id = keys.job_id(shared_fleet.queue, agent.session, "late")
    shared_fleet.push_raw(job_id, encode_call("write_file", WRITE, enqueued_ms=before_ms - 60_000))
    late = shared_fleet.wait_replies(agent.session, 9)[-1]
    assert (late["call"], late["kind"], late["error"]["rule"]) == ("late", "denied", "old_plan")
    agent.complete("write_file", WRITE)
    approve(agent, life_s=1, scope=[Covered(tools=["edit_file"])])
    assert agent.deny("write_file", WRITE).rule == "out_of_scope"
    shared_fleet.redis.hset(keys.approval(shared_fleet.queue, agent.session), "expires_ms", 1)
    assert "its approval has expired" in agent.deny("write_file", WRITE).message
    assert sorted(path.name for path in agent.workspace.iterdir()) == ["a.txt", "docs"]


def test_an_approval_counts_for_one_plan_only(shared_fleet: Fleet) -> None:
    agent = planning(shared_fleet)
    propose(agent)
    approve(agent)
    agent.complete("write_file", WRITE)
    stored = keys.approval(shared_fleet.queue, agent.session)
    kept = shared_fleet.redis.hgetall(stored)
    propose(agent, summary="in between")
    propose(agent)
    error = agent.deny("write_file", WRITE)
    assert (error.rule, "given for an earlier plan" in error.message) == ("awaiting", True)
    orchestrate(shared_fleet, lambda o: o.close_session(agent.session))
    orchestrate(shared_fleet, lambda o: o.open_session(agent.session, mode="plan"))
    propose(agent)
    shared_fleet.redis.hset(stored, mapping=kept)
    assert agent.deny("write_file", WRITE).rule == "awaiting"
    approve(agent)
    agent.complete("write_file", WRITE)


def test_an_empty_path_covers_nothing(shared_fleet: Fleet) -> None:
    step = planning(shared_fleet)
    propose(step, {"paths": [""]})
    approve(step)
    assert step.deny("write_file", WRITE).rule == "out_of_scope"
    given = planning(shared_fleet)
    propose(given, {"paths": ["a.txt"]})
    approve(given, scope=[Covered(paths=[""])])
    assert given.deny("write_file", WRITE).rule == "out_of_scope"


def test_only_signed_approvals_count_where_keys_are_configured(signed: Fleet, key: ApproverKey) -> None:
    agent = planning(signed)
    digest = propose(agent, {"paths": ["a.txt"]})
    stored = keys.approval(signed.queue, agent.session)

    def shown() -> list[tuple[str, str]]:
        plan, session = (
            msgspec.json.decode(signed.run(what, "show", "--session", agent.session).stdout)
            for what in ("plan", "session")
        )
        return [(plan["state"], plan["approval_problem"]), (session["plan_state"], session["approval_problem"])]

    approve(agent)
    assert "not signed" in agent.deny("write_file", WRITE).message
    assert shown() == [("awaiting", "unsigned")] * 2
    approve(agent, ApproverKey(new_private_key()))
    assert "signature" in agent.deny("write_file", WRITE).message
    assert shown() == [("awaiting", "bad_signature")] * 2
    good = approve(agent, key)
    assert shown() == [("approved", "")] * 2
    for field, value in (("scope", "[]"), ("expires_ms", good.expires_ms + 1), ("approver", "bob"), ("nonce", "0")):
        signed.redis.hset(stored, field, value)
        assert agent.deny("write_file", WRITE).rule == "awaiting", field
        signed.redis.hset(stored, field, getattr(good, field))
    agent.complete("write_file", WRITE)
    assert agent.deny("write_file", path="b.txt", content="b").rule == "out_of_scope"
    other = planning(signed)
    assert propose(other, {"paths": ["a.txt"]}) == digest
    signed.redis.hset(keys.approval(signed.queue, other.session), mapping=signed.redis.hgetall(stored))
    assert other.deny("write_file", WRITE).rule == "awaiting"
    judge(signed, lambda a: a.reject(agent.session, approver="somebody", reason="no"))
    assert agent.deny("write_file", WRITE).rule == "planning"


def test_the_command_line_makes_a_key_and_signs(signed: Fleet, tmp_path: Path) -> None:
    made = signed.run("plan", "key", "--out", str(tmp_path / "key"), "--approver", "bob")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    name, public = made.stdout.decode().split()
    assert (name, ApproverKey.read(tmp_path / "key").public) == ("bob", public)
    assert signed.run("plan", "key", "--out", str(tmp_path / "key")).returncode != 0
    agent = planning(signed)
    propose(agent)
    env = {"TOOLREEF_APPROVER_KEY": str(tmp_path / "key")}
    answered = signed.run("plan", "approve", "--session", agent.session, "--path", "a.txt", env=env)
    assert answered.returncode == 0, answered.stderr
    stored = {k.decode(): v.decode() for k, v in signed.redis.hgetall(keys.approval("signed", agent.session)).items()}
    approval = Approval(**{**stored, "expires_ms": int(stored["expires_ms"])})
    assert approval.scope == '[{"paths":["a.txt"]}]'
    message = plan_message("signed", agent.session, approval)
    assert ApproverKeys(f"{name} {public}").verifies(approval.key, message, approval.signature)


def test_commands_before_the_approval_look_and_write_nothing(looking: Fleet) -> None:
    agent = planning(looking)
    agent.complete("list_directory", path=".")
    (agent.workspace / "notes.txt").write_text("hello\n")
    output = agent.complete("run_command", command="cat notes.txt; echo x > made; rm -f notes.txt; echo y >> notes.txt")
    assert output["stdout"] == "hello\n"
    assert "Read-only" in output["stderr"] or "Permission denied" in output["stderr"]
    assert (agent.workspace / "notes.txt").read_text() == "hello\n"
    assert not (agent.workspace / "made").exists()
    dial = (
        "(exec 3<>/dev/tcp/127.0.0.1/1) 2>&1; mkdir d; ln -s notes.txt l; mv notes.txt m; touch -d 2001-01-01 notes.txt"
    )
    agent.complete("run_command", command=dial)
    assert {path.name for path in agent.workspace.iterdir()} - {".toolreef"} == {"notes.txt"}
    assert agent.deny("run_command", command="cat notes.txt", background=True).rule == "planning"
    assert agent.deny("write_file", WRITE).rule == "planning"
    propose(agent)
    assert agent.complete("run_command", command="cat notes.txt")["stdout"] == "hello\n"
    approve(agent)
    agent.complete("run_command", command="echo x > made")
    assert (agent.workspace / "made").read_text() == "x\n"


def test_under_the_acl_an_agent_cannot_approve_reject_forge_or_replay(tmp_path: Path) -> None:
    passwords = {role: f"secret-of-{role}" for role in ROLES}
    lines = users_acl(["planned"], passwords).splitlines()[1:]
    lines.append(" ".join(["user alone", *rules("agent", ["planned"], "s1"), "on", ">x"]))
    lines += ["user boss reset on nopass ~* &* +@all", "user default reset on nopass +ping"]
    (tmp_path / "users.acl").write_text("\n".join(lines) + "\n")
    with serve(tmp_path, "--aclfile", str(tmp_path / "users.acl")) as server:

        def url(user: str, password: str) -> str:
            return f"unix://{user}:{password}@{server.socket}"

        fleet = Fleet(url("boss", ""), tmp_path, "planned")
        fleet.start_worker(url=url("worker", passwords["worker"]))
        try:
            as_approver = Fleet(url("approver", passwords["approver"]), tmp_path, "planned")
            as_agent = Fleet(url("alone", "x"), tmp_path, "planned")
            boss, agent = fleet.agent("s1"), as_agent.agent("s1")
            orchestrate(fleet, lambda o: o.open_session("s1", mode="plan"))
            propose(agent)
            plan, approval = keys.plan("planned", "s1"), keys.approval("planned", "s1")
            nonces, session = keys.nonces("planned", "s1"), keys.session("planned", "s1")
            judge(as_approver, lambda a: a.approve("s1", approver="ann"))
            kept = fleet.redis.hgetall(approval)
            judge(as_approver, lambda a: a.reject("s1", approver="ann", reason="no"))
            for attempt in (
                ("HSET", approval, "verdict", "approved"),
                ("HSET", approval, *(word for pair in kept.items() for word in pair)),
                ("DEL", approval),
                ("HSET", plan, "digest", kept[b"digest"]),
                ("HSET", plan, "scope", "[]"),
                ("DEL", plan),
                ("DEL", nonces),
                ("HSET", session, "mode", "normal"),
                ("DEL", session),
                ("RENAME", plan, approval),
                ("EVAL", "return 1", 0),
                ("XADD", keys.replies("planned", "s1"), "*", "reply", "{}"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    as_agent.redis.execute_command(*attempt)
            for act in (Approver.approve, Approver.reject):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    judge(as_agent, functools.partial(act, session="s1", approver="me"))
            assert agent.deny("write_file", WRITE).rule == "planning"
            judge(as_approver, lambda a: a.approve("s1", approver="ann"))
            agent.complete("write_file", WRITE)
            assert (boss.workspace / "a.txt").read_text() == "a"
            as_agent.redis.close(), as_approver.redis.close()
        finally:
            fleet.end()


def test_an_approval_taken_back_while_an_effect_waits_is_seen_before_it_starts(shared_fleet: Fleet) -> None:
    agent = planning(shared_fleet)
    propose(agent)
    approve(agent)
    agent.push("slow", "run_command", {"command": "until [ -e go ]; do sleep 0.05; done"})
    agent.push("next", "write_file", WRITE)
    judge(shared_fleet, lambda a: a.reject(agent.session, approver="ann", reason="stop"))
    (agent.workspace).mkdir(exist_ok=True, parents=True)
    (agent.workspace / "go").touch()
    ended = {reply["call"]: reply for reply in shared_fleet.wait_replies(agent.session, 3)}
    assert (ended["next"]["kind"], ended["next"]["error"]["rule"]) == ("denied", "planning")
    assert not (agent.workspace / "a.txt").exists()
