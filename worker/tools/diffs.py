"""Unified diffs of bounded size, made in bounded time."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from worker.tools.encodings import Encoding
from worker.tools.lines import count_aligned, end_of_line, last_line_end, split

MAX_DIFF_CHARS = 64 * 1024
_MAX_COMPARED_LINES = 3000
_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file"


def unified(path: str, old: bytes | None, new: bytes, encoding: Encoding) -> str:
    """How the old text (None: no file) became the new one; empty if they are the same. Both are in `encoding`."""
    if old == new:
        return ""
    before = old or b""
    # Only what differs is decoded and compared, with the lines around it: files may be large where edits are small.
    same = _common_prefix(before, new)
    start = last_line_end(before[:same], encoding)
    tail = min(_common_suffix(before, new), len(before) - start, len(new) - start)
    tail -= tail % encoding.unit
    step = end_of_line(before[len(before) - tail :], 1, encoding)
    tail = tail - step if step > 0 else 0
    above = start
    for _ in range(_CONTEXT):
        above = last_line_end(before[: max(above - len(encoding.newline), 0)], encoding)
    below = before[len(before) - tail :]
    context = max(end_of_line(below, _CONTEXT, encoding), 0) or len(below)
    first = count_aligned(before[:above], encoding.newline, encoding.unit)
    try:
        old_lines = split(before[above : len(before) - tail + context].decode(encoding.codec))
        new_lines = split(new[above : len(new) - tail + context].decode(encoding.codec))
    except UnicodeDecodeError:
        return f"--- {path}\n+++ {path}\n(the difference is not {encoding.name} text)\n"
    heading = [f"--- {path if old is not None else '/dev/null'}\n", f"+++ {path}\n"]
    if above < len(encoding.bom) and old_lines and new_lines:
        old_lines[0], new_lines[0] = old_lines[0].removeprefix("\ufeff"), new_lines[0].removeprefix("\ufeff")
    return _capped([*heading, *_hunks(old_lines, new_lines, first)])


def _hunks(old: list[str], new: list[str], first: int) -> Iterator[str]:
    if max(len(old), len(new)) <= _MAX_COMPARED_LINES:
        groups = list(difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT))
    else:
        groups = [[("replace", 0, len(old), 0, len(new))]]
    for group in groups:
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        yield f"@@ -{_range(first + old_start, first + old_end)} +{_range(first + new_start, first + new_end)} @@\n"
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from _marked(" ", old[a:b])
                continue
            yield from _marked("-", old[a:b])
            yield from _marked("+", new[c:d])


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}\n"


def _range(start: int, end: int) -> str:
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _capped(pieces: list[str]) -> str:
    text = "".join(pieces)
    if len(text) <= MAX_DIFF_CHARS:
        return text
    cut = text.rfind("\n", 0, MAX_DIFF_CHARS) + 1 or MAX_DIFF_CHARS
    return f"{text[:cut]}... {len(text) - cut} more characters of this diff are left out\n"


def _common_prefix(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    left, right = memoryview(one), memoryview(other)
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_suffix(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low
