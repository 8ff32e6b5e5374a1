"""The command denylist: a seat belt that reads the command line as the shell would. The sandbox is the wall.

`judge` is the policy; `judge_command` the pure judgement behind it. docs/denylist.md says what it can't see.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from contracts.tools import RunCommandArgs
from worker.decisions import Decision, Judged, Verdict, allow, ask, deny
from worker.policies.denylist import deletion, devices, modes, persistence, privilege, system
from worker.policies.denylist.match import Match, Rule
from worker.policies.denylist.place import Place
from worker.shell import marks
from worker.shell.limits import MAX_COMMAND_CHARS, TooComplex
from worker.shell.paths import canonical, join
from worker.shell.run import Finding
from worker.shell.second import unseen
from worker.shell.state import Call
from worker.shell.walk import Walker, walk

POLICY = "command_denylist"

_RULES: tuple[Rule, ...] = (
    privilege.judge,
    devices.judge,
    system.judge,
    system.written,
    persistence.judge,
    deletion.judge,
    modes.judge,
)
_REDIRECT_RULES = (devices.redirect, system.redirect, persistence.redirect, deletion.redirect)
_REFUSED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
    "|(?<![\u2190-\U0010ffff])\u200d"
)
_MAX_SECOND_CHARS = 16 * 1024
_MAX_SECOND = 16
_FINDINGS: dict[str, tuple[str, bool, str]] = {
    # kind -> rule, denied (else asked), why
    "fork_bomb": ("fork_bomb", True, "it starts processes without end"),
    "foreign_code": ("remote_code", True, "a downloaded or decoded text would be run as a program"),
    "unknown_code": ("unknown_code", True, "a text that nobody can see here would be run as a program"),
    "unknown_command": ("unknown_command", False, "which command it is turns out at run time only"),
}
_STRICT_FINDINGS: dict[str, tuple[str, bool, str]] = {
    "unset_code": ("unknown_code", False, "a variable would be run as a program"),
    "unset_command": ("unknown_command", False, "a variable would be run as a command"),
}


_HARMLESS = frozenset(
    [
        "echo",
        "printf",
        "true",
        "false",
        ":",
        "[",
        "test",
        "cd",
        "pushd",
        "popd",
        "pwd",
        "export",
        "unset",
        "set",
        "shift",
        "local",
        "declare",
        "typeset",
        "readonly",
        "read",
        "return",
        "exit",
        "break",
        "continue",
        "wait",
        "sleep",
        "date",
        "ls",
        "mkdir",
        "alias",
        "shopt",
        "trap",
        "umask",
        "type",
        "basename",
        "dirname",
    ]
)
"""Commands no rule looks at; what they are redirected to is looked at all the same."""


class ExtraRule(NamedTuple):
    """An operator's rule: the first words of a command, e.g. ("git", "push"), looked for behind every wrapper."""

    words: tuple[str, ...]
    verdict: Literal["deny", "ask"] = "deny"


def judge(judged: Judged) -> Decision | None:
    """Judges `run_command`; silent about every other tool."""
    args = judged.call.args
    if judged.call.tool != "run_command" or not isinstance(args, RunCommandArgs):
        return None
    root = judged.workspace_roots[0]
    return judge_command(
        args.command, workspace_roots=judged.workspace_roots, cwd=join(root, args.cwd or ".") or root, home=root
    )


def judge_command(
    command: str,
    *,
    workspace_roots: tuple[str, ...],
    cwd: str,
    home: str,
    extra: tuple[ExtraRule, ...] = (),
    strict: bool = False,
) -> Decision:
    """Judges a command line for bash.

    Args:
        workspace_roots: absolute spellings of the workspace, the canonical one first.
        cwd, home: absolute; what `.` and `~` stand for when the line begins.
        extra: the operator's rules, on top of the built-in ones.
        strict: whether what can't be analysed needs approval, rather than only what is known to be harmful.
    """
    if len(command) > MAX_COMMAND_CHARS:
        return deny(POLICY, "too_long", f"the command is longer than {MAX_COMMAND_CHARS} characters; put it in a file")
    refused = _REFUSED.search(command)
    if refused:
        return deny(POLICY, "characters", f"the command holds the invisible character U+{ord(refused.group()[-1]):04X}")
    place = Place(tuple(canonical(root) for root in workspace_roots), canonical(home))
    return _readings(command, place, canonical(cwd), extra, strict)


def _readings(command: str, place: Place, cwd: str, extra: tuple[ExtraRule, ...], strict: bool) -> Decision:
    try:
        walker = walk(command, cwd=cwd, home=place.home)
    except (TooComplex, RecursionError) as error:
        why = str(error) if isinstance(error, TooComplex) else "it nests too deep"
        return deny(POLICY, "too_complex", f"the command can't be followed, {why}; put it in a file, in simpler steps")
    decision = _verdict(walker, place, extra, strict)
    if decision.verdict is Verdict.ALLOW and len(command) <= _MAX_SECOND_CHARS:
        for other in unseen(command, walker.starts)[:_MAX_SECOND]:
            if _alone(other, place, cwd, extra):
                return ask(POLICY, "two_readings", f"`{_clipped(other)}`: read another way, it would be run")
    return decision


def _alone(command: str, place: Place, cwd: str, extra: tuple[ExtraRule, ...]) -> bool:
    try:
        walker = walk(command, cwd=cwd, home=place.home)
    except (TooComplex, RecursionError):
        return True
    return _verdict(walker, place, extra, False).verdict is Verdict.DENY


def _verdict(walker: Walker, place: Place, extra: tuple[ExtraRule, ...], strict: bool) -> Decision:
    milder: Decision | None = None
    for call in walker.calls:
        match = _match(call, place)
        if match:
            return deny(POLICY, match.rule, _reason(call, match.rule, match.why))
        asked = _extra(call, extra) if extra else None
        if asked is not None and asked.verdict == "deny":
            return deny(
                POLICY, f"operator:{' '.join(asked.words)}", _reason(call, "operator's rule", "not wanted here")
            )
        if asked is not None and milder is None:
            milder = ask(
                POLICY, f"operator:{' '.join(asked.words)}", _reason(call, "operator's rule", "needs approval")
            )
    for finding in walker.findings:
        decision = _judge_finding(finding, strict, bool(walker.tolerant))
        if decision is not None and decision.verdict is Verdict.DENY:
            return decision
        milder = milder or decision
    if milder is None and strict and walker.doubt:
        milder = ask(POLICY, "unreadable", "the command does not read as a valid command line")
    return milder or allow(POLICY)


def _match(call: Call, place: Place) -> Match | None:
    if call.argv:
        name = call.argv[0].rpartition("/")[2]
        if name not in _HARMLESS:
            for rule in _RULES:
                match = rule(name, call, place)
                if match:
                    return match
    for op, target in call.redirects:
        if op.endswith("<&") or not target:
            continue
        for redirect in _REDIRECT_RULES:
            if op == "<" and redirect is not persistence.redirect:
                continue
            match = redirect(op.lstrip("2"), target, call, place)
            if match:
                return match
    return None


def _judge_finding(finding: Finding, strict: bool, tolerant: bool) -> Decision | None:
    row = _FINDINGS.get(finding.kind) or (_STRICT_FINDINGS.get(finding.kind) if strict else None)
    if row is None:
        return None
    rule, denied, why = row
    inside = f" inside `{' > '.join(finding.trail)}`" if finding.trail else ""
    reason = f"`{_clipped(finding.subject)}`{inside}: {rule}, {why}"
    return deny(POLICY, rule, reason) if denied else ask(POLICY, rule, reason)


def _extra(call: Call, extra: tuple[ExtraRule, ...]) -> ExtraRule | None:
    if not call.argv:
        return None
    words = (call.argv[0].rpartition("/")[2], *call.argv[1:])
    found: ExtraRule | None = None
    for rule in extra:
        if words[: len(rule.words)] == rule.words or _past_options(words, rule.words):
            if rule.verdict == "deny":
                return rule
            found = rule
    return found


def _past_options(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """`git -C x push` is `git push`: options and one value each may stand between the words."""
    if words[0] != wanted[0] or len(wanted) < 2:
        return False
    at, skipped = 1, False
    for word in words[1:]:
        if at < len(wanted) and word == wanted[at]:
            at += 1
        elif not word.startswith("-") and not skipped:
            break
        skipped = word.startswith("-") and "=" not in word
    return at == len(wanted)


def _reason(call: Call, rule: str, why: str) -> str:
    words = " ".join(call.argv) or " ".join(f"{op} {target}" for op, target in call.redirects)
    inside = f" inside `{' > '.join(call.trail)}`" if call.trail else ""
    return f"`{_clipped(words)}`{inside}: {rule}, {why}"


def _clipped(text: str) -> str:
    plain = marks.plain(text)
    return plain if len(plain) <= 120 else plain[:117] + "..."
