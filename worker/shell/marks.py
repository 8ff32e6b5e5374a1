"""Stand-ins inside expanded words for what only the run would tell. Private-use characters, one meaning each."""

from __future__ import annotations

import fnmatch
import functools
import re

UNKNOWN = "\ue000"
"""Some text, taken as not empty."""
UNSET = "\ue001"
"""The value of a variable nobody set: most likely empty."""
DOWNLOAD = "\ue002"
"""What came over the network."""
DECODED = "\ue003"
"""What a decoder, decompressor or random source gave."""
SELF = "\ue004"
"""`$0`."""
STAR = "\ue005"
"""An unquoted `*`, or any glob that may match several characters."""
ANY = "\ue006"
"""An unquoted `?`."""
BRACKET = "\ue007"
"""An unquoted `[`."""
LISTED = "\ue008"
"""A name found by listing or searching."""

FILE = "\ue009"
"""The content of a file that is there already."""

MARKS = "".join((UNKNOWN, UNSET, DOWNLOAD, DECODED, SELF, STAR, ANY, BRACKET, LISTED, FILE))
VALUES = "".join((UNKNOWN, UNSET, DOWNLOAD, DECODED, SELF, LISTED, FILE))
FOREIGN = DOWNLOAD + DECODED

_GLOBS = str.maketrans({"*": STAR, "?": ANY, "[": BRACKET})
_PLAIN = str.maketrans(
    {
        UNKNOWN: "…",
        UNSET: "$…",
        DOWNLOAD: "<download>",
        DECODED: "<decoded>",
        SELF: "$0",
        STAR: "*",
        ANY: "?",
        BRACKET: "[",
        LISTED: "…",
        FILE: "…",
    }
)
_UNGLOB = str.maketrans({STAR: "*", ANY: "?", BRACKET: "["})
_VALUE = re.compile(f"[{VALUES}]")
_GLOB = re.compile(f"[{STAR}{ANY}{BRACKET}]")
_ANY_MARK = re.compile(f"[{MARKS}]")


def as_glob(text: str) -> str:
    """Text that the shell would match against file names."""
    return text.translate(_GLOBS)


def plain(text: str) -> str:
    """The text for human eyes."""
    return text.translate(_PLAIN)


def literal_globs(text: str) -> str:
    """Glob marks back to their characters; values stay marked."""
    return text.translate(_UNGLOB)


def has_value_mark(text: str) -> bool:
    """Whether part of the text is known at run time only."""
    return _VALUE.search(text) is not None


def has_glob(text: str) -> bool:
    """Whether the shell would match the text against file names."""
    return _GLOB.search(text) is not None


def is_known(text: str) -> bool:
    """Whether the text is all there is: no value, no glob."""
    return _ANY_MARK.search(text) is None


def only_marks(text: str) -> bool:
    """Whether nothing of the text is known (and there is something)."""
    return bool(text) and not text.strip(VALUES + " \t\r\n")


@functools.lru_cache(maxsize=512)
def glob_pattern(text: str) -> re.Pattern[str]:
    """A word with marks as a regular expression over whole names; an unknown value matches anything."""
    shape = "".join("*" if c in VALUES else c if c in MARKS else _escaped(c) for c in text)
    return re.compile(fnmatch.translate(re.sub(r"\*+", "*", literal_globs(shape))))


def _escaped(char: str) -> str:
    return f"[{char}]" if char in "*?[" else char
