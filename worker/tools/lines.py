"""The one line model: a line ends with LF, which a CR may precede. Nothing else ends a line."""

from __future__ import annotations

from typing import Literal

from worker.tools.encodings import Encoding

Endings = Literal["lf", "crlf", "mixed"]


class Tally:
    """Counts lines and their endings in bytes that come piece by piece."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._unit = encoding.unit
        self._carry = b""
        self.newlines = 0
        self.crlf = 0
        self._last = b""
        self._bytes = 0

    def add(self, piece: bytes) -> None:
        """Takes the next bytes; the mark at the file's beginning may be among them."""
        self._bytes += len(piece)
        if not piece:
            return
        if self._unit == 1:
            self.newlines += piece.count(b"\n")
            if self._last == b"\r" and piece.startswith(b"\n"):
                self.crlf += 1
            if b"\r" in piece:
                self.crlf += piece.count(b"\r\n")
            self._last = piece[-1:]
            return
        data = self._carry + piece
        usable = len(data) - len(data) % self._unit
        self._carry = data[usable:]
        data = self._last + data[:usable]
        feed, pair = self._encoding.newline, "\r\n".encode(self._encoding.codec)
        skip = len(self._last)
        self.newlines += count_aligned(data, feed, self._unit, skip)
        self.crlf += count_aligned(data, pair, self._unit)
        self._last = data[-self._unit :]

    @property
    def lines(self) -> int:
        """Lines so far; text after the last LF is one."""
        return self.newlines + (self._bytes > len(self._encoding.bom) and self._last != self._encoding.newline)

    @property
    def endings(self) -> Endings | None:
        """What ends the lines; None while none has ended."""
        return endings_of(self.newlines, self.crlf)


def endings_of(newlines: int, crlf: int) -> Endings | None:
    """The name of a mixture of so many LF, of which so many follow a CR."""
    if not newlines:
        return None
    return "lf" if not crlf else "crlf" if crlf == newlines else "mixed"


def count_aligned(data: bytes, what: bytes, unit: int, start: int = 0) -> int:
    """How often `what` stands at a character's beginning, from `start` on."""
    if unit == 1:
        return data.count(what, start)
    count = 0
    at = data.find(what, start)
    while at >= 0:
        if at % unit == 0:
            count += 1
            at += unit - 1
        at = data.find(what, at + 1)
    return count


def end_of_line(data: bytes, nth: int, encoding: Encoding) -> int:
    """The position just after the nth LF (from 1); -1 if there are fewer. `data` begins aligned."""
    feed, unit = encoding.newline, encoding.unit
    at = -1
    while nth:
        at = data.find(feed, at + 1)
        if at < 0:
            return -1
        if at % unit == 0:
            nth -= 1
    return at + len(feed)


def last_line_end(data: bytes, encoding: Encoding) -> int:
    """The position just after the last LF; 0 if there is none. `data` begins aligned."""
    feed, unit = encoding.newline, encoding.unit
    at = data.rfind(feed)
    while at >= 0 and at % unit:
        at = data.rfind(feed, 0, at + len(feed) - 1)
    return at + len(feed) if at >= 0 else 0


def split(text: str) -> list[str]:
    """The lines with their endings."""
    lines = text.split("\n")
    whole = [line + "\n" for line in lines[:-1]]
    return [*whole, lines[-1]] if lines[-1] else whole
