"""toolreef audit against the logs of real workers: what happened stands there, and tampering shows."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts import keys
from contracts.levels import Level
from contracts.orchestrator import Orchestrator
from contracts.replies import Completed
from tests.fleet import Agent, Fleet, run_async, wait_until

AUDIT_KEY = b"a secret that signs the checkpoints"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def told(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Agent]]:
    """A fleet whose worker has carried out a story and has ended in peace, and the agent of the story."""
    state = tmp_path_factory.mktemp("told")
    (state / "key").write_bytes(AUDIT_KEY)
    (state / "secrets").write_text("db=correct-horse-battery\n")
    fleet = Fleet(
        server.url,
        state,
        "told",
        audit_key_file=state / "key",
        secrets_file=state / "secrets",
        levels="finance/**=CONFIDENTIAL",
    )
    worker = fleet.start_worker(name="w1")
    agent = fleet.agent("s1")
    agent.complete("write_file", path="a.txt", content="one", call_id="write")
    agent.complete("edit_file", path="a.txt", old_text="one", new_text="two", call_id="edit")
    agent.call("read_file", path="a.txt", call_id="read")
    agent.deny("run_command", command="sudo id", call_id="denied")
    agent.complete("write_file", path="finance/q3", content="42", call_id="finance")
    agent.call("read_file", path="finance/q3", call_id="brought")
    agent.fail("read_file", path="missing", call_id="missing")
    fleet.agent("s2").deny("run_command", command=f"sudo echo {TOKEN} correct-horse-battery", call_id="secret")
    worker.end()
    assert worker.process.returncode == 0, worker.log.read_text()
    yield fleet, agent
    fleet.end()


def audit_dir(fleet: Fleet) -> Path:
    return fleet.state / "audit"


def run_json(fleet: Fleet, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
    done = fleet.run("audit", *arguments)
    assert done.returncode == status, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_untouched_log_has_no_problem_and_was_closed(told: tuple[Fleet, Agent]) -> None:
    fleet, _ = told
    done = fleet.run("audit", "verify", "--strict")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert b"1 logs" in done.stderr
    assert b"0 problems, 0 that may be innocent" in done.stderr


def test_what_a_session_did_stands_there_in_order_and_without_secrets(told: tuple[Fleet, Agent]) -> None:
    fleet, agent = told
    shown = run_json(fleet, "show", "--session", agent.session)
    told_of = [(record["entry"], record["job"].rpartition(":")[2]) for record in shown]
    calls = ["write", "edit", "read", "denied", "finance", "brought", "missing"]
    assert told_of == [(entry, call) for call in calls for entry in ("decided", "finished")]
    decided = {record["job"].rpartition(":")[2]: record for record in shown if record["entry"] == "decided"}
    finished = {record["job"].rpartition(":")[2]: record for record in shown if record["entry"] == "finished"}
    assert decided["write"]["args_text"] == '{"path":"a.txt","content":"one"}'
    assert (decided["denied"]["verdict"], decided["denied"]["policy"]) == ("deny", "command_denylist")
    (secret, _) = run_json(fleet, "show", "--session", "s2")
    assert secret["args_text"] == '{"command":"sudo echo [redacted:github-token] [redacted:db]"}'
    one, two = (hashlib.sha256(text).hexdigest() for text in (b"one", b"two"))
    assert finished["write"]["files"] == [{"path": "a.txt", "after": one}]
    assert finished["edit"]["files"] == [{"path": "a.txt", "before": one, "after": two}]
    assert finished["brought"]["opened"] == ["finance/q3"]
    assert {name: record["outcome"] for name, record in finished.items()} == {
        **dict.fromkeys(("write", "edit", "read", "finance", "brought"), "completed"),
        "denied": "denied",
        "missing": "failed",
    }
    for place in (*audit_dir(fleet).iterdir(), *fleet.state.glob("*.log")):
        for value in (TOKEN.encode(), b"correct-horse-battery"):
            assert value not in place.read_bytes(), place
    assert len(run_json(fleet, "show", "--session", "s1", "--tool", "read_file")) == 6
    assert len(run_json(fleet, "show", "--session", "s1", "--call-id", "edit")) == 2
    assert run_json(fleet, "show", "--session", "nobody", status=4) == []


def test_which_call_brought_a_level(told: tuple[Fleet, Agent]) -> None:
    fleet, agent = told
    for level in ("CONFIDENTIAL", "INTERNAL"):
        (found,) = run_json(fleet, "show", "--session", agent.session, "--level", level)
        assert (found["call"], found["taint_rose"]["by"]) == ("brought", "brought")
        assert found["finished"]["opened"] == ["finance/q3"]
        assert found["decided"]["args_text"] == '{"path":"finance/q3"}'
    assert run_json(fleet, "show", "--session", agent.session, "--level", "RESTRICTED", status=4) == []

    async def raise_it() -> None:
        async with Orchestrator.connect(fleet.url, queue=fleet.queue) as orchestrator:
            await orchestrator.open_session("from-outside", level=Level.RESTRICTED)

    run_async(raise_it)
    (found,) = run_json(fleet, "show", "--session", "from-outside", "--level", "RESTRICTED")
    assert (found["taint_rose"]["by"], "call" in found) == ("orchestrator", False)


def test_export_has_every_record_by_time(told: tuple[Fleet, Agent]) -> None:
    fleet, _ = told
    exported = run_json(fleet, "export")
    lines = (audit_dir(fleet) / "w1.000001.jsonl").read_bytes().splitlines()
    assert [record["hash"] for record in exported] == [hashlib.sha256(line).hexdigest() for line in lines]
    assert exported == sorted(exported, key=lambda record: record["at_ms"])
    done = fleet.run("audit", "export", "--format", "csv", "--session", "s1")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert len(rows) == 14
    assert {row["files"] for row in rows} == {"", "a.txt", "finance/q3"}


Tamper = Callable[[list[bytes]], list[bytes]]


@pytest.mark.parametrize(
    "tamper, kinds",
    [
        (lambda lines: lines[:4] + lines[5:], {"removed"}),
        (lambda lines: [lines[0], lines[1].replace(b"allow", b"deny!"), *lines[2:]], {"changed"}),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], {"reordered"}),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], {"inserted"}),
        (lambda lines: lines[:-3], {"truncated"}),
    ],
    ids=["removed", "changed", "reordered", "inserted", "truncated"],
)
def test_tampering_is_found(told: tuple[Fleet, Agent], tmp_path: Path, tamper: Tamper, kinds: set[str]) -> None:
    fleet, _ = told
    copy = tmp_path / "w1.000001.jsonl"
    lines = (audit_dir(fleet) / copy.name).read_bytes().splitlines()
    copy.write_bytes(b"".join(line + b"\n" for line in tamper(lines)))
    problems = run_json(fleet, "verify", "--dir", str(tmp_path), status=4)
    assert kinds <= {problem["kind"] for problem in problems if problem["certain"]}


def rechained(lines: list[bytes]) -> list[bytes]:
    """The same without one call, chained anew by somebody who has no key and no Redis."""
    kept = [json.loads(line) for line in lines if b":denied" not in line and b"checkpoint" not in line]
    made: list[bytes] = []
    for seq, record in enumerate(kept, 1):
        prev = hashlib.sha256(made[-1]).hexdigest() if made else "0" * 64
        made.append(json.dumps({**record, "seq": seq, "prev": prev}, separators=(",", ":")).encode())
    return made


def test_a_log_written_anew_is_found_by_the_heads_in_redis_even_after_the_stream_is_trimmed(
    told: tuple[Fleet, Agent], tmp_path: Path
) -> None:
    fleet, _ = told
    lines = (audit_dir(fleet) / "w1.000001.jsonl").read_bytes().splitlines()
    (tmp_path / "w1.000001.jsonl").write_bytes(b"\n".join(rechained(lines)) + b"\n")
    assert run_json(fleet, "verify", "--dir", str(tmp_path), "--offline") != []
    problems = run_json(fleet, "verify", "--dir", str(tmp_path), status=4)
    assert "changed" in {problem["kind"] for problem in problems if problem["certain"]}
    stream, kept = keys.audit(fleet.queue), fleet.redis.xrange(keys.audit(fleet.queue))
    fleet.redis.delete(stream)
    problems = run_json(fleet, "verify", "--dir", str(tmp_path), status=4)
    assert {problem["kind"] for problem in problems if problem["certain"]} & {"changed", "truncated"}
    for entry_id, fields in kept:
        fleet.redis.xadd(stream, fields, id=entry_id)
    assert fleet.run("audit", "verify", "--all-workers", "--dir", str(fleet.state / "dashboard")).returncode == 2
    (tmp_path / "none").mkdir()
    assert fleet.run("audit", "verify", "--dir", str(tmp_path / "none")).returncode == 0
    assert fleet.run("audit", "verify", "--dir", str(tmp_path / "none"), "--all-workers").returncode == 4


def test_a_wrong_key_and_signatures_taken_off_show(told: tuple[Fleet, Agent], tmp_path: Path) -> None:
    fleet, _ = told
    (tmp_path / "other").write_bytes(b"another secret, of other bytes")
    problems = run_json(fleet, "verify", "--key-file", str(tmp_path / "other"), status=4)
    assert {problem["kind"] for problem in problems} == {"bad_signature"}


def test_a_killed_worker_leaves_a_log_that_may_be_innocent(server: Any, tmp_path: Path) -> None:
    fleet = Fleet(server.url, tmp_path, "killed")
    worker = fleet.start_worker(name="k1")
    agent = fleet.agent()
    agent.complete("write_file", path="a", content="a")
    reply = agent.call("read_file", path="a")
    assert isinstance(reply, Completed)
    worker.process.kill()
    worker.process.wait()
    (problem,) = run_json(fleet, "verify")
    assert (problem["kind"], problem["certain"]) == ("truncated", False)
    assert len(run_json(fleet, "show", "--session", agent.session)) == 4
    wait_until(lambda: fleet.run("audit", "verify", "--strict").returncode == 4, "strict")
    fleet.end()
