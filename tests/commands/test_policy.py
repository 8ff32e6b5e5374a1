"""toolreef policy: check, test and explain, without a Redis or a worker anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contracts.levels import Level

POLICY = """
version = 1
default = "ask"

[[rule]]
name = "look"
action = "allow"
effect = "read"

[[rule]]
name = "git"
action = "allow"
command = ["git status", "git diff"]
must_match = [{ tool = "run_command", args = { command = "git status && git diff" } }]
must_not_match = [{ tool = "run_command", args = { command = "git status; rm x" } }]

[[rule]]
name = "secrets"
action = "deny"
path = "secrets"
reason = "keep out"
"""
BATCH: list[tuple[Any, str, str, str]] = [
    ({"tool": "read_file", "args": {"path": "a"}}, "allow", "look", "PUBLIC"),
    ({"tool": "read_file", "args": {"path": "secrets/a"}}, "deny", "secrets", "PUBLIC"),
    ({"tool": "read_file", "args": {"path": "finance/a"}}, "allow", "look", "CONFIDENTIAL"),
    ({"tool": "read_file", "args": {"path": "a"}, "level": "RESTRICTED"}, "allow", "look", "RESTRICTED"),
    ({"tool": "run_command", "args": {"command": "git status"}}, "allow", "git", "PUBLIC"),
    ({"tool": "run_command", "args": {"command": "git push"}}, "ask", "default", "PUBLIC"),
    ({"tool": "run_command", "args": {"command": "cat secrets/a"}}, "deny", "secrets", "PUBLIC"),
    ({"tool": "run_command", "args": {"command": "git status; sudo id"}}, "deny", "privilege", "PUBLIC"),
    ({"tool": "write_file", "args": {"path": "a", "content": ""}}, "ask", "default", "PUBLIC"),
    ({"tool": "write_file", "args": {"path": "/etc/a", "content": ""}}, "deny", "outside_workspace", "PUBLIC"),
    ({"tool": "write_file", "args": {"path": "a", "content": ""}, "mode": "plan"}, "deny", "planning", "PUBLIC"),
    ({"tool": "browse", "args": {}}, "deny", "unknown_tool", "PUBLIC"),
    ({"tool": "read_file", "args": {"pth": "a"}}, "deny", "invalid_call", "PUBLIC"),
    ({"tool": "read_file", "arguments": {}}, "deny", "invalid_call", "PUBLIC"),
    ([1], "deny", "invalid_call", "PUBLIC"),
]  # fmt: skip


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    """Runs the command with a policy file, and nothing that it could reach."""
    (tmp_path / "p.toml").write_text(POLICY)
    environ = {
        "HOME": str(tmp_path),
        "REDIS_URL": "unix:///nonexistent",
        "TOOLREEF_STATE": str(tmp_path / "state"),
        "TOOLREEF_POLICY": str(tmp_path / "p.toml"),
        "TOOLREEF_LEVELS": "finance/**=CONFIDENTIAL",
    }

    def run(*words: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "worker", "policy", *words]
        return subprocess.run(
            command, env=environ | more, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def test_a_batch_is_answered_line_by_line_in_order(policy: Any, tmp_path: Path) -> None:
    lines = "".join(json.dumps(line) + "\n\n" for line, *_ in BATCH) + "{broken\n"
    (tmp_path / "calls.jsonl").write_text(lines)
    done = policy("explain", "--batch", str(tmp_path / "calls.jsonl"))
    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    got = [(answer["decision"], answer["rule"], answer["level"]) for answer in answers]
    assert got == [*(tuple(expected) for _, *expected in BATCH), ("deny", "invalid_call", "PUBLIC")]
    assert all(set(answer) == {"decision", "rule", "reason", "level", "policy"} for answer in answers)
    assert answers[1]["reason"] == "keep out"
    assert policy("explain", "--batch", "-", stdin=lines).stdout == done.stdout
    assert not (tmp_path / "state").exists(), "nothing is made"


def test_one_call_from_words(policy: Any) -> None:
    done = policy("explain", "run_command", "command=cat secrets/a", "--level", "INTERNAL", "--session", "s1")
    answer = json.loads(done.stdout)
    version = answer.pop("policy_version")
    assert (done.returncode, len(version)) == (0, 12)
    assert answer == {
        "tool": "run_command",
        "decision": "deny",
        "rule": "secrets",
        "reason": "keep out",
        "level": Level.INTERNAL.value,
        "policy": "rules",
    }
    assert json.loads(policy("explain", "read_file", "path=a", "--policy", "").stdout)["policy"] == "plan_gate"
    assert policy("explain").returncode == 2
    assert policy("explain", "read_file", "--batch", "-").returncode == 2
    missing = policy("explain", "read_file", "path=a", "--policy", "/nowhere.toml")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "can't be read" in missing.stderr


def test_plan_mode_is_judged_as_workers_are_set(policy: Any) -> None:
    words = ("explain", "run_command", "command=git status", "--mode", "plan", "--policy", "")
    assert json.loads(policy(*words).stdout)["decision"] == "deny"
    told = json.loads(policy(*words, TOOLREEF_PLAN_COMMANDS="read_only").stdout)
    assert (told["decision"], told["rule"]) == ("allow", "read_only")


def test_check_says_what_is_in_a_policy_or_all_that_is_wrong(policy: Any, tmp_path: Path) -> None:
    done = policy("check", str(tmp_path / "p.toml"))
    told = json.loads(done.stdout)
    assert (done.returncode, told["rules"], told["default"]) == (0, ["look", "git", "secrets"], "ask")
    assert told["without_examples"] == ["look", "secrets"]
    (tmp_path / "bad.toml").write_text(POLICY.replace('"deny"', '"denie"') + "[limits.session]\n")
    bad = policy("check", str(tmp_path / "bad.toml"))
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "rule secrets" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_test_tries_every_example(policy: Any, tmp_path: Path) -> None:
    done = policy("test", str(tmp_path / "p.toml"))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["rule"], line["expected"], line["ok"]) for line in lines] == [
        ("git", "must_match", True),
        ("git", "must_not_match", True),
    ]
    (tmp_path / "bad.toml").write_text(POLICY.replace("git status; rm x", "git status"))
    bad = policy("test", str(tmp_path / "bad.toml"))
    assert bad.returncode == 1
    assert [json.loads(line)["ok"] for line in bad.stdout.splitlines()] == [True, False]
    assert "rule git: must_not_match example 1" in bad.stderr
    assert policy("check", str(tmp_path / "bad.toml")).returncode == 1
