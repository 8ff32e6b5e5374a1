"""Finding the one place an edit means, on the file's bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import AnyStr

from worker.tools.encodings import Encoding
from worker.tools.lines import split

MAX_COUNTED = 1000
_SIMPLE = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "ascii", "latin", "iso8859", "cp125", "koi8")


@dataclass(frozen=True, slots=True)
class Found:
    """Where old_text stands: byte spans, at most MAX_COUNTED; `flexible` if only line endings made the difference."""

    spans: list[tuple[int, int]]
    flexible: bool = False


def find(data: bytes, old_text: str, encoding: Encoding) -> Found:
    """Every place of old_text, overlapping ones too. If there is none, every place where it differs by line endings
    only (text from a model has LF where the file has CRLF)."""
    try:
        needle = old_text.encode(encoding.codec)
    except UnicodeEncodeError:
        return Found([])
    spans = _literal(data, needle, encoding)
    if "\n" not in old_text or len(spans) > 1 or (spans and not _tears_crlf(data, spans[0], old_text, encoding)):
        return Found(spans)
    by_lines = _by_lines(data, old_text, encoding)
    return Found(by_lines, flexible=True) if by_lines else Found(spans)


def replacement(
    data: bytes, span: tuple[int, int], old_text: str, new_text: str, found: Found, encoding: Encoding
) -> bytes:
    """The bytes that take the span's place: new_text with the line endings that stand there.

    A new_text with CRLF of its own, and one for an old_text with CRLF that matched as it is, are taken literally.

    Raises:
        UnicodeEncodeError: the encoding has no such character.
    """
    if "\n" not in new_text or (not found.flexible and ("\r\n" in new_text or "\r\n" in old_text)):
        return new_text.encode(encoding.codec)
    matched = data[span[0] : span[1]].decode(encoding.codec)
    if "\n" in matched:
        return _with_endings_of(matched, new_text.replace("\r\n", "\n")).encode(encoding.codec)
    ending = _ending_near(data, span, encoding)
    return new_text.replace("\n", ending).encode(encoding.codec)


def _literal(data: bytes, needle: bytes, encoding: Encoding) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    at = data.find(needle)
    while at >= 0 and len(spans) < MAX_COUNTED:
        if at % encoding.unit == 0 and _at_characters(data, at, at + len(needle), encoding):
            spans.append((at, at + len(needle)))
        at = data.find(needle, at + 1)
    return spans


def _tears_crlf(data: bytes, span: tuple[int, int], old_text: str, encoding: Encoding) -> bool:
    """Whether the match begins between CR and LF: taken literally it would tear them apart."""
    return old_text.startswith("\n") and data.endswith("\r".encode(encoding.codec), 0, span[0])


def _by_lines(data: bytes, old_text: str, encoding: Encoding) -> list[tuple[int, int]]:
    """Where old_text stands if CRLF and LF count as the same: sought in the text with LF only, then laid back."""
    wanted = old_text.replace("\r\n", "\n")
    if encoding.unit == 1 and encoding.codec.startswith(_SIMPLE):
        return _laid_back(data, data.replace(b"\r\n", b"\n"), wanted.encode(encoding.codec), b"\r\n")
    text = data.decode(encoding.codec)
    spans = []
    at = byte_at = 0
    for start, end in _laid_back(text, text.replace("\r\n", "\n"), wanted, "\r\n"):
        byte_at += len(text[at:start].encode(encoding.codec))
        at = start
        spans.append((byte_at, byte_at + len(text[start:end].encode(encoding.codec))))
    return [span for span in spans if data[slice(*span)].decode(encoding.codec).replace("\r\n", "\n") == wanted]


def _laid_back(whole: AnyStr, flat: AnyStr, wanted: AnyStr, pair: AnyStr) -> list[tuple[int, int]]:
    """The spans in `whole` of every `wanted` in `flat`, which is `whole` with its CRLF made LF."""
    spans: list[tuple[int, int]] = []
    known = (0, 0)
    found = flat.find(wanted)
    while found >= 0 and len(spans) < MAX_COUNTED:
        known = _position(whole, found, pair, known)
        spans.append((known[0], _position(whole, found + len(wanted), pair, known)[0]))
        found = flat.find(wanted, found + 1)
    return spans


def _position(whole: AnyStr, flat_at: int, pair: AnyStr, known: tuple[int, int]) -> tuple[int, int]:
    """The last position in `whole` with `flat_at` positions of the flat text before it, and how many pairs lie before
    it; `known` is such an answer for an earlier position."""
    low, pairs = known
    high = len(whole)
    while low < high:
        middle = (low + high + 1) // 2
        between = whole.count(pair, known[0], middle)
        if middle - known[1] - between <= flat_at:
            low, pairs = middle, known[1] + between
        else:
            high = middle - 1
    return low, pairs


def _at_characters(data: bytes, start: int, end: int, encoding: Encoding) -> bool:
    """Whether both ends lie between characters, also in encodings whose second bytes look like ASCII."""
    if encoding.codec.startswith(_SIMPLE):
        return True
    line = data.rfind(b"\n", 0, start) + 1
    try:
        data[line:start].decode(encoding.codec)
        data[start:end].decode(encoding.codec)
    except UnicodeDecodeError:
        return False
    return True


def _with_endings_of(matched: str, new_text: str) -> str:
    """new_text, its lines ended as those they replace; lines that are new, as most of those around them."""
    endings = ["\r\n" if line.endswith("\r\n") else "\n" for line in split(matched) if line.endswith("\n")]
    usual = "\r\n" if endings.count("\r\n") * 2 >= len(endings) else "\n"
    old_lines, new_lines = matched.replace("\r\n", "\n").split("\n"), new_text.split("\n")
    wanted = len(new_lines) - 1
    if wanted == len(endings):
        chosen = endings
    else:
        shorter = min(wanted, len(endings))
        above = next((n for n in range(shorter) if old_lines[n] != new_lines[n]), shorter)
        below = next((n for n in range(shorter - above) if old_lines[-1 - n] != new_lines[-1 - n]), shorter - above)
        chosen = [*endings[:above], *[usual] * (wanted - above - below), *endings[len(endings) - below :]]
    return "".join(line + ending for line, ending in zip(new_lines, [*chosen, ""], strict=True))


def _ending_near(data: bytes, span: tuple[int, int], encoding: Encoding) -> str:
    feed, carriage = encoding.newline, "\r".encode(encoding.codec)
    at = data.find(feed, span[1])
    while at >= 0 and at % encoding.unit:
        at = data.find(feed, at + 1)
    if at < 0:
        at = data.rfind(feed, 0, span[0])
        while at >= 0 and at % encoding.unit:
            at = data.rfind(feed, 0, at + len(feed) - 1)
    return "\r\n" if at >= 0 and data.endswith(carriage, 0, at) else "\n"
