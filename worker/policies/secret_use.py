"""A command gets only the secrets that the operator lets its tool use."""

from __future__ import annotations

from worker.decisions import Decision, Judged, deny
from worker.secrets.placeholders import NotGiven, SecretStore

POLICY = "secret_use"
_NONE = SecretStore()


def judge(judged: Judged, *, store: SecretStore = _NONE) -> Decision | None:
    """Silent about what names no secret, or only such as its tool may use."""
    command = getattr(judged.call.args, "command", None)
    if command is None:
        return None
    try:
        store.check(judged.call.tool, command)
    except NotGiven as error:
        return deny(POLICY, "not_given", str(error))
    return None
