"""The audit log: written before the effect, and every kind of tampering shows."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.levels import Level
from worker.audit import AuditLog, AuditMark, AuditUnavailable, Problem, verify
from worker.audit import chain as chain_module
from worker.audit import log as log_module
from worker.audit.records import hash_of

KEY = b"a secret of more than sixteen bytes"
JOB = "{default}:s1:c1"


def _open(directory: Path, **options: Any) -> AuditLog:
    return AuditLog.open(directory, worker="w1", **options)


def _call(audit: AuditLog, number: int = 1, tool: str = "run_command") -> AuditMark:
    audit.decided(f"{{default}}:s1:c{number}", tool, "0" * 32, "allow", "gate", "all", 1)
    return audit.finished(f"{{default}}:s1:c{number}", "completed", None, Level.PUBLIC, Level.INTERNAL)


def _written(directory: Path, calls: int = 5, **options: Any) -> tuple[Path, AuditMark]:
    """A closed log of one file, and its head: opened, two records a call, checkpoint."""
    audit = _open(directory, **options)
    for number in range(calls):
        _call(audit, number)
    audit.close()
    return directory / "w1.000001.jsonl", audit.head


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _kinds(problems: list[Problem]) -> set[tuple[str, bool]]:
    return {(problem.kind, problem.certain) for problem in problems}


def test_writes_a_decision_and_an_outcome_as_one_line_each(tmp_path: Path) -> None:
    audit = _open(tmp_path / "audit")
    decided = audit.decided(JOB, "write_file", "ab" * 16, "deny", "plan", "planning", 2, args_text='{"path":"x"}')
    finished = audit.finished(JOB, "denied", "forbidden", Level.PUBLIC, Level.CONFIDENTIAL)
    path = tmp_path / "audit" / "w1.000001.jsonl"
    lines = path.read_bytes().splitlines()
    opened, decision, outcome = _records(path)
    assert {name: decision[name] for name in decision if name != "at_ms"} == {
        "entry": "decided",
        "seq": 2,
        "prev": hash_of(lines[0]),
        "job": JOB,
        "tool": "write_file",
        "args": "ab" * 16,
        "verdict": "deny",
        "policy": "plan",
        "rule": "planning",
        "attempt": 2,
        "args_text": '{"path":"x"}',
    }
    assert {name: outcome[name] for name in outcome if name != "at_ms"} == {
        "entry": "finished",
        "seq": 3,
        "prev": hash_of(lines[1]),
        "job": JOB,
        "outcome": "denied",
        "code": "forbidden",
        "level": "PUBLIC",
        "taint": "CONFIDENTIAL",
    }
    assert (opened["entry"], opened["seq"], opened["prev"], opened["pid"]) == ("opened", 1, "0" * 64, os.getpid())
    assert decided == AuditMark(2, hashlib.sha256(lines[1]).hexdigest())
    assert finished == audit.head == AuditMark(3, hashlib.sha256(lines[2]).hexdigest())
    audit.close()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    os.umask(os.umask(0))
    path, _ = _written(tmp_path / "audit")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_log_as_it_was_written_has_no_problems(tmp_path: Path) -> None:
    _, head = _written(tmp_path, key=KEY)
    assert verify(tmp_path, key=KEY, heads={"w1": [head]}) == []
    assert verify(tmp_path) == []


def test_a_log_in_use_has_no_problems(tmp_path: Path) -> None:
    audit = _open(tmp_path)
    mark = _call(audit)
    assert verify(tmp_path, heads={"w1": [mark]}) == []
    audit.close()


def test_goes_on_where_it_was_left(tmp_path: Path) -> None:
    _, head = _written(tmp_path)
    audit = _open(tmp_path)
    assert audit.head.seq == head.seq + 1
    _call(audit)
    audit.close()
    assert _records(tmp_path / "w1.000002.jsonl")[0]["prev"] == head.hash
    assert verify(tmp_path, heads={"w1": [head, audit.head]}) == []


def test_rotates_by_size_and_chains_across_files(tmp_path: Path) -> None:
    audit = _open(tmp_path, key=KEY, max_file_bytes=2000)
    for number in range(40):
        _call(audit, number)
    audit.close()
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) > 5
    assert all(_records(path)[-1]["reason"] == "rotated" for path in files[:-1])
    assert verify(tmp_path, key=KEY, heads={"w1": [audit.head]}) == []
    assert [verify(path, key=KEY) for path in files] == [[]] * len(files)


def test_checkpoints_by_number_of_records(tmp_path: Path) -> None:
    path, _ = _written(tmp_path, calls=10, checkpoint_records=5)
    entries = [record["entry"] for record in _records(path)]
    assert entries.count("checkpoint") == 5
    assert {record["alg"] for record in _records(path) if record["entry"] == "checkpoint"} == {"none"}


def test_a_checkpoint_without_a_key_says_so(tmp_path: Path) -> None:
    _written(tmp_path)
    assert verify(tmp_path) == []
    assert _kinds(verify(tmp_path, key=KEY)) == {("unsigned", False)}


def _edit(path: Path, change: Callable[[list[bytes]], object]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))


def _swap(lines: list[bytes]) -> None:
    lines[3], lines[4] = lines[4], lines[3]


TAMPERINGS: dict[str, tuple[Callable[[list[bytes]], object], set[tuple[str, bool]]]] = {
    "remove one": (lambda lines: lines.pop(4), {("removed", True)}),
    "remove several": (lambda lines: lines.__delitem__(slice(3, 6)), {("removed", True)}),
    "remove the first": (lambda lines: lines.pop(0), {("removed", True)}),
    "change one": (lambda lines: lines.__setitem__(3, lines[3].replace(b"allow", b"deny")), {("changed", True)}),
    "change a number": (
        lambda lines: lines.__setitem__(3, lines[3].replace(b'"seq":4', b'"seq":9')),
        {("changed", True)},
    ),
    "make one unreadable": (lambda lines: lines.__setitem__(3, b"{}\n"), {("changed", True)}),
    "swap two": (_swap, {("reordered", True)}),
    "move one to the end": (lambda lines: lines.append(lines.pop(3)), {("reordered", True)}),
    "repeat one": (lambda lines: lines.insert(4, lines[3]), {("inserted", True)}),
    "insert a foreign one": (lambda lines: lines.insert(4, lines[3].replace(b"c1", b"c9")), {("inserted", True)}),
    "cut the end": (lambda lines: lines.__delitem__(slice(6, None)), {("truncated", False)}),
    "cut within a record": (lambda lines: lines.append(lines.pop()[:40]), {("truncated", False)}),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampering_shows(tmp_path: Path, tampering: str) -> None:
    path, _ = _written(tmp_path)
    change, expected = TAMPERINGS[tampering]
    _edit(path, change)
    assert expected <= _kinds(verify(tmp_path))


@pytest.mark.parametrize("tampering", ["cut the end", "cut within a record"])
def test_a_head_kept_elsewhere_proves_that_the_end_was_cut(tmp_path: Path, tampering: str) -> None:
    path, head = _written(tmp_path)
    _edit(path, TAMPERINGS[tampering][0])
    assert ("truncated", True) in _kinds(verify(tmp_path, heads={"w1": [head]}))


def test_a_log_of_which_nothing_is_left_shows_by_its_head(tmp_path: Path) -> None:
    path, head = _written(tmp_path)
    path.unlink()
    assert _kinds(verify(tmp_path, heads={"w1": [head]})) == {("truncated", True)}


def _rewritten(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """What somebody does who knows the format: change records, then number and chain all of them anew."""
    records = _records(path)
    change(records)
    prev, lines = records[0]["prev"], []
    for seq, record in enumerate(records, 1):
        lines.append(msgspec.json.encode(record | {"seq": seq, "prev": prev}))
        prev = hash_of(lines[-1])
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def test_a_chain_made_anew_shows_only_by_signature_or_head(tmp_path: Path) -> None:
    path, head = _written(tmp_path, key=KEY)
    _rewritten(path, lambda records: records.pop(3))
    assert verify(tmp_path) == []
    assert ("bad_signature", True) in _kinds(verify(tmp_path, key=KEY))
    assert ("truncated", True) in _kinds(verify(tmp_path, heads={"w1": [head]}))
    path.unlink()
    path, head = _written(tmp_path, key=KEY)
    _rewritten(path, lambda records: records[3].update(verdict="deny"))
    assert ("changed", True) in _kinds(verify(tmp_path, heads={"w1": [head]}))


def test_a_signature_taken_off_shows(tmp_path: Path) -> None:
    path, _ = _written(tmp_path, key=KEY)
    _rewritten(path, lambda records: records[-1].update(alg="none", key="", signature=""))
    assert _kinds(verify(tmp_path, key=KEY)) == {("unsigned", False)}


def test_another_key_shows(tmp_path: Path) -> None:
    _written(tmp_path, key=KEY)
    assert _kinds(verify(tmp_path, key=KEY + b"!")) == {("bad_signature", True)}


def test_a_file_removed_between_others_shows(tmp_path: Path) -> None:
    audit = _open(tmp_path, max_file_bytes=1000)
    for number in range(20):
        _call(audit, number)
    audit.close()
    (tmp_path / "w1.000003.jsonl").unlink()
    assert _kinds(verify(tmp_path)) == {("removed", True)}
    (tmp_path / "w1.000002.jsonl").unlink()
    (tmp_path / "w1.000001.jsonl").unlink()
    assert _kinds(verify(tmp_path)) == {("removed", False)}


def test_a_file_in_anothers_place_shows(tmp_path: Path) -> None:
    _written(tmp_path)
    other = AuditLog.open(tmp_path, worker="w2")
    _call(other)
    other.close()
    (tmp_path / "w2.000001.jsonl").replace(tmp_path / "w1.000001.jsonl")
    assert ("removed", True) in _kinds(verify(tmp_path))


def test_verifies_the_logs_of_several_workers(tmp_path: Path) -> None:
    names = ("a", "a.000001", "b-2")
    for name in names:
        audit = AuditLog.open(tmp_path, worker=name)
        _call(audit)
        audit.close()
    assert verify(tmp_path) == []
    _edit(tmp_path / "a.000001.000001.jsonl", lambda lines: lines.pop(1))
    assert {problem.file for problem in verify(tmp_path)} == {"a.000001.000001.jsonl"}


def _write_and_die(directory: Path, key: bytes) -> None:
    audit = AuditLog.open(directory, worker="w1", key=key)
    for number in range(50):
        _call(audit, number)
    os.kill(os.getpid(), 9)


def test_a_killed_worker_loses_no_record_and_the_next_goes_on(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_write_and_die, args=(tmp_path, KEY))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    assert len(_records(tmp_path / "w1.000001.jsonl")) == 101
    assert _kinds(verify(tmp_path, key=KEY)) == {("truncated", False)}
    audit = _open(tmp_path, key=KEY)
    audit.close()
    assert verify(tmp_path, key=KEY) == []


def test_half_a_record_left_by_a_crash_is_vouched_for(tmp_path: Path) -> None:
    path, _ = _written(tmp_path)
    half = b'{"entry":"decided","seq":13,"at'
    with path.open("ab") as file:
        file.write(half)
    audit = _open(tmp_path)
    audit.close()
    assert verify(tmp_path) == []
    path.write_bytes(path.read_bytes() + b"x")
    assert _kinds(verify(tmp_path)) == {("changed", True)}


def test_a_last_record_that_is_none_stops_the_next_start(tmp_path: Path) -> None:
    path, _ = _written(tmp_path)
    _edit(path, lambda lines: lines.append(b"nonsense\n"))
    with pytest.raises(AuditUnavailable, match="unreadable"):
        _open(tmp_path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    audit = _open(tmp_path)
    script = """
import sys
from pathlib import Path
from worker.audit import AuditLog, AuditUnavailable
try:
    AuditLog.open(Path(sys.argv[1]), worker="w1")
except AuditUnavailable as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert out.stdout == "another process has the audit log of w1 open\n"
    audit.close()
    _open(tmp_path).close()


@pytest.mark.parametrize("worker", ["", "../x", "a/b", ".hidden", "x" * 129, "a b"])
def test_refuses_a_name_that_is_no_file_name(tmp_path: Path, worker: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        AuditLog.open(tmp_path, worker=worker)


def test_refuses_a_short_key_and_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        _open(tmp_path, key=b"short")
    (tmp_path / "file").touch()
    with pytest.raises(AuditUnavailable, match="cannot be opened"):
        _open(tmp_path / "file")


def test_does_not_follow_a_link_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "w1.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuditUnavailable):
        _open(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


_HOSTILE = st.text(st.characters(), max_size=2000) | st.sampled_from(["\ud800", '"}\n{"seq":1}', "\0", "é" * 3000])


@given(_HOSTILE, _HOSTILE, _HOSTILE)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_takes_any_text_and_stays_one_line_a_record(tmp_path: Path, job: str, tool: str, args: str) -> None:
    audit = _open(tmp_path)
    audit.decided(job, tool, args, job, tool, args, 1, args_text=args * 10)
    audit.finished(job, tool, args, Level.PUBLIC, Level.PUBLIC)
    audit.close()
    last = sorted(tmp_path.glob("*.jsonl"))[-1]
    assert [record["entry"] for record in _records(last)] == ["opened", "decided", "finished", "checkpoint"]
    assert max(map(len, last.read_bytes().splitlines())) < chain_module.MAX_LINE_BYTES
    assert verify(last) == []


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Makes writes fail as on a full disk, half of each record being written first."""
    write = os.write
    is_full = False

    def half_write(fd: int, data: bytes) -> int:
        if not is_full or not data.startswith(b'{"entry"'):
            if is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, data)
        return write(fd, data[: len(data) // 2])

    def switch(full: bool) -> None:
        nonlocal is_full
        is_full = full

    monkeypatch.setattr(os, "write", half_write)
    return switch


def test_on_a_full_disk_no_effect_starts_and_no_outcome_is_lost(
    tmp_path: Path, full_disk: Callable[[bool], None], caplog: pytest.LogCaptureFixture
) -> None:
    audit = _open(tmp_path)
    audit.decided(JOB, "run_command", "", "allow", "gate", "", 1)
    full_disk(True)
    kept = audit.finished(JOB, "completed", None, Level.PUBLIC, Level.PUBLIC)
    for tool in ("run_command", "read_file", "no such tool"):
        with pytest.raises(AuditUnavailable, match="No space left"):
            audit.decided(JOB, tool, "", "allow", "gate", "", 1)
    assert (audit.unwritten, audit.head) == (1, kept)
    assert "No space left" in caplog.text
    full_disk(False)
    _call(audit, 2)
    assert audit.unwritten == 0
    audit.close()
    entries = [record["entry"] for record in _records(tmp_path / "w1.000001.jsonl")]
    assert entries == ["opened", "decided", "finished", "decided", "finished", "checkpoint"]
    assert verify(tmp_path, heads={"w1": [kept, audit.head]}) == []


def test_on_a_full_disk_reads_may_go_on(
    tmp_path: Path, full_disk: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MAX_UNWRITTEN", 3)
    audit = _open(tmp_path, reads="best_effort")
    full_disk(True)
    for number in range(3):
        _call(audit, number, tool="read_file")
    with pytest.raises(AuditUnavailable):
        audit.decided(JOB, "write_file", "", "allow", "gate", "", 1)
    assert audit.unwritten == 6
    full_disk(False)
    _call(audit, 9)
    audit.close()
    records = _records(tmp_path / "w1.000001.jsonl")
    assert [record["entry"] for record in records] == [
        *("opened", "decided", "finished", "decided", "dropped", "decided", "finished", "checkpoint")
    ]
    assert records[4]["count"] == 3
    assert verify(tmp_path) == []


def test_half_a_record_that_cannot_be_taken_back_ends_the_file(
    tmp_path: Path, full_disk: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, length: int) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "ftruncate", refuse)
    audit = _open(tmp_path)
    full_disk(True)
    for full in (True, False):
        full_disk(full)
        with pytest.raises(AuditUnavailable):
            audit.decided(JOB, "run_command", "", "allow", "gate", "", 1)
    audit.close()
    assert not (tmp_path / "w1.000001.jsonl").read_bytes().endswith(b"\n")
    _open(tmp_path).close()
    assert verify(tmp_path) == []


def _fill_by_file_size_limit(directory: Path) -> None:
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    audit = AuditLog.open(directory, worker="w1")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
    refused = 0
    for number in range(30):
        try:
            audit.decided(f"{{default}}:s1:c{number}", "run_command", "0" * 32, "allow", "gate", "all", 1)
        except AuditUnavailable:
            refused += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    audit.close()
    sys.exit(7 if 0 < refused < 30 else 1)


def test_what_the_kernel_refuses_leaves_no_half_record(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_fill_by_file_size_limit, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == 7
    assert verify(tmp_path) == []


def test_a_rotation_that_fails_leaves_the_old_file_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = _open(tmp_path, max_file_bytes=1000)
    while (tmp_path / "w1.000001.jsonl").stat().st_size < 1000:
        _call(audit)
    (tmp_path / "w1.000002.jsonl").mkdir()
    with pytest.raises(AuditUnavailable):
        audit.decided(JOB, "run_command", "", "allow", "gate", "", 1)
    (tmp_path / "w1.000002.jsonl").rmdir()
    _call(audit)
    audit.close()
    assert (tmp_path / "w1.000002.jsonl").exists()
    assert verify(tmp_path, heads={"w1": [audit.head]}) == []


def test_a_file_removed_while_in_use_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = _open(tmp_path, checkpoint_records=4)
    (tmp_path / "w1.000001.jsonl").unlink()
    for number in range(4):
        _call(audit, number)
    audit.close()
    assert "was removed while in use" in caplog.text
    assert (tmp_path / "w1.000002.jsonl").exists()
    assert _kinds(verify(tmp_path)) == {("removed", False)}


def test_after_the_end_nothing_starts(tmp_path: Path) -> None:
    audit = _open(tmp_path)
    audit.close()
    audit.close()
    with pytest.raises(AuditUnavailable, match="closed"):
        audit.decided(JOB, "read_file", "", "allow", "gate", "", 1)
    audit.finished(JOB, "completed", None, Level.PUBLIC, Level.PUBLIC)
    assert audit.unwritten == 1


def test_fsync_reaches_the_disk_before_an_effect_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fdatasync

    def count(fd: int) -> None:
        synced.append(fd)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", count)
    audit = _open(tmp_path, fsync=True)
    before = len(synced)
    audit.decided(JOB, "read_file", "", "allow", "gate", "", 1)
    assert len(synced) == before
    audit.decided(JOB, "run_command", "", "allow", "gate", "", 1)
    assert len(synced) == before + 1
    audit.close()


def _ed25519() -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    return (
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    )


def test_signed_with_ed25519_and_checked_with_the_public_key(tmp_path: Path) -> None:
    private, public = _ed25519()
    path, _ = _written(tmp_path, key=private)
    assert _records(path)[-1]["alg"] == "ed25519"
    assert verify(tmp_path, key=public) == []
    assert _kinds(verify(tmp_path, key=_ed25519()[1])) == {("bad_signature", True)}
    _rewritten(path, lambda records: records.pop(3))
    assert _kinds(verify(tmp_path, key=public)) == {("bad_signature", True)}
    with pytest.raises(ValueError, match="public key"):
        _open(tmp_path, key=public)


def test_ed25519_without_cryptography_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, _ = _ed25519()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ValueError, match="needs the package cryptography"):
        _open(tmp_path, key=private)


@pytest.mark.parametrize(
    "key", [b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", b"-----BEGIN nonsense"]
)
def test_refuses_a_key_that_is_none_without_showing_it(tmp_path: Path, key: bytes) -> None:
    with pytest.raises(ValueError, match="audit key"):
        _open(tmp_path, key=key)


def test_the_verdict_on_a_read_waits_for_its_end_and_one_on_an_effect_never(tmp_path: Path) -> None:
    audit = _open(tmp_path)
    path = tmp_path / "w1.000001.jsonl"
    for tool, written in (("read_file", 1), ("write_file", 2)):
        job = f"{{default}}:s1:{tool}"
        audit.decided(job, tool, "0" * 64, "allow", "gate", "all", 1, args_text="{}", hold=True)
        assert len(_records(path)) == written
        if tool == "read_file":
            audit.decided("{default}:s1:open", "read_file", "0" * 64, "deny", "gate", "all", 1, hold=True)
    audit.finished("{default}:s1:read_file", "completed", None, Level.PUBLIC, Level.PUBLIC)
    assert [(r["entry"], r["job"][-9:]) for r in _records(path)[1:]] == [
        ("decided", "rite_file"),
        ("decided", "read_file"),
        ("finished", "read_file"),
    ]
    audit.close()
    assert [(r["entry"], r.get("job", "")[-4:]) for r in _records(path)[4:]] == [
        ("decided", "open"),
        ("checkpoint", ""),
    ]
    assert verify(tmp_path) == []


def test_a_read_is_refused_before_it_starts_while_records_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = _open(tmp_path)

    def refuse(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space")

    audit.decided(JOB, "read_file", "0" * 64, "allow", "gate", "all", 1, hold=True)
    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        audit.finished(JOB, "completed", None, Level.PUBLIC, Level.PUBLIC)
        assert audit.unwritten == 2
        with pytest.raises(AuditUnavailable):
            audit.decided(JOB, "read_file", "0" * 64, "allow", "gate", "all", 1, hold=True)
    audit.close()
    assert [record["entry"] for record in _records(tmp_path / "w1.000001.jsonl")] == [
        "opened",
        "decided",
        "finished",
        "checkpoint",
    ]
    assert verify(tmp_path) == []
