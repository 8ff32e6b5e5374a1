"""Policy files -> a rule book, or a refusal that says which file, which rule and what is wrong with it."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from contracts.calls import JobId, Session, ToolCall
from contracts.codec import decode_call, encode_call
from contracts.levels import Level
from contracts.tools import TOOLS
from worker.decisions import Judged, Verdict
from worker.policies.rules.book import Rule, RuleBook
from worker.policies.rules.conditions import BadRule, Condition, compile_conditions, compile_pattern, read_level_word
from worker.policies.rules.schema import ConditionsText, Example, Limit, Limits, PolicyText, RuleText
from worker.policies.rules.subject import Subject

MAX_FILE_BYTES = 1024 * 1024
EXAMPLE_ROOT = "/workspace"
"""Where examples take place; it need not exist."""
DENY_COMMANDS = "deny_commands"


class PolicyError(ValueError):
    """The policy can't be used; every line of the message names a file and says what is wrong in it."""


def load_policy(paths: Sequence[Path], deny_commands: Sequence[str] = (), *, examples: bool = True) -> RuleBook:
    """The rules of all files together, their `examples` checked. Of several defaults the strictest counts.

    `deny_commands` are command lines' first words to deny, as one more rule.

    Raises:
        PolicyError: a file can't be read or used, or an example does not hold; nothing of any file counts then.
    """
    problems: list[str] = []
    rules: list[Rule] = []
    default, limits, digest = Verdict.ALLOW, Limits(), hashlib.sha256()
    for path in paths:
        try:
            data = _read(path)
            text = _decode(data)
            rules += _compile_all(text.rule)
            limits = _merged(limits, text.limits)
        except BadRule as error:
            problems += [f"{path}: {line}" for line in str(error).splitlines()]
            continue
        digest.update(len(data).to_bytes(8) + data)
        default = max(default, Verdict(text.default), key=lambda verdict: verdict.strictness)
    if deny_commands:
        rules.append(_compile(RuleText(name=DENY_COMMANDS, action="deny", command=list(deny_commands))))
        digest.update("\0".join(deny_commands).encode())
    names = [rule.name for rule in rules]
    problems += [
        f"rule {name}: another rule has this name" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if not problems and examples:
        problems = [each.problem for rule in rules for each in try_examples(rule) if each.problem]
    if problems:
        raise PolicyError("\n".join(problems))
    return RuleBook(rules, default=default, limits=limits, version=digest.hexdigest()[:12])


class Tried(Struct, frozen=True, kw_only=True):
    """One example and what came of it: `problem` is empty if it holds."""

    rule: str
    kind: str
    number: int
    example: Example
    problem: str = ""


def try_examples(rule: Rule) -> list[Tried]:
    """Every example of a rule, tried."""
    tried = []
    for kind, examples in (("must_match", rule.must_match), ("must_not_match", rule.must_not_match)):
        for number, example in enumerate(examples, 1):
            problem = _problem(rule, example, matching=kind == "must_match")
            if problem:
                problem = f"rule {rule.name}: {kind} example {number}, {_shown(example)}, {problem}"
            tried.append(Tried(rule=rule.name, kind=kind, number=number, example=example, problem=problem))
    return tried


def _problem(rule: Rule, example: Example, *, matching: bool) -> str:
    try:
        judged = judged_of(example)
    except ValueError as error:
        return f"is no call: {error}"
    if _holds(rule, judged, example) is matching:
        return ""
    return "does not match" if matching else "matches"


def _shown(example: Example) -> str:
    return f"{example.tool} {msgspec.json.encode(example.args).decode()[:200]}"


def judged_of(example: Example) -> Judged:
    """An example as a call to judge.

    Raises:
        ValueError: it is no call of ours, or its level is none.
    """
    job = JobId(example.tenant, example.session, "example")
    call: ToolCall = decode_call(job, encode_call(example.tool, example.args, enqueued_ms=0))[0]
    session = Session(name=example.session, workspace=example.session, taint=read_level_word(example.level, "level"))
    return Judged(call=call, session=session, workspace_roots=(EXAMPLE_ROOT,), now_ms=0, queue=example.tenant)


def _holds(rule: Rule, judged: Judged, example: Example) -> bool:
    if not rule.matches(Subject(judged)):
        return False
    return rule.pattern is None or example.output is None or rule.pattern.search(example.output) is not None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadRule(f"can't be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise BadRule(f"larger than {MAX_FILE_BYTES} bytes")
    return data


def _decode(data: bytes) -> PolicyText:
    try:
        raw = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRule(str(error)) from None
    except RecursionError:
        raise BadRule("nested too deeply") from None
    try:
        return msgspec.convert(raw, PolicyText)
    except msgspec.ValidationError as error:
        raise BadRule(_named(str(error), raw.get("rule"))) from None


def _named(message: str, rules: object) -> str:
    """The message with the rule's name where msgspec counts."""
    found = re.search(r"`\$\.rule\[(\d+)\]\.?(.*)`", message)
    if not found or not isinstance(rules, list):
        return message
    rule = rules[int(found[1])]
    name = rule.get("name") if isinstance(rule, dict) else None
    where = f"rule {name}" if isinstance(name, str) else f"rule number {int(found[1]) + 1}"
    return f"{where}: {message[: found.start()].removesuffix(' - at ')}" + (f" - at `{found[2]}`" if found[2] else "")


def _compile_all(texts: Sequence[RuleText]) -> list[Rule]:
    rules, problems = [], []
    for text in texts:
        try:
            rules.append(_compile(text))
        except BadRule as error:
            problems.append(f"rule {text.name}: {error}")
    if problems:
        raise BadRule("\n".join(problems))
    return rules


def _compile(text: RuleText) -> Rule:
    conditions = compile_conditions(text)
    if not conditions:
        raise BadRule('it has no condition; say tool = "*" if it is about every call')
    unless: tuple[Condition, ...] | None = None
    if text.unless is not None:
        unless = tuple(compile_conditions(text.unless))
        if not unless:
            raise BadRule("its unless has no condition")
    pattern = None
    if text.action == "redact":
        if text.pattern is None:
            raise BadRule("a rule that redacts needs a pattern")
        pattern = compile_pattern(text.pattern, "pattern")
        if pattern.search("") is not None:
            raise BadRule(f"pattern {text.pattern!r} matches the empty text")
    elif (text.pattern, text.replacement, text.raise_to) != (None, None, None):
        raise BadRule("pattern, replacement and raise_to belong to rules that redact")
    elif any(example.output is not None for example in (*text.must_match, *text.must_not_match)):
        raise BadRule("an example's output belongs to rules that redact")
    return Rule(
        name=text.name,
        action=text.action,
        reason=text.reason,
        conditions=tuple(conditions),
        unless=unless,
        looks_at_answers=any(_looks_at_answers(part) for part in (text, text.unless) if part is not None),
        pattern=pattern,
        replacement=text.replacement if text.replacement is not None else f"[redacted:{text.name}]",
        raise_to=read_level_word(text.raise_to, "raise_to") if text.raise_to is not None else Level.PUBLIC,
        must_match=tuple(text.must_match),
        must_not_match=tuple(text.must_not_match),
    )


def _looks_at_answers(text: ConditionsText) -> bool:
    return text.path is not None or text.level is not None


def _merged(one: Limits, other: Limits) -> Limits:
    """Limits may stand in one file only."""
    _check_limits(other)
    if other == Limits():
        return one
    if one != Limits():
        raise BadRule("limits stand in another file already")
    return other


def _check_limits(limits: Limits) -> None:
    for tool in limits.tool:
        if tool not in TOOLS:
            raise BadRule(f"limits: no tool is called {tool!r}; there are {', '.join(sorted(TOOLS))}")
    for where, limit in (("tenant", limits.tenant), ("session", limits.session), *limits.tool.items()):
        if limit is None:
            continue
        if limit == Limit():
            raise BadRule(f"limits of {where}: nothing is limited")
        if limit.burst is not None and limit.calls_per_s is None:
            raise BadRule(f"limits of {where}: burst goes with calls_per_s")
