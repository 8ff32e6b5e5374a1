r"""How paths travel, and where they point before anything is looked up.

On the wire a path is text. Bytes of a name that are not UTF-8 travel as `\xff` (backslash, x, two hex digits), and a
backslash that would read like such an escape travels as `\x5c`, so that every name there is has one spelling and
`from_wire(to_wire(name)) == name`. No other backslash means anything.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass

from worker.workspace.faults import InvalidPath, Outside

MAX_PATH_BYTES = 4095
MAX_NAME_BYTES = 255
MAX_DEPTH = 256

_NOT_PLAIN = re.compile("[\udc80-\udcff]|\\\\(?=x(?:[89a-fA-F][0-9a-fA-F]|5[cC]))")
_ESCAPE = re.compile(r"\\x([89a-fA-F][0-9a-fA-F]|5[cC])")


@dataclass(frozen=True, slots=True)
class Spot:
    """A place beneath the root: its components, without `.` and `..`; `directory` if the path ended in a slash."""

    parts: tuple[bytes, ...]
    directory: bool = False

    @property
    def relative(self) -> bytes:
        """The path from the root, `.` for the root itself."""
        return b"/".join(self.parts) or b"."


def to_wire(name: bytes) -> str:
    """A name or path as text that is valid in JSON and can be given back."""
    text = name.decode("utf-8", "surrogateescape")
    return _NOT_PLAIN.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text) if _NOT_PLAIN.search(text) else text


def from_wire(text: str) -> bytes:
    """The bytes that a path on the wire stands for. Python's surrogate escapes are taken as well.

    Raises:
        InvalidPath: it holds a surrogate that stands for no byte.
    """
    pieces = []
    start = 0
    try:
        if "\\x" not in text:
            return text.encode("utf-8", "surrogateescape")
        for found in _ESCAPE.finditer(text):
            pieces += [text[start : found.start()].encode("utf-8", "surrogateescape"), bytes.fromhex(found[1])]
            start = found.end()
        pieces.append(text[start:].encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise InvalidPath("the path holds half a surrogate pair, which no file name can") from None
    return b"".join(pieces)


def printable(path: str) -> str:
    """A path as the agent wrote it, fit for a message: valid text, and clipped when it is very long."""
    clean = path.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= 300 else f"{clean[:140]}...{clean[-140:]}"


def locate(path: str, roots: tuple[str, ...]) -> Spot | None:
    """Where a path points, by its text alone; None when that is outside of every spelling of the root.

    Relative paths start at the root. `..` takes away the component before it, as the text stands: the one rule that
    policies and openers share, so that what is judged is what is opened.

    Raises:
        InvalidPath: no bytes stand for the path.
    """
    return _spot_of(from_wire(path), roots)


@functools.lru_cache(maxsize=1024)
def _spot_of(raw: bytes, roots: tuple[str, ...]) -> Spot | None:
    directory = raw.endswith((b"/", b"/.", b"/..")) or raw in (b".", b"..")
    if not raw.startswith(b"/") and b".." not in raw:
        return Spot(tuple(_collapse(raw)), directory)
    whole = raw if raw.startswith(b"/") else os.fsencode(roots[0]) + b"/" + raw
    parts = _collapse(whole)
    for root in roots:
        prefix = _collapse(os.fsencode(root))
        if parts[: len(prefix)] == prefix:
            return Spot(tuple(parts[len(prefix) :]), directory)
    return None


@functools.lru_cache(maxsize=1024)
def locate_checked(path: str, roots: tuple[str, ...]) -> Spot:
    """`locate`, for opening.

    Raises:
        InvalidPath: empty, holds a NUL, a name over 255 bytes, a path over 4,095 bytes or 256 components.
        Outside: it does not point beneath the root.
    """
    if not path:
        raise InvalidPath("the path is empty; '.' is the workspace itself")
    raw = from_wire(path)
    if b"\0" in raw:
        raise InvalidPath("the path holds a NUL byte")
    if len(raw) > MAX_PATH_BYTES:
        raise InvalidPath(f"the path is {len(raw)} bytes long, {MAX_PATH_BYTES} are possible")
    spot = _spot_of(raw, roots)
    if spot is None:
        raise Outside
    if len(spot.parts) > MAX_DEPTH:
        raise InvalidPath(f"the path is {len(spot.parts)} names deep, {MAX_DEPTH} are allowed")
    longest = max(map(len, spot.parts), default=0)
    if longest > MAX_NAME_BYTES:
        raise InvalidPath(f"a name in the path is {longest} bytes long, {MAX_NAME_BYTES} are possible")
    return spot


def _collapse(path: bytes) -> list[bytes]:
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            if parts:
                parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return parts
