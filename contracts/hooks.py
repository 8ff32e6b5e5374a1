"""What a hook of another package gets and gives back.

A package offers a hook by an entry point. In the group `toolreef.pre_tool_call` it is a function
`(CallEvent) -> Deny | Ask | None`, asked before a call runs; in `toolreef.post_tool_response` it is a function
`(AnswerEvent) -> Withhold | Rewrite | None`, asked before an answer leaves. None is: nothing to say.

Hooks run in a process of their own, one event at a time, and must answer in time (TOOLREEF_HOOK_TIMEOUT_S). A hook
that raises, takes too long or ends its process has the call denied, or the answer withheld.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from contracts.levels import Level

PRE_TOOL_CALL = "toolreef.pre_tool_call"
POST_TOOL_RESPONSE = "toolreef.post_tool_response"


class CallEvent(Struct, frozen=True, kw_only=True, tag_field="event", tag="call"):
    """A call that no policy has denied. `args` is as the agent sent it, decoded; `effect` is `read` or `effect`."""

    queue: str
    session: str
    call: str
    tool: str
    args: dict[str, Any]
    effect: str
    mode: str
    taint: Level
    workspace: str
    workspace_level: Level


class AnswerEvent(CallEvent, frozen=True, kw_only=True, tag="answer"):
    """An answer about to leave: secrets are redacted, `level` is what it has been given. One of the two is None."""

    output: dict[str, Any] | None
    error: dict[str, Any] | None
    level: Level


class Deny(Struct, frozen=True, tag_field="said", tag="deny"):
    """The call must not run. The agent reads the reason."""

    reason: str


class Ask(Struct, frozen=True, tag_field="said", tag="ask"):
    """The call needs somebody's yes. The agent reads the reason."""

    reason: str


class Withhold(Struct, frozen=True, tag_field="said", tag="withhold"):
    """The answer must not leave. The agent reads the reason."""

    reason: str


class Rewrite(Struct, frozen=True, tag_field="said", tag="rewrite"):
    """The answer leaves with this output and at least this level. None leaves the output as it is.

    An output of the wrong shape for its tool is withheld. A level below the answer's own changes nothing.
    """

    output: dict[str, Any] | None = None
    level: Level = Level.PUBLIC
