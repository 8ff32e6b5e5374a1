"""One output stream of a command: counted whole, kept at its head and tail, made into text at the end.

Memory stays flat whatever is written: at most `keep_bytes` and one chunk are held.
"""

from __future__ import annotations

import re
from collections import deque

_ESCAPE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|[ -/]+[0-~]"  # character sets
    r"|[0-OQ-WYZ\\`-~]"
    r")"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z")
_MAX_UNFINISHED = 4096


class Capture:
    """Bytes as they come. `total_bytes` counts all; the first and the last half of `keep_bytes` are kept.

    The tail is held as the chunks that it came in, uncopied.
    """

    def __init__(self, keep_bytes: int) -> None:
        self.total_bytes = 0
        self._head_bytes = keep_bytes - keep_bytes // 2
        self._tail_bytes = keep_bytes // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0

    def add(self, chunk: bytes) -> None:
        """The next bytes of the stream."""
        self.total_bytes += len(chunk)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk or not self._tail_bytes:
            return
        self._tail.append(chunk)
        self._in_tail += len(chunk)
        while self._in_tail - len(self._tail[0]) >= self._tail_bytes:
            self._in_tail -= len(self._tail.popleft())

    @property
    def overflows(self) -> bool:
        """Whether something had to be left out."""
        return self.total_bytes > self._head_bytes + self._tail_bytes

    def raw(self) -> bytes:
        """All bytes so far; only while nothing overflows."""
        return bytes(self._head) + b"".join(self._tail)

    def tail(self) -> bytes:
        """The last bytes, as many as are kept."""
        return b"".join(self._tail) if self.overflows else self.raw()

    def text(self, where: str | None) -> tuple[str, int, bool]:
        """The stream as text, how many bytes were left out, and whether the text differs from the bytes kept.

        Cut at characters; invalid UTF-8 becomes U+FFFD; escape codes and overwritten progress are folded away.
        `where` names the file that has the rest.
        """
        if not self.overflows:
            raw = self.raw()
            text = fold(raw.decode("utf-8", "replace"))
            return text, 0, text.encode() != raw
        tail = b"".join(self._tail)[-self._tail_bytes :] if self._tail_bytes else b""
        head = bytes(self._head[: _end_of_characters(self._head)])
        tail = tail[_start_of_characters(tail) :]
        omitted = self.total_bytes - len(head) - len(tail)
        rest = f"; the output is in {where}" if where else ""
        marker = f"\n[... {omitted} bytes omitted{rest} ...]\n"
        return fold(head.decode("utf-8", "replace")) + marker + fold(tail.decode("utf-8", "replace")), omitted, True


def _end_of_characters(data: bytes | bytearray) -> int:
    # Where the last whole character ends; of bytes that are no UTF-8, all.
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if length > back else len(data)
    return len(data)


def _start_of_characters(data: bytes) -> int:
    # Where the first whole character begins; of bytes that are no UTF-8, at once.
    start = 0
    while start < min(4, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return start if start < 4 else 0


def fold(text: str) -> str:
    """The text as a terminal would have left it: without escape codes, lines as last overwritten.

    A carriage return before a newline stays, so that files with such line ends are shown as they are.
    """
    if "\x1b" in text:
        text, _ = strip_escapes(text, final=True)
    if "\x08" in text:
        text = _erase(text)
    if "\r" in text:
        text = "\n".join(_overwrite(line) if "\r" in line else line for line in text.split("\n"))
    return text


def _erase(text: str) -> str:
    kept: list[str] = []
    for character in text:
        if character != "\x08":
            kept.append(character)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)


def _overwrite(line: str) -> str:
    ending = "\r" if line.endswith("\r") else ""
    shown: list[str] = []
    length = 0
    for piece in reversed(line.rstrip("\r").split("\r")):
        if len(piece) > length:
            shown.append(piece[length:])
            length = len(piece)
    return "".join(shown) + ending


def strip_escapes(text: str, *, final: bool) -> tuple[str, str]:
    """The text without escape codes, and what at its end may still become one (nothing when this is the end)."""
    if "\x1b" not in text:
        return text, ""
    text = _ESCAPE.sub("", text)
    unfinished = _UNFINISHED.search(text)
    if unfinished is None:
        return text, ""
    held = text[unfinished.start() :]
    if not final and len(held) >= _MAX_UNFINISHED:
        return text, ""
    return text[: unfinished.start()], "" if final else held
