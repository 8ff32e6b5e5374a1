"""path_scope: targets of writing, judged by their text alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.calls import Session, ToolCall
from contracts.tools import TOOLS
from worker.decisions import Decision, Judged, Verdict
from worker.policies import path_scope


def judge(tool: str, **args: Any) -> Decision | None:
    call = ToolCall(session="s", call="c", tool=tool, args=msgspec.convert(args, TOOLS[tool].args))
    return path_scope.judge(
        Judged(call=call, session=Session(name="s", workspace="w"), workspace_roots=("/w/real", "/lnk"), now_ms=0)
    )


INSIDE = [
    "a",
    "a/../b",
    "/w/real/a",
    "/lnk/a/b",
    "../real/a",
    ".",
    "/w/real",
    "a\0b",
    "x" * 5000,
    "~/a",
    "..a",
    "a/..b",
]
OUTSIDE = [
    "..",
    "../a",
    "a/../../b",
    "/",
    "/etc/passwd",
    "/w/real-evil/a",
    "/w",
    "/lnk/../etc",
    "/lnkx",
    "../real-evil/x",
]


@pytest.mark.parametrize("path", INSIDE)
def test_inside_is_allowed(path: str) -> None:
    for decision in (
        judge("write_file", path=path, content=""),
        judge("edit_file", path=path, old_text="a", new_text="b"),
        judge("run_command", command="true", cwd=path),
    ):
        assert decision is not None
        assert decision.verdict is Verdict.ALLOW


@pytest.mark.parametrize("path", OUTSIDE)
def test_outside_is_denied(path: str) -> None:
    decisions = [
        judge("write_file", path=path, content=""),
        judge("edit_file", path=path, old_text="a", new_text="b"),
        judge("run_command", command="true", cwd=path),
    ]
    assert [(d.verdict, d.policy, d.rule) for d in decisions if d] == [
        (Verdict.DENY, "path_scope", "outside_workspace")
    ] * 3
    assert not any(path in d.reason for d in decisions if d and len(path) > 2)


@pytest.mark.parametrize("path", [".toolreef", ".toolreef/spill/x", "/lnk/.toolreef/x", "d/.toolreef-tmp.a.1.2.3"])
def test_the_workers_own_files_are_denied(path: str) -> None:
    decision = judge("write_file", path=path, content="")
    assert decision is not None
    assert (decision.verdict, decision.rule) == (Verdict.DENY, "reserved")
    assert judge("run_command", command="true", cwd=path) != decision


def test_what_only_reads_is_not_judged() -> None:
    assert judge("read_file", path="/etc/passwd") is None
    assert judge("search_files", path="..", pattern="*") is None
    running = judge("run_command", command="true")
    assert running is not None
    assert running.verdict is Verdict.ALLOW
