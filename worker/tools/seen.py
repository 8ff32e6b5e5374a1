"""What each session last saw of each file, so that a write can say that the file changed since.

Kept in this process only: a courtesy to agents that pass no `if_match`, not a guard. Another worker does not know.
"""

from __future__ import annotations

from collections import OrderedDict

_MAX = 20_000
_digests: OrderedDict[tuple[str, str, bytes], str] = OrderedDict()


def saw(root: str, session: str, path: bytes, sha256: str | None) -> None:
    """The session was shown the file, or wrote it. Call it on the event loop."""
    if sha256 is None:
        return
    key = (root, session, path)
    _digests[key] = sha256
    _digests.move_to_end(key)
    if len(_digests) > _MAX:
        _digests.popitem(last=False)


def last_seen(root: str, session: str, path: bytes) -> str | None:
    """The sha256 that the session last saw here; None if it saw nothing."""
    return _digests.get((root, session, path))
