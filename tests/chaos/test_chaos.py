"""Mixed faults from fixed seeds, and a proof that the judge sees what is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.campaign import run
from tests.chaos.ledger import Book, Call, judge, read_books

SEEDS = (1, 2, 3)
DURATION_S = 20


def test_mixed_faults_lose_double_and_repeat_nothing(tmp_path: Path) -> None:
    """The seeds run side by side: a machine with too little CPU is a fault of its own."""
    runs = []
    for seed in SEEDS:
        log = (tmp_path / f"{seed}.txt").open("w+")
        command = [sys.executable, "-m", "tests.chaos", "--seed", str(seed), "--duration", str(DURATION_S)]
        runs.append((subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT), log))
    for process, log in runs:
        status = process.wait(timeout=600)
        log.seek(0)
        report = log.read()
        log.close()
        print(report)
        assert status == 0, report


def test_everysec_and_a_lost_tail_are_reported(tmp_path: Path) -> None:
    verdict = run(tmp_path, seed=1, duration_s=8, fsync="everysec", only="lose-power")
    print(verdict.table())
    assert verdict.missing
    assert verdict.accepted > len(verdict.missing)


@pytest.mark.parametrize(
    "seen, replies, lines, found",
    [
        ("accepted", [], "", {"missing"}),
        ("accepted", ["completed"], "", {"lost"}),
        ("accepted", ["completed"], "+c\n-c\n", set()),
        ("accepted", ["completed", "interrupted"], "+c\n", {"doubled"}),
        ("accepted", ["interrupted"], "+c\n+c\n", {"twice"}),
        ("accepted", ["interrupted"], "", set()),
        ("accepted", ["expired"], "+c\n", {"untrue"}),
        ("refused", [], "+c\n", {"untrue"}),
        ("refused", [], "", set()),
        ("unknown", [], "", set()),
        ("unknown", ["completed"], "+c\n", set()),
        ("unseen", ["completed"], "+c\n", {"unseen"}),
    ],
)
def test_the_judge(tmp_path: Path, seen: str, replies: list[str], lines: str, found: set[str]) -> None:
    book = Book(tmp_path / "book")
    book.note("begin", "c", session="s", mark="command")
    if seen != "unknown":
        book.note("accepted" if seen == "unseen" else seen, "c")
    book.note(seen, "c")
    (tmp_path / "spaces" / "s").mkdir(parents=True)
    (tmp_path / "spaces" / "s" / "effects.log").write_text(lines)
    calls = read_books([tmp_path / "book"])
    calls["c"].replies = [(0, _reply(word)) for word in replies]
    assert set(judge(calls, tmp_path / "spaces").faults) == found


def _reply(word: str) -> dict[str, object]:
    if word == "completed":
        return {"kind": "completed", "error": None}
    return {"kind": "failed", "error": {"code": word, "effect": "none" if word == "expired" else "unknown"}}


def test_the_judge_sees_effects_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "effects.log").write_text("+a\n+b\n-a\n-b\n+c\n-c\n")
    calls = {name: Call(name, "s", "command", accepted_ms=1, replies=[(1, _reply("completed"))]) for name in "abc"}
    assert judge(calls, tmp_path).overlapped == ["a/b"]
