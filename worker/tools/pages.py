"""The part of a text that one answer carries: cut at line ends, or at characters where a line is too long."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from worker.tools.encodings import Encoding, NotText
from worker.tools.lines import count_aligned, end_of_line, last_line_end

MAX_PAGE_BYTES = 1024 * 1024
SLACK_BYTES = 4
"""Read on both sides of a window, so that no character is cut."""


@dataclass(frozen=True, slots=True)
class Page:
    """The text and where to go on: the next line, or only the next byte where a line was cut."""

    text: str
    next_offset: int | None = None
    next_byte_offset: int | None = None
    truncated: bool = False
    note: str | None = None


def page_of_lines(window: bytes, start: int, first_line: int, limit: int | None, encoding: Encoding, size: int) -> Page:
    """Whole lines from the window, which begins with line `first_line` at byte `start` of `size`.

    Raises:
        NotText: the bytes are not of the encoding.
    """
    if limit is not None and (end := end_of_line(window, limit, encoding)) > 0 and end <= MAX_PAGE_BYTES:
        text = _decode(window[:end], encoding, start)
        if start + end >= size:
            return Page(text)
        return Page(text, first_line + limit, start + end)
    if len(window) <= MAX_PAGE_BYTES and start + len(window) >= size:
        return Page(_decode(window, encoding, start))
    end = last_line_end(window[:MAX_PAGE_BYTES], encoding)
    if end:
        text = _decode(window[:end], encoding, start)
        lines = count_aligned(window[:end], encoding.newline, encoding.unit)
        return Page(text, first_line + lines, start + end, truncated=True)
    text, used = _decode_part(window[:MAX_PAGE_BYTES], encoding, start)
    note = f"line {first_line} is cut after {used} bytes; go on with byte_offset={start + used}"
    return Page(text, None, start + used, truncated=True, note=note)


def page_of_bytes(
    window: bytes, start: int, wanted: int | None, limit: int | None, encoding: Encoding, size: int
) -> Page:
    """Characters from the window, which begins at byte `start`, a character's first; `wanted` was asked for.

    Raises:
        NotText: the bytes are not of the encoding.
    """
    asked = limit or MAX_PAGE_BYTES
    allowed = min(asked, MAX_PAGE_BYTES)
    if start + min(allowed, len(window)) >= size:
        text, used = _decode(window[:allowed], encoding, start), min(allowed, len(window))
    else:
        text, used = _decode_part(window[:allowed], encoding, start)
        while not text and allowed < len(window):
            allowed += 1
            text, used = _decode_part(window[:allowed], encoding, start)
    end = start + used
    note = f"begins at byte {start}, where the character does" if wanted is not None and start != wanted else None
    return Page(text, None, end if end < size else None, truncated=end < size and asked > MAX_PAGE_BYTES, note=note)


def character_start(before: bytes, wanted: int, encoding: Encoding) -> int:
    """The position, at most three bytes before `wanted`, at which the character begins. `before` ends with the byte
    at `wanted`."""
    if wanted < len(encoding.bom):
        return len(encoding.bom)
    if encoding.unit > 1:
        return wanted - (wanted - len(encoding.bom)) % encoding.unit
    if encoding.codec == "utf-8":
        for back in range(min(len(before), 4)):
            if before[-1 - back] & 0xC0 != 0x80:
                return wanted - back
    return wanted


def _decode(data: bytes, encoding: Encoding, start: int) -> str:
    try:
        text = data.decode(encoding.codec)
    except UnicodeDecodeError as error:
        raise _bad(encoding, start + error.start) from None
    return _without_nul(text, encoding)


def _decode_part(data: bytes, encoding: Encoding, start: int) -> tuple[str, int]:
    decoder = codecs.getincrementaldecoder(encoding.codec)("strict")
    try:
        text = decoder.decode(data)
    except UnicodeDecodeError as error:
        raise _bad(encoding, start + error.start) from None
    return _without_nul(text, encoding), len(data) - len(decoder.getstate()[0])


def _without_nul(text: str, encoding: Encoding) -> str:
    if "\0" in text:
        raise NotText("binary file (data with NUL bytes)")
    return text


def _bad(encoding: Encoding, at: int) -> NotText:
    return NotText(f"not {encoding.name} text at byte {at}", "to read it in another encoding, name it in `encoding`")
