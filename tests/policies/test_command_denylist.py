"""The denylist against public bypasses, fresh dangerous lines, and ordinary commands that must pass."""

from __future__ import annotations

import json
import pathlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.calls import Session, ToolCall
from contracts.tools import ReadFileArgs, RunCommandArgs
from worker.decisions import Decision, Judged, Verdict
from worker.policies.command_denylist import ExtraRule, judge, judge_command

DATA = pathlib.Path(__file__).parent / "data"
ROOT = "/srv/toolreef/ws/q/w1"


def decide(command: str, *, extra: tuple[ExtraRule, ...] = (), strict: bool = False, cwd: str = ROOT) -> Decision:
    return judge_command(command, workspace_roots=(ROOT,), cwd=cwd, home=ROOT, extra=extra, strict=strict)


def cases(name: str) -> list[object]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [pytest.param(case["command"], case["expect"], id=case["id"]) for case in map(json.loads, lines)]


@pytest.mark.parametrize(
    "command, expect",
    [*cases("denylist_cases.jsonl"), *cases("denylist_dangerous.jsonl"), *cases("denylist_ordinary.jsonl")],
)
def test_judges_as_expected(command: str, expect: str) -> None:
    decision = decide(command)
    assert ("allow" if decision.verdict is Verdict.ALLOW else "block") == expect, decision.reason


@pytest.mark.parametrize(
    "command",
    [
        "cat <(rm x)",
        "env rm x",
        "timeout 5 rm x",
        "bash -c 'rm x'",
        "/bin/rm x",
        "r''m x",
        "$(printf rm) x",
        "\\rm x",
        "rm$IFS-rf$IFS.",
        "x=rm; $x x",
        "true && rm x",
        "true\nrm x",
        "find . -exec rm {} +",
        "python3 -c 'import os; os.system(\"rm x\")'",
    ],
)
def test_an_operators_rule_is_found_behind_every_disguise(command: str) -> None:
    assert decide(command, extra=(ExtraRule(("rm",)),)).verdict is Verdict.DENY


@pytest.mark.parametrize("command", ["echo 'rm x'", "grep -n rm file", "ls rm", "git commit -m 'rm'"])
def test_an_operators_rule_leaves_text_alone(command: str) -> None:
    assert decide(command, extra=(ExtraRule(("rm",)),)).verdict is Verdict.ALLOW


def test_an_operators_rule_may_ask_and_may_name_several_words() -> None:
    extra = (ExtraRule(("git", "push"), "ask"),)
    assert decide("cd x && git -C y push --force origin", extra=extra).verdict is Verdict.ASK
    assert decide("git commit -m push", extra=extra).verdict is Verdict.ALLOW
    assert decide("git push; sudo id", extra=extra).verdict is Verdict.DENY


def test_the_reason_names_the_inner_command_the_way_in_and_the_rule() -> None:
    assert decide("find . -maxdepth 0 -exec sudo id \\;").reason == (
        "`sudo id` inside `find -exec`: privilege, sudo acts as another user"
    )
    assert decide("echo $(rm x)", extra=(ExtraRule(("rm",)),)).reason == "`rm x`: operator's rule, not wanted here"


def test_what_bash_would_refuse_is_left_to_bash_unless_strict() -> None:
    assert decide("if true; then").verdict is Verdict.ALLOW
    assert decide("if true; then", strict=True).verdict is Verdict.ASK
    assert decide("if true; then sudo id").verdict is Verdict.DENY
    assert decide(") } fi; sudo id").verdict is Verdict.DENY


def test_a_command_name_known_at_run_time_only_is_asked_about() -> None:
    assert decide("read c; $c x").verdict is Verdict.ASK
    assert decide("$TOOL x").verdict is Verdict.ALLOW
    assert decide("$TOOL x", strict=True).verdict is Verdict.ASK


@pytest.mark.parametrize(
    "command, rule",
    [
        ("a" * 65537, "too_long"),
        ("$(" * 10_000, "too_complex"),
        ("{ " * 10_000, "too_complex"),
        ("echo " + "{a,b}" * 60, "too_complex"),
        ("true;" * 13_000, "too_complex"),
        ("eval " * 100 + "id", "too_complex"),
        ("env " * 200 + "id", "too_complex"),
        ("echo a\x00b", "characters"),
        ("echo \u202eb", "characters"),
        ("ec\u200bho", "characters"),
        ("echo \x1b[2J", "characters"),
    ],
)
def test_every_cap_fails_closed(command: str, rule: str) -> None:
    decision = decide(command)
    assert (decision.verdict, decision.rule) in [(Verdict.DENY, rule)]


def test_a_relative_target_means_what_the_directory_makes_of_it() -> None:
    assert decide("rm -rf *").verdict is Verdict.DENY
    assert decide("rm -rf *", cwd=f"{ROOT}/build").verdict is Verdict.ALLOW
    assert decide("rm -rf ../build", cwd=f"{ROOT}/src").verdict is Verdict.ALLOW
    assert decide("rm -rf ..", cwd=f"{ROOT}/src").verdict is Verdict.DENY


def judged(tool: str, args: object) -> Judged:
    return Judged(
        call=ToolCall(session="s", call="c", tool=tool, args=args),
        session=Session(name="s", workspace="w1"),
        workspace_roots=(ROOT,),
        now_ms=0,
    )


def test_the_policy_judges_run_command_only() -> None:
    assert judge(judged("read_file", ReadFileArgs(path="sudo"))) is None
    allowed = judge(judged("run_command", RunCommandArgs(command="ls")))
    assert allowed is not None
    assert allowed.verdict is Verdict.ALLOW
    assert allowed.policy == "command_denylist"
    denied = judge(judged("run_command", RunCommandArgs(command="rm -rf ..", cwd="src")))
    assert denied is not None
    assert denied.verdict is Verdict.DENY
    assert denied.rule == "deletion"


_PIECES = st.sampled_from(
    [
        "rm",
        "-rf",
        "/",
        "sudo",
        "id",
        "$(",
        ")",
        "`",
        "'",
        '"',
        "{",
        "}",
        "{a,b}",
        ";",
        "&",
        "&&",
        "|",
        "||",
        ">",
        "<",
        "<<",
        "<<<",
        "<(",
        "EOF",
        "\n",
        "\\",
        "$",
        "${",
        "}",
        "${x:-y}",
        "$((",
        "))",
        "((",
        "[[",
        "]]",
        "if",
        "then",
        "fi",
        "for",
        "in",
        "do",
        "done",
        "case",
        "esac",
        ")",
        "x=y",
        "x=(a",
        "b)",
        "f()",
        "function",
        "eval",
        "sh",
        "-c",
        "bash",
        "xargs",
        "find",
        ".",
        "-exec",
        "{}",
        "+",
        "\\;",
        "*",
        "?",
        "[",
        "~",
        "$@",
        "$1",
        "$IFS",
        "#",
        "!",
        "time",
        "coproc",
        "echo",
        "printf",
        "%s",
        "base64",
        "-d",
        "tr",
        "a-z",
        "python3",
        "-c",
        "os.system('x')",
        "\t",
        "é",
        "🎉",
        "@(",
        "${!x}",
        "${x@P}",
        "${x//a/b}",
        "$'\\x41'",
    ]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(_PIECES, st.sampled_from([" ", ""])), max_size=40), st.booleans())
def test_never_raises_on_shell_like_text(pieces: list[tuple[str, str]], strict: bool) -> None:
    command = "".join(piece + gap for piece, gap in pieces)
    assert decide(command, strict=strict).policy == "command_denylist"


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_never_raises_on_any_text(command: str) -> None:
    assert decide(command).policy == "command_denylist"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_PIECES, min_size=1, max_size=4), st.integers(min_value=100, max_value=20_000))
def test_repetition_is_bounded(pieces: list[str], times: int) -> None:
    command = " ".join(pieces) * times
    assert decide(command[: 64 * 1024]).policy == "command_denylist"
