"""Where sessions must be opened by the orchestrator, a session that nobody opened may do nothing."""

from __future__ import annotations

from worker.decisions import Decision, Judged, deny

POLICY = "session_prepared"


def judge(judged: Judged) -> Decision | None:
    """Silent about prepared sessions."""
    if judged.session.prepared:
        return None
    return deny(POLICY, "unknown_session", "this session has not been opened by the orchestrator")
