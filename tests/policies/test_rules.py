"""The rule language: what it refuses, what each condition means, and that the strictest always wins."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.calls import Session, ToolCall
from contracts.levels import Level
from contracts.tools import TOOLS, ReadFileOutput
from worker.decisions import Judged, Verdict
from worker.policies.rules.book import RuleBook
from worker.policies.rules.load import PolicyError, load_policy
from worker.secrets import redact_output

ROOT = "/srv/w"
HEAD = "version = 1\n"


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Reads policy files from texts."""

    def read(*texts: str, **options: Any) -> RuleBook:
        files = []
        for number, text in enumerate(texts):
            files.append(tmp_path / f"{number}.toml")
            files[-1].write_text(HEAD + text)
        return load_policy(files, **options)

    return read


def rule(action: str = "deny", name: str = "r", **conditions: object) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in conditions.items()]
    return "\n".join(["[[rule]]", f'name = "{name}"', f'action = "{action}"', *lines, ""])


def call(
    tool: str = "read_file", *, session: Session | None = None, root: str = ROOT, queue: str = "q", **args: Any
) -> Judged:
    made = ToolCall(session="s1", call="c1", tool=tool, args=TOOLS[tool].args(**args))
    who = session or Session(name="s1", workspace="w")
    return Judged(call=made, session=who, workspace_roots=(root,), now_ms=0, queue=queue)


def run(command: str) -> Judged:
    return call("run_command", command=command)


REFUSED = {
    "unknown field": (rule(tool="read_file", pth="x"), "r: Object contains unknown field `pth`"),
    "unknown action": (rule("block", tool="read_file"), "rule r: Invalid enum value 'block'"),
    "unknown tool": (rule(tool="read_flie"), "no tool is called 'read_flie'"),
    "unknown tool by glob": (rule(tool="browser.*"), "no tool is called 'browser.*'"),
    "unknown level": (rule(level=">=SECRET"), "no such level 'SECRET'"),
    "unknown operator": (rule(level="=>PUBLIC"), "is not an operator"),
    "unknown effect": (rule(effect="reads"), "Invalid enum value 'reads'"),
    "unknown table": ("[settings]\na = 1\n", "unknown field `settings`"),
    "no condition": (rule(), "it has no condition"),
    "empty condition": (rule(tool=[]), "length >= 1"),
    "empty unless": (rule(tool="read_file") + "[rule.unless]\n", "its unless has no condition"),
    "blank value": (rule(path=" "), "empty or has white space"),
    "path that climbs": (rule(path="../x"), "without '.' and '..'"),
    "look-ahead": (rule(command_matches="(?=a)b"), "invalid perl operator"),
    "back-reference": (rule(command_matches=r"(a)\1"), "invalid escape sequence"),
    "bad regex": (rule(command_matches="("), "missing )"),
    "huge regex": (rule(command_matches="(((a{100}){100}){100}){100}"), "command_matches"),
    "redact without pattern": (rule("redact", tool="*"), "needs a pattern"),
    "redact of nothing": (rule("redact", tool="*", pattern="x*"), "matches the empty text"),
    "pattern on deny": (rule(tool="*", pattern="x"), "belong to rules that redact"),
    "two of a name": (rule(tool="*") + rule(tool="*"), "another rule has this name"),
    "bad name": (rule(name="a b", tool="*"), "name"),
    "not TOML": ("rule = [", "Invalid"),
    "wrong type": (rule(tool=3), "Expected"),
    "unknown default": ('default = "maybe"\n', "Invalid enum value 'maybe'"),
    "limit of no tool": ("[limits.tool.nope]\nconcurrent = 1\n", "no tool is called 'nope'"),
    "limit of nothing": ("[limits.session]\n", "nothing is limited"),
    "burst alone": ("[limits.session]\nburst = 2\n", "burst goes with calls_per_s"),
    "limit below zero": ("[limits.session]\ncalls_per_s = -1\n", "> 0.0"),
    "example that does not match": (
        rule(tool="read_file") + "must_match = [{tool='list_directory', args={path='a'}}]\n",
        'must_match example 1, list_directory {"path":"a"}, does not match',
    ),
    "example that matches": (
        rule(tool="read_file") + "must_not_match = [{tool='read_file', args={path='a'}}]\n",
        "must_not_match example 1",
    ),
    "example that is no call": (
        rule(tool="read_file") + "must_match = [{tool='read_file', args={pth='a'}}]\n",
        "is no call",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_policy_that_can_not_be_trusted_is_refused(load: Any, name: str) -> None:
    text, says = REFUSED[name]
    with pytest.raises(PolicyError) as refusal:
        load(text)
    assert says in str(refusal.value)


def test_every_problem_of_every_file_is_told_at_once(load: Any) -> None:
    with pytest.raises(PolicyError) as refusal:
        load(rule(tool="a") + rule(name="s", level="b"), rule(name="t", path="/./"))
    assert [line.split(": ", 2)[1] for line in str(refusal.value).splitlines()] == ["rule r", "rule s", "rule t"]


def test_a_file_must_say_its_version(tmp_path: Path) -> None:
    for text in ("", "version = 2\n"):
        (tmp_path / "p").write_text(text)
        with pytest.raises(PolicyError):
            load_policy([tmp_path / "p"])
    with pytest.raises(PolicyError, match="can't be read"):
        load_policy([tmp_path / "none"])


MATCHES: list[tuple[dict[str, Any], Judged, bool]] = [
    ({"tool": "read_file"}, call(path="a"), True),
    ({"tool": ["write_*", "edit_*"]}, call("write_file", path="a", content=""), True),
    ({"tool": ["write_*", "edit_*"]}, call(path="a"), False),
    ({"effect": "read"}, call(path="a"), True),
    ({"effect": "effect"}, call(path="a"), False),
    ({"session": "ci-*"}, call(path="a", session=Session(name="ci-7", workspace="w")), True),
    ({"session": "ci-*"}, call(path="a"), False),
    ({"tenant": "acme"}, call(path="a", queue="acme"), True),
    ({"tenant": "acme"}, call(path="a", queue="acme2"), False),
    ({"path": "secrets"}, call(path="secrets/deep/a"), True),
    ({"path": "secrets/**"}, call(path=f"{ROOT}/x/../secrets/a"), True),
    ({"path": "secrets/**"}, call(path="./secrets//a"), True),
    ({"path": "*.pem"}, call(path="a/b.pem"), True),
    ({"path": "secrets/**"}, call(path="secret/a"), False),
    ({"path": "/etc"}, call(path="/etc/passwd"), True),
    ({"path": "/etc"}, call(path="../../etc/passwd"), True),
    ({"path": "secrets/**"}, run("cat secrets/a"), True),
    ({"path": "secrets/**"}, run("cd secrets && cat a"), True),
    ({"path": "secrets/**"}, run("tar --file=secrets/a"), True),
    ({"path": "secrets/**"}, run("bash -c 'cat < secrets/a'"), True),
    ({"path": "secrets/**"}, run("cat notes/a"), False),
    ({"command": "git push"}, run("git push"), True),
    ({"command": "git push"}, run("true; git -C x --no-pager push origin"), True),
    ({"command": "git push"}, run("env A=1 timeout 3 /usr/bin/git push"), True),
    ({"command": "git push"}, run("sh -c 'g''it push'"), True),
    ({"command": "git push"}, run("git status; echo git push"), False),
    ({"command": "git push"}, run("git $(cat sub)"), True),
    ({"command": "pip* install"}, run("pip3 install x"), True),
    ({"command": "git push"}, run("$(" * 5000), True),
    ({"command": "git push"}, call(path="git push"), False),
    ({"command_matches": "pu.h"}, run("git push"), True),
    ({"command_matches": "^pu.h"}, run("git push"), False),
    ({"level": ">=INTERNAL"}, call(path="a", session=Session(name="s", workspace="w", taint=Level.RESTRICTED)), True),
    ({"level": "==PUBLIC"}, call(path="a"), True),
    (
        {"level": "> PUBLIC"},
        call(path="a", session=Session(name="s", workspace="w", workspace_level=Level.INTERNAL)),
        True,
    ),
    ({"level": "<INTERNAL"}, call(path="a", session=Session(name="s", workspace="w", taint=Level.INTERNAL)), False),
    ({"tool": "read_file", "path": "a"}, call(path="b"), False),
]  # fmt: skip


@pytest.mark.parametrize("conditions, judged, expected", MATCHES)
def test_conditions(load: Any, conditions: dict[str, Any], judged: Judged, expected: bool) -> None:
    decision = load(rule("deny", **conditions)).judge(judged)
    assert (decision.verdict is Verdict.DENY) is expected
    assert decision.rule == ("r" if expected else "default")


PERMITS: list[tuple[dict[str, Any], Judged, bool]] = [
    ({"command": ["git status", "git diff"]}, run("git status && git diff --stat"), True),
    ({"command": ["git status", "cat"]}, run("git status 2>&1 | cat > /dev/null"), True),
    ({"command": ["git status"]}, run("git status; rm x"), False),
    ({"command": ["git status"]}, run("git -c core.pager=x status"), False),
    ({"command": ["git status"]}, run("./git status"), False),
    ({"command": ["git status"]}, run("PATH=. git status"), False),
    ({"command": ["git status"]}, run("git status > x"), False),
    ({"command": ["git status"]}, run("git status $(rm x)"), False),
    ({"command": ["git status"]}, run("$GIT status"), False),
    ({"command": ["git status"]}, run("git status &"), True),
    ({"command": ["git"]}, run("$(" * 5000), False),
    ({"command_matches": "git status"}, run("git status; rm x"), False),
    ({"path": "src/**"}, call(path="src/a"), True),
    ({"path": "src/**"}, call(path="src/../b"), False),
    ({"path": "**"}, run("cat a"), False),
]


@pytest.mark.parametrize("conditions, judged, expected", PERMITS)
def test_what_permits_must_cover_all_of_a_call(
    load: Any, conditions: dict[str, Any], judged: Judged, expected: bool
) -> None:
    book = load('default = "deny"\n' + rule("allow", **conditions))
    assert (book.judge(judged).verdict is Verdict.ALLOW) is expected


def test_a_link_is_followed_before_anything_is_opened(load: Any, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/a").write_text("x")
    (tmp_path / "plain").symlink_to("secrets/a")
    root = os.path.realpath(tmp_path)
    assert load(rule(path="secrets/**")).judge(call(path="plain", root=root)).verdict is Verdict.DENY
    permits = load('default = "ask"\n' + rule("allow", path="plain"))
    assert permits.judge(call(path="plain", root=root)).verdict is Verdict.ASK


def test_an_exception_takes_back_what_a_rule_says(load: Any) -> None:
    book = load(rule(path="secrets/**") + "[rule.unless]\npath = 'secrets/public'\n")
    assert book.judge(call(path="secrets/a")).verdict is Verdict.DENY
    assert book.judge(call(path="secrets/public/a")).verdict is Verdict.ALLOW
    commands = load(rule(command="git push") + "[rule.unless]\ncommand = 'git push origin'\n")
    assert commands.judge(run("git push origin")).verdict is Verdict.ALLOW
    assert commands.judge(run("git push origin; git push evil")).verdict is Verdict.DENY


ACTIONS = st.sampled_from(["allow", "ask", "deny"])


@settings(max_examples=150, deadline=None)
@given(
    actions=st.lists(st.tuples(ACTIONS, st.booleans()), max_size=8),
    default=ACTIONS,
    data=st.data(),
)
def test_the_strictest_wins_at_whatever_position(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, bool]], default: str, data: st.DataObject
) -> None:
    texts = [rule(a, f"r{n}", tool="read_file" if hits else "list_directory") for n, (a, hits) in enumerate(actions)]
    mixed = data.draw(st.permutations(texts))
    cut = data.draw(st.integers(0, len(mixed)))
    home = tmp_path_factory.mktemp("p")
    (home / "a").write_text(f'version = 1\ndefault = "{default}"\n' + "".join(mixed[:cut]))
    (home / "b").write_text(HEAD + "".join(mixed[cut:]))
    decision = load_policy([home / "a", home / "b"]).judge(call(path="a"))
    hits = [action for action, hit in actions if hit] or [default]
    assert decision.verdict.value == max(hits, key=["allow", "ask", "deny"].index)


TOKENS = ["git", "push", "-C", "x", "status", "&&", ";", "|", "'", '"', "$(", ")", "env", "\\"]
WORDS = st.lists(st.sampled_from(TOKENS), max_size=12)


@settings(max_examples=200, deadline=None)
@given(words=WORDS)
def test_whatever_a_line_looks_like_a_deny_is_never_outweighed(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    home = tmp_path_factory.mktemp("p")
    (home / "a").write_text(HEAD + rule("allow", "a", tool="*") + rule("deny", "d", command="git push"))
    (home / "b").write_text(HEAD + rule("deny", "d", command="git push"))
    both, alone = load_policy([home / "a"]), load_policy([home / "b"])
    judged = run(" ".join(words) or ":")
    assert (both.judge(judged).verdict is Verdict.DENY) == (alone.judge(judged).verdict is Verdict.DENY)
    if words[:2] == ["git", "push"] and not set(words) & {"'", '"', "$(", "\\"}:
        assert both.judge(judged).verdict is Verdict.DENY


def test_a_catastrophic_pattern_is_linear(load: Any) -> None:
    book = load(rule(command_matches="(a+)+$"))
    began = time.process_time()
    assert book.judge(run("a" * 60_000 + "b")).verdict is Verdict.ALLOW
    assert time.process_time() - began < 5, "a backtracking engine would need ages"


def test_versions_tell_policies_apart(load: Any) -> None:
    one, other = load(rule(tool="*")).version, load(rule(tool="*", reason="why")).version
    assert one == load(rule(tool="*")).version
    assert one != other
    assert load(rule(tool="*"), deny_commands=["x"]).version != one


def test_denied_commands_of_a_setting_are_one_more_rule(load: Any) -> None:
    book = load("", deny_commands=["npm publish"])
    assert book.judge(run("npm publish")).rule == "deny_commands"


def test_several_defaults_are_the_strictest(load: Any) -> None:
    assert load('default = "ask"\n', 'default = "deny"\n', "").default is Verdict.DENY


def test_answers_are_judged_by_what_was_opened(load: Any) -> None:
    book = load(rule(path="secrets/**") + rule("ask", "up", level=">=RESTRICTED"))
    judged = call(path=".")
    assert book.judge(judged).verdict is Verdict.ALLOW
    assert book.judge_answer(judged, ["a"], Level.PUBLIC, approved=False) is None
    withheld = book.judge_answer(judged, ["a", "secrets/b"], Level.PUBLIC, approved=True)
    assert withheld is not None
    assert withheld.rule == "r"
    assert book.judge_answer(judged, ["a"], Level.RESTRICTED, approved=False) is not None
    assert book.judge_answer(judged, ["a"], Level.RESTRICTED, approved=True) is None


def test_redaction_takes_every_text_and_raises_the_level(load: Any) -> None:
    book = load(rule("redact", tool="read_file", pattern="ACME-[0-9]+", raise_to="INTERNAL"))
    output = ReadFileOutput(text="ACME-1 a ACME-22", encoding="utf-8", notes=["ACME-3"])
    blanker = book.blanker(call(path="a"))
    assert blanker is not None
    redacted, level, hits = redact_output(output, blanker)
    assert (redacted.text, redacted.notes) == ("[redacted:r] a [redacted:r]", ["[redacted:r]"])
    assert (level, hits) == (Level.INTERNAL, ("r",))
    assert book.blanker(call("list_directory", path="a")) is None
