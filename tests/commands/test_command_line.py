"""The command line as a script would use it: one JSON line out, the designed exit status, no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts import keys
from tests.fleet import Fleet, wait_until

MakeFleet = Callable[..., Fleet]
Done = subprocess.CompletedProcess[bytes]


def lines(done: Done) -> list[dict[str, Any]]:
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "arguments, status, kind, code",
    [
        (("write_file", "path=a.txt", "content=1"), 0, "completed", None),
        (("write_file", "--args", '{"path":"b.txt","content":"x"}'), 0, "completed", None),
        (("run_command", "command=exit 7"), 0, "completed", None),
        (("run_command", "command=sudo id"), 3, "denied", "forbidden"),
        (("read_file", "path=none"), 4, "failed", "not_found"),
        (("read_file", "path=x", "colour=red"), 4, "failed", "invalid_call"),
        (("no_such_tool",), 4, "failed", "invalid_call"),
        (("read_file", "path=a", "offset=minus"), 4, "failed", "invalid_call"),
        (("run_command", "command=sleep 30", "timeout_s=0.3"), 4, "failed", "timeout"),
    ],
)
def test_call_prints_its_reply_and_ends_with_its_status(
    shared_fleet: Fleet, arguments: tuple[str, ...], status: int, kind: str, code: str | None
) -> None:
    session = shared_fleet.agent().session
    done = shared_fleet.run("call", *arguments, "--session", session)
    (reply,) = lines(done)
    assert (done.returncode, reply["kind"]) == (status, kind)
    assert (reply["error"]["code"] if reply["error"] else None) == code
    expected = {"v", "session", "call", "kind", "tool", "output", "error", "level", "taint", "sandbox", "attempt"}
    assert expected | {"queued_ms", "run_ms", "truncated"} == set(reply)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("call",), b"which tool"),
        (("call", "read_file", "path"), b"'path' is not key=value"),
        (("call", "read_file", "path=a", "path=b"), b"'path' is given twice"),
        (("call", "read_file", "--args", "{"), b"--args:"),
        (("call", "read_file", "--args", "[1]"), b"--args:"),
        (("call", "read_file", "path=a", "--session", "-bad"), b"session"),
        (("call", "read_file", "path=a", "--session", "s p a c e"), b"session 's p a c e'"),
        (("call", "read_file", "path=a", "--call-id", "a/b"), b"call id 'a/b'"),
        (("call", "read_file", "path=a", "--timeout", "0"), b"--timeout 0"),
        (("call", "read_file", "path=a", "--queue", "{x}"), b"queue '{x}'"),
        (("call", "--batch", "f", "read_file"), b"--batch"),
        # As from a variable that was not set.
        (("call", "read_file", "path=a", "--call-id", ""), b"--call-id: must not be empty"),
        (("call", "read_file", "path=a", "--session", ""), b"--session: must not be empty"),
        (("call", "read_file", "path=a", "--deadline", "nan"), b"a deadline is a number of seconds"),
        (("call", "read_file", "path=a", "--deadline", "1e300"), b"a deadline is a number of seconds"),
        (("replies", "--session", "s", "--after", "xyz"), b"'xyz' is no stream id"),
        (("session", "open", "--session", "s", "--workspace", ""), b"--workspace: must not be empty"),
        (("policy", "explain", "read_file", "path=a", "--workspace", ""), b"--workspace: must not be empty"),
        (("audit", "show", "--session", "s", "--tool", ""), b"--tool: must not be empty"),
        (("plan", "propose", "--session", "s", "--summary", "x", "--timeout", "-1"), b"--timeout -1"),
        (("plan", "approve", "--session", "s", "--path", ""), b"--path: must not be empty"),
        (("plan", "approve", "--session", "s", "--tool", "rm"), b"--tool: invalid choice: 'rm'"),
        (("plan", "key", "--out", "/nowhere/key", "--approver", "a b"), b"--approver 'a b'"),
        (("dashboard", "--port", "65536"), b"--port 65536"),
        (("session", "open"), b"--session"),
        (("session", "open", "--session", "s", "--mode", "sly"), b"sly"),
        (("session", "open", "--session", "s", "--level", "SECRET"), b"SECRET"),
        (("worker", "--processes", "0"), b"--processes 0"),
        (("worker", "--queue", "a", "--queue", "a"), b"--queue"),
        (("schemas", "--format", "xml"), b"xml"),
        (("frobnicate",), b"frobnicate"),
        ((), b"usage"),
    ],
)
def test_a_wrong_command_line_is_told_what_is_wrong(
    shared_fleet: Fleet, arguments: tuple[str, ...], words: bytes
) -> None:
    done = shared_fleet.run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize(
    "name, value", [("CONCURRENCY", "many"), ("LEASE_S", "-1"), ("SANDBOX", "maybe"), ("LEVELS", "no level here")]
)
def test_a_wrong_setting_is_named(shared_fleet: Fleet, name: str, value: str) -> None:
    done = shared_fleet.run("worker", env={f"TOOLREEF_{name}": value})
    assert done.returncode == 2
    assert b"TOOLREEF_" + name.encode() in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_batch_answers_line_by_line_in_order(shared_fleet: Fleet, tmp_path: Path) -> None:
    session = shared_fleet.agent().session
    batch = [
        {"tool": "write_file", "args": {"path": "a.txt", "content": "one\n"}},
        {"tool": "edit_file", "args": {"path": "a.txt", "old_text": "one", "new_text": "two"}},
        {"tool": "read_file", "args": {"path": "a.txt"}, "call_id": "mine"},
        {"tool": "list_directory", "args": {"path": "."}},
        {"tool": "search_files", "args": {"path": ".", "pattern": "two", "content_search": True}},
        {"tool": "run_command", "args": {"command": "cat a.txt"}},
        {"tool": "run_command", "args": {"command": "sudo id"}},
        {"tool": "write_file", "args": {"path": "../a", "content": ""}},
        {"tool": "read_file", "args": {"path": "none"}},
        {"tool": "read_file", "args": {"path": "."}},
        {"tool": "edit_file", "args": {"path": "a.txt", "old_text": "zzz", "new_text": "two"}},
        {"tool": "write_file", "args": {"path": "a.txt", "content": "", "create_only": True}},
        {"tool": "nothing", "args": {}},
    ]
    text = [json.dumps(line) for line in batch] + ["not json", '{"tool":1}', "", '{"tool":"read_file","extra":1}']
    text.append('{"tool":"read_file","args":{"path":"a.txt"},"session":"../up"}')
    file = tmp_path / "batch.jsonl"
    file.write_text("\n".join(text))
    done = shared_fleet.run("call", "--batch", str(file), "--session", session)
    replies = lines(done)
    codes = [reply["error"]["code"] if reply["error"] else "ok" for reply in replies]
    assert (
        codes
        == [*["ok"] * 6, "forbidden", "forbidden", "not_found", "wrong_kind", "no_match", "conflict"]
        + ["invalid_call"] * 5
    )
    assert done.returncode == 0
    assert replies[2]["call"] == "mine"
    assert replies[2]["output"]["text"] == "two\n"
    assert "line 14" in replies[13]["error"]["message"]
    again = shared_fleet.run("call", "--batch", "-", "--session", session, stdin=text[2].encode())
    assert lines(again) == [replies[2]]


def test_no_terminal_reply_in_time_is_status_5(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    done = fleet.run("call", "read_file", "path=a", "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (5, b"")
    assert b"no worker has served queue" in done.stderr
    assert b"no terminal reply" in done.stderr
    batch = fleet.run("call", "--batch", "-", "--timeout", "0.3", stdin=b'{"tool":"read_file","args":{"path":"a"}}')
    assert (batch.returncode, lines(batch)[0]["kind"]) == (5, "pending")


def test_a_missing_server_or_file_is_told(shared_fleet: Fleet, tmp_path: Path) -> None:
    call = ("call", "read_file", "path=a", "--timeout", "20")
    done = shared_fleet.run(*call, env={"REDIS_URL": "redis://127.0.0.1:1/0"})
    assert (done.returncode, done.stdout) == (4, b"")
    assert b"Redis does not serve us" in done.stderr
    wrong = shared_fleet.run(*call, env={"REDIS_URL": "gopher://x"})
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    missing = shared_fleet.run("call", "--batch", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert b"No such file" in missing.stderr
    for each in (done, wrong, missing):
        assert b"Traceback" not in each.stderr


def test_a_state_directory_that_cannot_be_used_is_named(shared_fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for env in ({"TOOLREEF_STATE": str(file)}, {"TOOLREEF_STATE": str(file), "REDIS_URL": ""}):
        done = shared_fleet.run("worker", env=env)
        assert done.returncode in (1, 4)
        assert str(file).encode() in done.stderr
        assert b"Traceback" not in done.stderr


def test_sessions_and_plans_on_the_command_line(shared_fleet: Fleet) -> None:
    session = shared_fleet.agent().session
    named = ("--session", session)
    (opened,) = lines(shared_fleet.run("session", "open", *named, "--workspace", "w-1", "--mode", "plan"))
    assert (opened["opened"], opened["workspace"], opened["plan_state"]) == (True, "w-1", "planning")
    write = ("call", "write_file", "path=a", "content=b", *named)
    assert shared_fleet.run(*write).returncode == 3
    assert shared_fleet.run("plan", "approve", *named).returncode == 4
    (proposed,) = lines(shared_fleet.run("plan", "propose", *named, "--summary", "write a", "--step", "write it"))
    digest = proposed["output"]["digest"]
    assert shared_fleet.run(*write).returncode == 3
    (shown,) = lines(shared_fleet.run("plan", "show", *named))
    assert (shown["state"], shown["plan"]["digest"]) == ("awaiting", digest)
    assert shown["plan"]["body"] == {
        "summary": "write a",
        "steps": [{"description": "write it", "paths": [], "tools": []}],
    }
    (verdict,) = lines(shared_fleet.run("plan", "reject", *named, "--reason", "not like this"))
    assert (verdict["verdict"], verdict["reason"]) == ("rejected", "not like this")
    (verdict,) = lines(shared_fleet.run("plan", "approve", *named, "--digest", digest, "--approver", "ann"))
    assert (verdict["verdict"], verdict["approver"]) == ("approved", "ann")
    assert shared_fleet.run(*write).returncode == 0
    (raised,) = lines(shared_fleet.run("session", "set", *named, "--level", "INTERNAL", "--mode", "normal"))
    assert (raised["taint"], raised["mode"]) == ("INTERNAL", "normal")
    assert shared_fleet.run("session", "set", *named, "--level", "PUBLIC").returncode == 2
    assert lines(shared_fleet.run("session", "close", *named)) == [{"session": session, "closed": True}]
    assert shared_fleet.run("session", "close", *named).returncode == 4


def test_a_batch_heeds_its_priority(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = make_fleet()
    (tmp_path / "batch").write_text('{"tool":"list_directory","args":{"path":"."}}\n' * 3)
    for more, expected in ((("--batch-priority",), (0, 3)), ((), (3, 3))):
        assert fleet.run("call", "--batch", str(tmp_path / "batch"), "--timeout", "1", *more).returncode == 5
        queued = tuple(fleet.redis.zcard(key(fleet.queue)) for key in (keys.queue, keys.batch))
        assert queued == expected


def test_opening_a_session_again_changes_what_is_given_alone(shared_fleet: Fleet) -> None:
    named = ("--session", shared_fleet.agent().session)
    options = ("--mode", "plan", "--workspace", "w-2", "--pin", "INTERNAL", "--level", "INTERNAL")
    (opened,) = lines(shared_fleet.run("session", "open", *named, *options))
    assert lines(shared_fleet.run("session", "open", *named)) == [opened]
    (moved,) = lines(shared_fleet.run("session", "open", *named, "--workspace", "w-3"))
    assert moved == {**opened, "workspace": "w-3", "workspace_pin": None}
    (normal,) = lines(shared_fleet.run("session", "open", *named, "--mode", "normal"))
    assert normal == {**moved, "mode": "normal", "plan_state": "normal"}


def test_watching_on_the_command_line(shared_fleet: Fleet) -> None:
    agent = shared_fleet.agent()
    agent.complete("write_file", path="a", content="b")
    replies = lines(shared_fleet.run("replies", "--session", agent.session))
    assert [reply["kind"] for reply in replies] == ["completed"]
    (status,) = lines(shared_fleet.run("status", "--json"))
    assert [worker["heartbeat"]["sandbox"] for worker in status["workers"]]
    assert b"slots" in shared_fleet.run("status").stdout
    (asked,) = lines(shared_fleet.run("cancel", "--session", agent.session, "--call-id", "c"))
    assert asked == {"session": agent.session, "call": "c", "asked": True}


def test_follow_shows_output_as_it_comes(shared_fleet: Fleet) -> None:
    agent = shared_fleet.agent()
    done = shared_fleet.run(
        "call", "run_command", "command=echo one; sleep 0.6; echo two", "--session", agent.session, "--follow"
    )
    (reply,) = lines(done)
    assert reply["output"]["stdout"] == "one\ntwo\n"
    assert b"one\ntwo\n" in done.stderr


def test_doctor_finds_what_the_defaults_need(shared_fleet: Fleet) -> None:
    done = shared_fleet.run("doctor", "--json")
    findings = {finding["what"]: finding["ok"] for finding in lines(done)}
    assert done.returncode == 0
    assert findings["redis"]
    assert findings["ripgrep"]


def test_the_demo_tells_its_story(tmp_path: Path, shared_fleet: Fleet) -> None:
    done = shared_fleet.run("demo")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    for words in (b"DENIED forbidden", b"approves plan", b"taint is now CONFIDENTIAL", b"risen to CONFIDENTIAL"):
        assert words in done.stdout


def test_processes_are_supervised(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    supervisor = fleet.start_supervisor(2)
    agent = fleet.agent()
    assert agent.complete("list_directory", path=".")["entries"] == []
    name, pid = sorted(fleet.beating().items())[0]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: fleet.beating()[name] != pid, "another process in its place", 60)
    assert agent.complete("run_command", command="echo on")["stdout"] == "on\n"
    supervisor.end()
    assert supervisor.process.returncode == 0
    assert fleet.beating() == {}
