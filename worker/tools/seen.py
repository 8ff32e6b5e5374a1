"""What each session last saw of each file, so that a write can say that the file changed since.

Kept in this process only: a courtesy to agents that pass no `if_match`, not a guard. Another worker does not know.
"""

from __future__ import annotations

import os
from collections import OrderedDict

from worker.workspace import Opened

_MAX = 20_000
_Mark = tuple[int, int, int, int]
_seen: OrderedDict[tuple[str, str, bytes], tuple[str, _Mark]] = OrderedDict()


def saw(root: str, session: str, opened: Opened, sha256: str | None) -> None:
    """The session was shown the file, or wrote it. Call it on the event loop."""
    if sha256 is None:
        return
    key = (root, session, opened.path)
    _seen[key] = (sha256, mark_of(opened.stat))
    _seen.move_to_end(key)
    if len(_seen) > _MAX:
        _seen.popitem(last=False)


def last_seen(root: str, session: str, path: bytes, now: os.stat_result | None) -> str | None:
    """The sha256 that the session last saw here; None if it saw nothing, or if the file has not been touched since."""
    seen = _seen.get((root, session, path))
    return seen[0] if seen and now and seen[1] != mark_of(now) else None


def mark_of(found: os.stat_result) -> _Mark:
    """What changes whenever a file's content does."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
