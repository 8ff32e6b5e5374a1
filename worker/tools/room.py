"""Whether a workspace has room for what is about to be written."""

from __future__ import annotations

import os

from worker.disk_usage import Usage
from worker.failures import CallFailed
from worker.workspace import printable

_BLOCK_BYTES = 4096
_SMALL_BYTES = 1024 * 1024
_MOMENT_S = 0.02
_PATIENCE_S = 30.0


def require_room(usage: Usage, allowed_bytes: int, path: str, old: os.stat_result | None, size: int) -> None:
    """Refuses what would make the workspace hold more than it may; what makes it less may always be written.

    Blocking, in a workspace of ordinary size for less than a millisecond. In a large one of which little is known, a
    small file does not wait for the look at all of it.

    Raises:
        CallFailed: no_space; unavailable if it can't be told in time.
    """
    growth = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES - (old.st_blocks * 512 if old else 0)
    if allowed_bytes == 0 or growth <= 0:
        return
    known = usage.bytes
    may_fit = known is None or known + growth <= allowed_bytes
    if usage.is_due or not may_fit:
        waits = not may_fit or growth > _SMALL_BYTES
        held = _held(usage, _PATIENCE_S if waits else _MOMENT_S)
        if held is not None and held + growth > allowed_bytes:
            # The look may have been under way already when something was removed.
            held = _held(usage, _PATIENCE_S)
            waits = True
        if held is None and waits:
            message = f"{printable(path)}: the workspace is so large that its size can't be told in time"
            raise CallFailed("unavailable", message, retryable=True, effect="none")
        if held is not None and held + growth > allowed_bytes:
            message = f"{size} bytes do not fit: the workspace holds {held} of the {allowed_bytes} bytes that it may"
            raise CallFailed(
                "no_space",
                f"{printable(path)}: {message}; nothing was changed",
                hint="remove something, then try again",
                retryable=True,
                effect="none",
            )
    usage.reckon(growth)


def _held(usage: Usage, patience_s: float) -> int | None:
    try:
        return usage.look().result(patience_s)
    except TimeoutError:
        return None
