r"""Globs over file names: one meaning, the same for every search.

Without a slash a pattern is matched against the name alone, at any depth. With a slash it is matched against the path
from the searched directory. `*` and `?` stay within one name; `**` as a whole component stands for any number of
directories, also none; `[a-z]`, `[!a-z]` and `[[:digit:]]` for one character; `{a,b}` for either; a backslash takes
away the meaning of what follows. A leading dot is matched like any other character. What is none of this (ranges in
braces, `!(...)`, unclosed brackets or braces) is refused, never taken for something else.
"""

from __future__ import annotations

import re
from itertools import pairwise

_MAX_ALTERNATIVES = 256
_CLASSES = {
    "alnum": r"^\W_",
    "alpha": r"^\W\d_",
    "digit": r"\d",
    "lower": "a-z",
    "upper": "A-Z",
    "space": r"\s",
    "xdigit": "0-9A-Fa-f",
}
_EXTENDED = re.compile(r"!\(|[+@?*]\([^()/]*\|[^()/]*\)")
_SPECIAL = frozenset("*?[]{}\\")


class InvalidGlob(ValueError):
    """The pattern has something that no rule here gives a meaning to; `position` counts from 0, if it is known."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


def has_meta(text: str) -> bool:
    """Whether any character of the text may mean something else than itself."""
    return not _SPECIAL.isdisjoint(text)


def compile_glob(
    pattern: str, *, anchored: bool = False, case_sensitive: bool = True, brackets: bool = True
) -> re.Pattern[str]:
    """What a path must match in full. `anchored` also without a slash; `brackets` false takes `[` as itself.

    Raises:
        InvalidGlob: an unsupported construct.
    """
    alternatives = _braces(pattern)
    flags = re.DOTALL | (0 if case_sensitive else re.IGNORECASE)
    sources = []
    for alternative in alternatives:
        parts = [part for part in alternative.split("/") if part not in ("", ".")]
        if not parts:
            raise InvalidGlob("the pattern is empty")
        if alternative.endswith("/"):
            raise InvalidGlob("only files are found, and the pattern ends in a slash", len(pattern) - 1)
        fixed = anchored or "/" in alternative
        sources.append(("" if fixed else "(?:.*/)?") + _parts(parts, brackets=brackets))
    return re.compile("|".join(f"(?:{source})" for source in sources), flags)


def compile_literal(text: str, *, anchored: bool = False, case_sensitive: bool = True) -> re.Pattern[str]:
    """As `compile_glob`, with every character meaning itself."""
    free = "" if anchored or "/" in text else "(?:.*/)?"
    source = free + re.escape(text.removeprefix("./"))
    return re.compile(source, re.DOTALL | (0 if case_sensitive else re.IGNORECASE))


def _parts(parts: list[str], *, brackets: bool) -> str:
    """A path's components. Between two `**` the first place that fits is as good as any, hence the atomic groups:
    without them a pattern with many stars takes time without end."""
    runs: list[list[str]] = [[]]
    for part in parts:
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(_name(part, brackets=brackets))
    first, *others = ["/".join(run) for run in runs]
    if not others:
        return first
    middle = [f"(?>(?:[^/]+/)*?{run}/)" for run in others[:-1] if run]
    last = f"(?:[^/]+/)*{others[-1]}" if others[-1] else ".+"
    return "".join([f"{first}/" if first else "", *middle, last])


def _name(name: str, *, brackets: bool) -> str:
    """One component. Stars are as in `_parts`: all but the last one settle for the first place that fits."""
    runs: list[list[str]] = [[]]
    at = 0
    while at < len(name):
        char = name[at]
        if _EXTENDED.match(name, at):
            raise InvalidGlob(f"extended globs like {char}(...) are not supported; braces {{a,b}} are", at)
        if char == "*":
            if at == 0 or name[at - 1] != "*" or len(runs[-1]):
                runs.append([])
        elif char == "?":
            runs[-1].append("[^/]")
        elif char == "[" and brackets:
            source, at = _bracket(name, at)
            runs[-1].append(source)
        elif char == "\\":
            at += 1
            if at == len(name):
                raise InvalidGlob("the pattern ends in a backslash")
            runs[-1].append(re.escape(name[at]))
        else:
            runs[-1].append(re.escape(char))
        at += 1
    first, *others = ["".join(run) for run in runs]
    if not others:
        return first
    return "".join([first, *(f"(?>[^/]*?{run})" for run in others[:-1]), "[^/]*", others[-1]])


def _bracket(name: str, start: int) -> tuple[str, int]:
    """The class that begins at `start`, as a regular expression, and the position of its end."""
    at = start + 1
    negated = name[at : at + 1] in ("!", "^")
    at += negated
    inner = []
    first = True
    while at < len(name) and (name[at] != "]" or first):
        first = False
        if name.startswith("[:", at):
            end = name.find(":]", at)
            kind = name[at + 2 : end] if end > 0 else ""
            if kind not in _CLASSES:
                raise InvalidGlob(f"no character class [:{kind[:20]}:]; there are {', '.join(_CLASSES)}", at)
            inner.append(f"[{_CLASSES[kind]}]")
            at = end + 2
            continue
        low, at = _one(name, at)
        if name[at : at + 1] == "-" and name[at + 1 : at + 2] not in ("]", ""):
            high, at = _one(name, at + 1)
            if high < low:
                raise InvalidGlob(f"the range {low}-{high} is backwards", at - 3)
            inner.append(f"[{re.escape(low)}-{re.escape(high)}]")
        else:
            inner.append(re.escape(low))
    if at >= len(name):
        raise InvalidGlob("a [ is not closed; \\[ is the character itself", start)
    either = "|".join(inner)
    return (f"(?!{either})[^/]" if negated else f"(?!/)(?:{either})"), at


def _one(name: str, at: int) -> tuple[str, int]:
    if name[at] == "\\" and at + 1 < len(name):
        return name[at + 1], at + 2
    return name[at], at + 1


def _braces(pattern: str) -> list[str]:
    """The patterns without braces that one with braces stands for."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop()
        found = _first_braces(text)
        if found is None:
            done.append(text)
        else:
            start, end, choices = found
            todo += [text[:start] + choice + text[end:] for choice in reversed(choices)]
        if len(done) + len(todo) > _MAX_ALTERNATIVES:
            raise InvalidGlob(f"the braces stand for more than {_MAX_ALTERNATIVES} patterns")
    return done


def _first_braces(text: str) -> tuple[int, int, list[str]] | None:
    depth = 0
    start = 0
    commas: list[int] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "[" and not depth:
            close = text.find("]", at + 2)
            at = close if close > 0 and "/" not in text[at:close] else at
        elif char == "{":
            depth += 1
            if depth == 1:
                start, commas = at, []
        elif char == "," and depth == 1:
            commas.append(at)
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                if commas:
                    edges = [start, *commas, at]
                    return start, at + 1, [text[a + 1 : b] for a, b in pairwise(edges)]
                if ".." in text[start:at]:
                    raise InvalidGlob("ranges in braces are not supported; name each: {1,2,3}", start)
                inner = _first_braces(text[start + 1 : at])
                if inner:
                    a, b, choices = inner
                    return start + 1 + a, start + 1 + b, choices
        at += 1
    if depth:
        raise InvalidGlob("a { is not closed; \\{ is the character itself", start)
    return None
