"""Why an old_text was not found, when something much like it is there. Told, never applied."""

from __future__ import annotations

import unicodedata

_MAX_SEARCHED_CHARS = 2_000_000
_MAX_COMPARED_LINES = 200_000
_SPACES = "".join(map(chr, (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
_LOOK_ALIKES: dict[int, str | None] = {
    **dict.fromkeys(map(ord, "‘’‚‛′`´"), "'"),
    **dict.fromkeys(map(ord, "“”„‟″"), '"'),
    **dict.fromkeys(map(ord, "‐‑‒–—―−"), "-"),
    **dict.fromkeys(map(ord, _SPACES), " "),
    **dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), None),
}


def hint_at(text: str, old_text: str) -> str:
    """What stands in the file at the nearest miss, with its line, if there is one, and what to do."""
    if len(text) <= _MAX_SEARCHED_CHARS:
        for explain in (_folded, _spaced, _unescaped, _cased, _begun):
            if told := explain(text, old_text):
                return f"{told}; copy the text exactly as read_file shows it"
    return "read the file again, and copy the text exactly as it stands"


def _folded(text: str, old_text: str) -> str | None:
    """Look-alike characters."""
    for fold in (_plain, _composed):
        wanted, held = fold(old_text), fold(text)
        at = held.find(wanted) if wanted else -1
        if at >= 0:
            line = held.count("\n", 0, at) + 1
            there = "\n".join(text.split("\n")[line - 1 : line + wanted.count("\n")])
            return f"it is there at line {line} but for characters that look alike{_difference(there, old_text)}"
    return None


def _plain(text: str) -> str:
    return text.translate(_LOOK_ALIKES)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", _plain(text))


def _difference(there: str, old_text: str) -> str:
    """The first two characters that differ, if the texts can be laid side by side."""
    kept = [char for char in there if _plain(char)]
    start = "".join(map(_plain, kept)).find(_plain(old_text))
    if start < 0:
        return ""
    for held, wanted in zip(kept[start:], [char for char in old_text if _plain(char)], strict=False):
        if held != wanted:
            return f": the file has {_name(held)} where old_text has {_name(wanted)}"
    hidden = [char for char in (*there, *old_text) if not _plain(char)]
    return f": {_name(hidden[0])} can't be seen" if hidden else ""


def _name(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, 'unnamed')}"


def _spaced(text: str, old_text: str) -> str | None:
    """Differences in white space only."""
    wanted = "".join(old_text.split())
    at = "".join(text.split()).find(wanted) if wanted else -1
    if at < 0:
        return None
    places = [place for place, char in enumerate(text) if not char.isspace()]
    first, last = places[at], places[at + len(wanted) - 1]
    start = text.rfind("\n", 0, first) + 1
    there = text[start : last + 1]
    if "\t" in there and "\t" not in old_text:
        what = "the file has tabs where old_text has spaces"
    elif "\t" in old_text and "\t" not in there:
        what = "the file has spaces where old_text has tabs"
    else:
        what = "the number of spaces or line breaks differs"
    return f"it is there at line {_line_of(text, first)} but for white space: {what}"


def _unescaped(text: str, old_text: str) -> str | None:
    """Escapes written once too often."""
    plain = old_text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
    if plain == old_text or (at := text.find(plain)) < 0:
        return None
    where = f"line {_line_of(text, at)}"
    return f"it is there at {where} if the backslash escapes in old_text are taken as what they stand for"


def _cased(text: str, old_text: str) -> str | None:
    lowered = text.lower()
    at = lowered.find(old_text.lower())
    return f"it is there at line {_line_of(lowered, at)} but for upper and lower case" if at >= 0 else None


def _begun(text: str, old_text: str) -> str | None:
    """A beginning that is there, and the line from which on it is not."""
    wanted = old_text.replace("\r\n", "\n").split("\n")
    held = text.replace("\r\n", "\n").split("\n")
    if len(wanted) < 2 or not wanted[0].strip():
        return None
    best, best_line = 0, 0
    left = _MAX_COMPARED_LINES
    for number, line in enumerate(held):
        if line.endswith(wanted[0]):
            same = 1
            while same < len(wanted) and number + same < len(held) and held[number + same] == wanted[same]:
                same += 1
            if same > best:
                best, best_line = same, number + 1
            left -= same
            if left < 0:
                break
    if not best:
        return None
    where = f"line {best_line}, then line {best_line + best} differs"
    return f"its first {best} of {len(wanted)} lines are there at {where}"


def _line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
