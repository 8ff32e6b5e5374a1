"""Lines of an open file by their byte offset, clipped, with those around them."""

from __future__ import annotations

import codecs
import os

from worker.workspace import Opened

MAX_LINE_CHARS = 500
_BEFORE_MATCH_CHARS = 150
_WINDOW_BYTES = 4 * MAX_LINE_CHARS
_AROUND_BYTES = 64 * 1024
_MAX_LINE_SCAN_BYTES = 4 * 1024 * 1024
_MAX_DECODED_BYTES = 64 * 1024 * 1024
_WIDE_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class LineSource:
    """Reads by the offsets of the search engine, which counts UTF-16 in its UTF-8 form and leaves out the mark."""

    def __init__(self, opened: Opened) -> None:
        self._fd = opened.fd
        self._text: bytes | None = None
        head = os.pread(self._fd, 3, 0)
        self._skip = 3 if head == codecs.BOM_UTF8 else 0
        if head.startswith(_WIDE_BOMS):
            whole = os.pread(self._fd, _MAX_DECODED_BYTES, 0)
            self._text = whole.decode("utf-16", "replace").encode()

    def line(self, offset: int, column: int) -> tuple[str, int | None, bool] | None:
        """The text around the match, its column in characters, and whether the line was clipped; None if no line
        begins at the offset, as the file was changed."""
        if offset and self._read(offset - 1, 1) != b"\n":
            return None
        begin = max(offset, offset + column - 1 - _BEFORE_MATCH_CHARS)
        raw = self._read(begin, _WINDOW_BYTES)
        line, newline, _ = raw.partition(b"\n")
        text = _decode(line.removesuffix(b"\r") if newline else line, cut_start=begin > offset)
        clipped = begin > offset or len(text) > MAX_LINE_CHARS or (not newline and len(raw) == _WINDOW_BYTES)
        chars = None
        if column - 1 <= _MAX_LINE_SCAN_BYTES:
            chars = len(_decode(self._read(offset, column - 1))) + 1
        shown = text[:MAX_LINE_CHARS]
        if clipped:
            more = len(text) > MAX_LINE_CHARS or (not newline and len(raw) == _WINDOW_BYTES)
            shown = f"{'...' if begin > offset else ''}{shown}{'...' if more else ''}"
        return shown, chars, clipped

    def before(self, offset: int, count: int) -> list[str]:
        """Up to `count` lines above the one at the offset."""
        start = max(offset - _AROUND_BYTES, 0)
        lines = self._read(start, offset - start).split(b"\n")[:-1]
        if start:
            lines = lines[1:]
        return [_shown(line) for line in lines[-count:]] if count else []

    def after(self, offset: int, count: int) -> list[str]:
        """Up to `count` lines below the one at the offset."""
        end = self._end_of_line(offset) if count else -1
        if end < 0:
            return []
        raw = self._read(end, _AROUND_BYTES)
        lines = raw.split(b"\n")
        if not lines[-1] or len(raw) == _AROUND_BYTES:
            lines.pop()
        return [_shown(line) for line in lines[:count]]

    def _end_of_line(self, offset: int) -> int:
        at = offset
        while at - offset < _MAX_LINE_SCAN_BYTES and (piece := self._read(at, _AROUND_BYTES)):
            found = piece.find(b"\n")
            if found >= 0:
                return at + found + 1
            at += len(piece)
        return -1

    def _read(self, start: int, count: int) -> bytes:
        if self._text is not None:
            return self._text[start : start + count]
        return os.pread(self._fd, count, start + self._skip)


def _shown(line: bytes) -> str:
    text = _decode(line.removesuffix(b"\r"))
    return text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS] + "..."


def _decode(raw: bytes, *, cut_start: bool = False) -> str:
    """As read_file would show it: UTF-8, else Windows-1252, whose gaps are shown as in ISO 8859-1."""
    data = raw
    if cut_start:
        while data and data[0] & 0xC0 == 0x80 and len(raw) - len(data) < 3:
            data = data[1:]
    try:
        # A window may end within a character; the incomplete one is left out.
        return codecs.getincrementaldecoder("utf-8")("strict").decode(data)
    except UnicodeDecodeError:
        try:
            return raw.decode("cp1252")
        except UnicodeDecodeError:
            return raw.decode("iso-8859-1")
