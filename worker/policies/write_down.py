"""No write-down: a session that has seen more than a workspace may hold must not act on that workspace."""

from __future__ import annotations

from contracts.tools import TOOLS
from worker.decisions import Decision, Judged, deny

POLICY = "write_down"


def judge(judged: Judged) -> Decision | None:
    """Silent unless the workspace is pinned at a level below the session's taint."""
    session, pin = judged.session, judged.session.workspace_pin
    tool = TOOLS[judged.call.tool]
    if pin is None or tool.allowed_while_planning or session.taint <= pin:
        return None
    reason = f"the session has seen {session.taint.value} data and this workspace is pinned at {pin.value}"
    return deny(POLICY, "pinned_workspace", reason)
