"""One rule's conditions, compiled. A condition either holds for something of a call, or for everything of it.

What forbids must match as soon as a part of the call is meant (`every` false); what permits must cover all of it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import Any

import re2

from contracts.levels import Level
from contracts.tools import TOOLS
from worker.labels import path_rule
from worker.policies.rules.schema import ConditionsText, OneOrMore
from worker.policies.rules.subject import Subject
from worker.shell import marks
from worker.shell.state import Call

MAX_PATTERN_CHARS = 4096
_MAX_PROGRAM_BYTES = 8 * 1024 * 1024
_LEVEL = re.compile(r"(>=|<=|==|>|<)? *(\w+)")
_COMPARE: dict[str, Callable[[Level, Level], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a is b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}

Condition = Callable[[Subject, bool], bool]
"""`(subject, every)`."""


class BadRule(ValueError):
    """A rule that can't be used; the message says what of it and why."""


def compile_pattern(text: str, where: str) -> Any:
    """A regular expression of RE2, which takes time linear in the text whatever the expression.

    Raises:
        BadRule: RE2 refuses it (look-around and back-references are the usual reasons), or it matches nothing at all.
    """
    if len(text) > MAX_PATTERN_CHARS:
        raise BadRule(f"{where} is longer than {MAX_PATTERN_CHARS} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PROGRAM_BYTES
    try:
        return re2.compile(text, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise BadRule(f"{where} {text!r}: {why}") from None


def read_level_word(text: str, where: str) -> Level:
    """A level by its name.

    Raises:
        BadRule: there is no such level.
    """
    try:
        return Level(text)
    except ValueError:
        raise BadRule(f"{where}: no such level {text!r}; there are {', '.join(x.value for x in Level)}") from None


def compile_conditions(text: ConditionsText) -> list[Condition]:
    """All conditions that the text has.

    Raises:
        BadRule: one of them can't be used.
    """
    conditions: list[Condition] = []
    if text.effect is not None:
        conditions.append(_is_effect(text.effect))
    for field in ("tool", "session", "tenant"):
        globs = _list(getattr(text, field), field)
        if globs:
            if field == "tool":
                _check_tools(globs)
            conditions.append(_names(field, globs))
    if text.level is not None:
        conditions.append(_level(text.level))
    if paths := _list(text.path, "path"):
        conditions.append(_paths(paths))
    if commands := _list(text.command, "command"):
        conditions.append(_commands(commands))
    if text.command_matches is not None:
        conditions.append(_command_matches(text.command_matches))
    return conditions


def _list(value: OneOrMore | None, field: str) -> list[str]:
    values = [value] if isinstance(value, str) else list(value or ())
    for each in values:
        if not each.strip() or each != each.strip():
            raise BadRule(f"{field} {each!r} is empty or has white space around it")
    return values


def _check_tools(globs: Sequence[str]) -> None:
    for glob in globs:
        if not fnmatch.filter(TOOLS, glob):
            raise BadRule(f"no tool is called {glob!r}; there are {', '.join(sorted(TOOLS))}")


def _glob(*globs: str) -> re.Pattern[str]:
    # From Python 3.11 on each star becomes an atomic group, so time stays linear in the name.
    return re.compile("|".join(f"(?:{fnmatch.translate(glob)})" for glob in globs))


def _names(field: str, globs: Sequence[str]) -> Condition:
    pattern = _glob(*globs)
    return lambda subject, _: pattern.match(getattr(subject, field)) is not None


def _is_effect(effect: str) -> Condition:
    return lambda subject, _: subject.effect == effect


def _level(text: str) -> Condition:
    found = _LEVEL.fullmatch(text.strip())
    if found is None:
        raise BadRule(f"level {text!r} is not an operator ({' '.join(_COMPARE)}) and a level")
    compare, level = _COMPARE[found[1] or "=="], read_level_word(found[2], "level")
    return lambda subject, _: compare(subject.level, level)


def _paths(globs: Sequence[str]) -> Condition:
    try:
        patterns = [path_rule(glob, Level.PUBLIC).pattern for glob in globs]
    except ValueError as error:
        raise BadRule(f"path: {error}") from None

    def holds(subject: Subject, every: bool) -> bool:
        if every and subject.command is not None:
            # Nobody can list all that a command opens, so no rule may permit one by its paths.
            return False
        matches = (any(pattern.match(path) for pattern in patterns) for path in subject.paths)
        return bool(subject.paths) and all(matches) if every else any(matches)

    return holds


def _commands(lines: Sequence[str]) -> Condition:
    wanted = [tuple(_glob(word) for word in line.split()) for line in lines]

    def holds(subject: Subject, every: bool) -> bool:
        if subject.command is None:
            return False
        if every:
            walker = subject.walker
            if walker is None or walker.doubt or walker.findings or not subject.calls:
                return False
            return all(any(_is_just(call, words) for words in wanted) for call in subject.calls)
        if subject.calls is None:
            return True
        return any(_begins(call, words) for call in subject.calls for words in wanted)

    return holds


def _command_matches(text: str) -> Condition:
    pattern = compile_pattern(text, "command_matches")

    def holds(subject: Subject, every: bool) -> bool:
        if subject.command is None:
            return False
        return bool(pattern.fullmatch(subject.command) if every else pattern.search(subject.command))

    return holds


def _begins(call: Call, wanted: Sequence[re.Pattern[str]]) -> bool:
    """Whether the call begins with the words; options with their values may stand between. Unknown words may be any."""
    if not call.argv or not _may_be(call.argv[0].rpartition("/")[2], wanted[0]):
        return False
    at, skipped = 1, False
    for word in call.argv[1:]:
        if at == len(wanted):
            break
        if _may_be(word, wanted[at]):
            at += 1
            skipped = False
        elif not word.startswith("-") and not skipped:
            break
        else:
            skipped = word.startswith("-") and "=" not in word
    return at == len(wanted)


def _may_be(word: str, wanted: re.Pattern[str]) -> bool:
    return marks.only_marks(word) or wanted.match(marks.plain(word)) is not None


def _is_just(call: Call, wanted: Sequence[re.Pattern[str]]) -> bool:
    """Whether the call is these words and more of its own arguments: nothing set for it, nothing written beside it."""
    if call.assignments or len(call.argv) < len(wanted):
        return False
    if any(">" in op and not _is_harmless(op, target) for op, target in call.redirects):
        return False
    words = call.argv[: len(wanted)]
    return all(
        marks.is_known(word) and pattern.match(word) is not None for word, pattern in zip(words, wanted, strict=True)
    )


def _is_harmless(op: str, target: str) -> bool:
    return target == "/dev/null" or (op.endswith("&") and (target == "-" or target.isdecimal()))
