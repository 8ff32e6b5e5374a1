"""Rules in force: judged by real workers, before a call and after it, and reloaded while they run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import keys
from contracts.codec import decode_reply
from contracts.levels import Level
from contracts.replies import Completed, Failed
from tests.fleet import Agent, Fleet, wait_until

POLICY = """
version = 1

[[rule]]
name = "no-secrets"
action = "deny"
path = "secrets"
reason = "nobody looks in there"
unless = { path = "secrets/README" }

[[rule]]
name = "no-push"
action = "deny"
command = "git push"

[[rule]]
name = "not-in-ci"
action = "deny"
effect = "effect"
session = "ci-*"

[[rule]]
name = "customers"
action = "redact"
tool = "*"
pattern = 'cust-[0-9]+'
raise_to = "INTERNAL"

[[rule]]
name = "nothing-restricted"
action = "deny"
tool = ["read_file", "edit_file", "search_files", "run_command"]
level = ">=RESTRICTED"
"""


@pytest.fixture(scope="module")
def ruled(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    state = tmp_path_factory.mktemp("ruled")
    (state / "policy.toml").write_text(POLICY)
    fleet = Fleet(server.url, state, "ruled", policy=state / "policy.toml", levels="top/**=RESTRICTED")
    fleet.start_worker()
    yield fleet
    fleet.end()


@pytest.fixture
def agent(ruled: Fleet) -> Agent:
    made = ruled.agent()
    made.complete("list_directory", path=".")
    (made.workspace / "secrets").mkdir()
    (made.workspace / "secrets/key").write_text("the key is 42\n")
    (made.workspace / "secrets/README").write_text("the key is kept here\n")
    (made.workspace / "note").write_text("the key is not here\n")
    return made


def audit(fleet: Fleet, agent: Agent) -> list[dict[str, Any]]:
    entries = [msgspec.json.decode(fields[b"entry"]) for _, fields in fleet.redis.xrange(keys.audit(fleet.queue))]
    return [entry for entry in entries if f":{agent.session}:" in entry["id"]]


def test_a_rule_denies_and_says_which_and_of_which_version(ruled: Fleet, agent: Agent) -> None:
    error = agent.deny("read_file", path="secrets/key")
    assert (error.code, error.effect, error.policy, error.rule) == ("forbidden", "none", "rules", "no-secrets")
    assert error.message == "nobody looks in there"
    assert len(error.policy_version) == 12
    last = audit(ruled, agent)[-1]
    assert (last["rule"], last["policy_version"]) == ("no-secrets", error.policy_version)
    agent.complete("read_file", path="note")
    assert audit(ruled, agent)[-1]["policy_version"] == error.policy_version
    assert agent.complete("read_file", path="secrets/README")["text"].startswith("the key")


@pytest.mark.parametrize(
    "command", ["git push", "cat secrets/key", "cd secrets; cat key", "env x=1 git -C . push", "bash -c 'git push'"]
)
def test_commands_are_followed(agent: Agent, command: str) -> None:
    assert agent.deny("run_command", command=f"touch ran; {command}").policy == "rules"
    assert not (agent.workspace / "ran").exists()


@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file"])
def test_a_link_into_a_denied_place_leads_nowhere(agent: Agent, tool: str) -> None:
    (agent.workspace / "plain").symlink_to("secrets/key")
    (agent.workspace / "dir").symlink_to("secrets")
    more = {"write_file": {"content": "x"}, "edit_file": {"old_text": "42", "new_text": "43"}}.get(tool, {})
    for path in ("plain", "dir/key", "dir/../secrets/key", str(agent.workspace / "dir/key")):
        assert agent.deny(tool, {"path": path, **more}).rule == "no-secrets"
    assert (agent.workspace / "secrets/key").read_text() == "the key is 42\n"


def test_what_a_search_came_upon_is_withheld(agent: Agent) -> None:
    error = agent.deny("search_files", path=".", pattern="key", content_search=True)
    assert (error.code, error.effect, error.rule) == ("forbidden", "none", "no-secrets")
    assert "42" not in error.message
    found = agent.complete("search_files", path="note", pattern="key", content_search=True)
    assert [match["path"] for match in found["matches"]] == ["note"]


def test_a_session_and_an_effect_class_are_conditions(ruled: Fleet) -> None:
    agent = ruled.agent("ci-1")
    assert agent.deny("write_file", path="a", content="a").rule == "not-in-ci"
    assert agent.complete("list_directory", path=".")["entries"] == []


def test_redaction_reaches_output_errors_and_the_level(ruled: Fleet, agent: Agent) -> None:
    (agent.workspace / "list").write_text("cust-123 and cust-9\n")
    reply = agent.call("read_file", path="list")
    assert isinstance(reply, Completed)
    assert reply.output["text"] == "[redacted:customers] and [redacted:customers]\n"
    assert (reply.level, reply.taint) == (Level.INTERNAL, Level.INTERNAL)
    failed = agent.call("edit_file", path="list", old_text="cust-123 or", new_text="x")
    assert isinstance(failed, Failed)
    assert b"cust-" not in msgspec.json.encode(failed.error)


def test_redaction_reaches_what_is_noted_of_a_call(ruled: Fleet, agent: Agent) -> None:
    agent.complete("run_command", command="echo cust-1; cat note")
    agent.complete("write_file", path="cust-2", content="cust-3")
    agent.complete("read_file", path="cust-2")
    agent.deny("run_command", command="git push cust-4")
    assert [entry["about"] for entry in audit(ruled, agent)[1:]] == [
        "echo [redacted:customers]; cat note",
        "[redacted:customers]",
        "[redacted:customers]",
        "git push [redacted:customers]",
    ]
    records = [line for file in (ruled.state / "audit").rglob("*.jsonl") for line in file.read_bytes().splitlines()]
    mine = [msgspec.json.decode(line) for line in records if f":{agent.session}:".encode() in line]
    assert [record["args_text"] for record in mine if "args_text" in record][1:] == [
        '{"command":"echo [redacted:customers]; cat note"}',
        '{"path":"[redacted:customers]","content":"[redacted:customers]"}',
        '{"path":"[redacted:customers]"}',
        '{"command":"git push [redacted:customers]"}',
    ]
    assert [file["path"] for record in mine for file in record.get("files", ())] == ["[redacted:customers]"]
    assert not any(b"cust-" in line for line in records)


def test_progress_waits_where_a_rule_may_still_change_it(ruled: Fleet, agent: Agent) -> None:
    job = agent.push("p1", "run_command", {"command": "for i in 1 2 3; do printf cust-; sleep 0.1; echo $i; done"})
    (reply,) = [r for r in ruled.wait_replies(agent.session, 2) if r["call"] == "p1"]
    assert reply["output"]["stdout"] == "[redacted:customers]\n" * 3
    raw = ruled.redis.xrange(keys.replies(ruled.queue, agent.session))
    assert [type(decode_reply(fields[b"reply"])).__name__ for _, fields in raw][1:] == ["Completed"]
    assert job.endswith(":p1")


def test_an_answer_above_a_level_is_withheld_and_taints_nobody(agent: Agent) -> None:
    (agent.workspace / "top").mkdir()
    (agent.workspace / "top/plan").write_text("attack at dawn")
    assert agent.deny("read_file", path="top/plan").rule == "nothing-restricted"
    assert agent.deny("run_command", command="true").rule == "nothing-restricted"
    reply = agent.call("list_directory", path=".")
    assert reply.taint is Level.PUBLIC


def test_an_error_that_quotes_what_was_opened_is_withheld_too(agent: Agent) -> None:
    (agent.workspace / "top").mkdir()
    (agent.workspace / "top/plan").write_text("attack at dawn\n")
    reply = agent.call("edit_file", path="top/plan", old_text="attack at down", new_text="x")
    assert isinstance(reply, Failed)
    assert reply.error
    assert (reply.error.code, reply.error.effect, reply.error.rule) == ("forbidden", "failed", "nothing-restricted")
    assert b"dawn" not in msgspec.json.encode(reply.error)


def heard(fleet: Fleet, words: str) -> None:
    (worker,) = fleet.workers
    wait_until(lambda: words in worker.log.read_text(), words)


def test_a_reload_takes_the_new_file_or_keeps_the_old_one(make_fleet: Any, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    fleet = make_fleet(policy=file)
    rule = 'version = 1\n[[rule]]\nname = "{0}"\naction = "deny"\ntool = "{1}"\n'
    file.write_text(rule.format("one", "read_file"))
    worker = fleet.start_worker()
    agent = fleet.agent()
    before = agent.deny("read_file", path="a")
    file.write_text(rule.format("two", "no_such_tool"))
    worker.signal(signal.SIGHUP)
    heard(fleet, f"stays at version {before.policy_version}")
    assert "rule two: no tool is called 'no_such_tool'" in worker.log.read_text()
    kept = agent.deny("read_file", path="a")
    assert (kept.rule, kept.policy_version) == ("one", before.policy_version)
    file.write_text(rule.format("three", "list_directory"))
    worker.signal(signal.SIGHUP)
    heard(fleet, "is in force, 1 rules")
    after = agent.deny("list_directory", path=".")
    assert after.rule == "three"
    assert after.policy_version != before.policy_version
    assert agent.fail("read_file", path="a").code == "not_found"


def test_a_supervisor_has_every_process_reload(make_fleet: Any, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("version = 1\n")
    fleet = make_fleet(policy=file)
    supervisor = fleet.start_supervisor(2)
    file.write_text('version = 1\n[[rule]]\nname = "x"\naction = "deny"\ntool = "*"\n')
    supervisor.signal(signal.SIGHUP)
    wait_until(lambda: supervisor.log.read_text().count("is in force, 1 rules") == 2, "both reloads")
    assert fleet.agent().deny("list_directory", path=".").rule == "x"


def test_a_worker_without_a_policy_has_none_to_reload(make_fleet: Any) -> None:
    fleet = make_fleet()
    fleet.start_worker().signal(signal.SIGHUP)
    heard(fleet, "there is none to reload")
    fleet.agent().complete("list_directory", path=".")


def test_a_worker_refuses_to_start_with_a_policy_that_can_not_be_used(make_fleet: Any, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('version = 1\n[[rule]]\nname = "x"\naction = "allow"\ntool = "no_tool"\n')
    fleet = make_fleet(policy=file)
    done = fleet.run("worker")
    assert done.returncode == 2
    assert b"rule x: no tool is called 'no_tool'" in done.stderr
    assert b"Traceback" not in done.stderr
    missing = make_fleet(policy=tmp_path / "none.toml").run("worker")
    assert missing.returncode == 2
    assert b"can't be read" in missing.stderr


def test_no_allow_overrides_what_is_built_in(make_fleet: Any, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('version = 1\n[[rule]]\nname = "all"\naction = "allow"\ntool = "*"\n')
    fleet = make_fleet(policy=file)
    fleet.start_worker()
    agent = fleet.agent()
    assert agent.deny("run_command", command="sudo id").policy == "command_denylist"
    assert agent.deny("write_file", path="../x", content="").policy == "path_scope"
    assert agent.deny("run_command", command="$(cat name) y").code == "approval_required"
