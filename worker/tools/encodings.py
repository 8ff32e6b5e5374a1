"""Which encoding a file's text is in. Every answer decodes back to the same bytes; what does not is refused."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field

from worker.failures import CallFailed
from worker.tools.magic import name_of

_BOMS = (
    (codecs.BOM_UTF8, "utf-8", "utf-8-sig", 1),
    (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32-le", 4),
    (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32-be", 4),
    (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le", 2),
    (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be", 2),
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_NOT_WINDOWS_1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_HIGH_RUN = re.compile(rb"[\x80-\xff]{3}")
_NOT_FAITHFUL = ("unicode", "raw_unicode", "punycode", "idna", "undefined", "utf-7", "iso2022", "hz")
"""Codecs whose characters mean nothing without what stands before them, or that decode different bytes alike."""
_UNITS = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}


@dataclass(frozen=True, slots=True)
class Encoding:
    """`codec` is Python's name, `name` what the agent is told; `bom` the mark the file begins with, which is no text.

    `unit` is the size in bytes of what a character's beginning is aligned to.
    """

    codec: str
    name: str
    bom: bytes = b""
    unit: int = 1
    guessed: bool = False
    newline: bytes = field(init=False)
    """The bytes of a line feed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "newline", "\n".encode(self.codec))


UTF_8 = Encoding("utf-8", "utf-8")


class NotText(Exception):
    """`kind` says what it is instead; `hint` how to get at it all the same."""

    def __init__(self, kind: str, hint: str | None = None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.hint = hint


def detect(head: bytes, *, whole: bool) -> Encoding:
    """The encoding of a text that begins with `head`, or is `head` if `whole`.

    Raises:
        NotText: binary, or text that no encoding can be named for with confidence.
    """
    for bom, codec, name, unit in _BOMS:
        if head.startswith(bom) and _decodes(head[len(bom) :], codec, whole=whole):
            return Encoding(codec, name, bom, unit)
    if b"\0" not in head and _decodes(head, "utf-8", whole=whole):
        return UTF_8
    if kind := name_of(head):
        raise NotText(f"binary file ({kind})")
    if b"\0" in head:
        raise _with_nuls(head)
    return _legacy(head)


def detect_whole(data: bytes) -> tuple[Encoding, str | None]:
    """The encoding of a whole text and, if that came out on the way, the text.

    Raises:
        NotText: as `detect`.
    """
    if b"\0" not in data and not data.startswith(codecs.BOM_UTF8):
        try:
            return UTF_8, data.decode()
        except UnicodeDecodeError:
            pass
    return detect(data, whole=True), None


def named(name: str, head: bytes) -> Encoding:
    """The encoding that the agent names, with the file's byte-order mark if it is one of that encoding.

    Raises:
        CallFailed: no text encoding has that name.
    """
    try:
        info = codecs.lookup(name)
        faithful = (
            "\n".encode(info.name).endswith(b"\n") or info.name in _UNITS or info.name.startswith(("utf-16", "utf-32"))
        )
    except (LookupError, UnicodeError, ValueError):
        raise CallFailed("invalid_call", f"no text encoding is named {name[:40]!r}") from None
    if not faithful or info.name.startswith(_NOT_FAITHFUL):
        raise CallFailed("invalid_call", f"{info.name} can't be read and edited byte for byte")
    for bom, codec, told, unit in _BOMS:
        if head.startswith(bom) and (info.name in (codec, codec.removesuffix("-le").removesuffix("-be"), told)):
            return Encoding(codec, told, bom, unit)
    if info.name in ("utf-16", "utf-32", "utf-8-sig"):
        codec = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-8-sig": "utf-8"}[info.name]
        return Encoding(codec, codec, b"", _UNITS.get(codec, 1))
    return Encoding(info.name, info.name, b"", _UNITS.get(info.name, 1))


def refuse(problem: NotText, path: str, size: int) -> CallFailed:
    """The failure to raise for a file that is no text."""
    return CallFailed("not_text", f"{path}: {problem.kind}, {size} bytes", hint=problem.hint)


def _decodes(data: bytes, codec: str, *, whole: bool) -> bool:
    try:
        text = codecs.getincrementaldecoder(codec)("strict").decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return codec == "utf-8" or "\0" not in text


def _with_nuls(head: bytes) -> NotText:
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    if half and even + odd < len(head):
        for codec, many, few in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
            if many > 0.4 * half and few < 0.05 * half:
                return NotText(
                    "binary file, or UTF-16 text without a byte-order mark", f"to read it as such: encoding={codec}"
                )
    return NotText("binary file (data with NUL bytes)")


def _legacy(head: bytes) -> Encoding:
    if _CONTROLS.search(head):
        raise NotText("binary file (data)")
    hint = "say which encoding it is in, with `encoding`; windows-1252 shows the bytes one by one"
    good = sum(not char.isascii() for char in head.decode("utf-8", "ignore"))
    bad = len(head) - len(head.decode("utf-8", "ignore").encode())
    if good > bad:
        at = _first_bad(head)
        raise NotText(f"text that is UTF-8 except in places, the first at byte {at}", hint)
    if _HIGH_RUN.search(head) or _NOT_WINDOWS_1252.search(head):
        raise NotText("text in an encoding that can't be told for certain", hint)
    return Encoding("cp1252", "windows-1252", guessed=True)


def _first_bad(head: bytes) -> int:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return len(head)
