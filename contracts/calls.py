"""A tool call as it travels, its identity, and the session it belongs to."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from contracts.levels import Level
from contracts.plans import Approval, Plan

VERSION = 1
MAX_DEADLINE_MS = 7 * 24 * 3600 * 1000

UnixMs = Annotated[int, Meta(ge=0, le=2**53 - 1)]

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_NAME_PATTERN = re.compile(_NAME)
_JOB_ID_PATTERN = re.compile(rf"\{{({_NAME})\}}:({_NAME}):({_NAME})")


class ToolCall(Struct, frozen=True, kw_only=True):
    """One call, decoded. `args` is the tool's arguments struct (`contracts.tools`)."""

    session: str
    call: str
    tool: str
    args: Any
    deadline_ms: int | None = None
    priority: str = "interactive"
    trace: str | None = None


class CallBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The one positional argument of the arq job. `deadline_ms` is Unix time in milliseconds by Redis' clock."""

    v: int
    args: Raw
    deadline_ms: UnixMs | None = None
    priority: Literal["interactive", "batch"] = "interactive"
    trace: Annotated[str, Meta(max_length=256)] | None = None


class Job(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """arq's job layout (arq.jobs.serialize_job): try, function, arguments, keyword arguments, enqueue time in ms."""

    t: int | None
    f: str
    a: list[CallBody]
    k: dict[str, Any]
    et: UnixMs


class Session(Struct, frozen=True, kw_only=True):
    """What a worker must know of a session to judge a call, as the claim found it."""

    name: str
    prepared: bool = False
    workspace: str
    mode: str = "normal"
    taint: Level = Level.PUBLIC
    workspace_level: Level = Level.PUBLIC
    workspace_pin: Level | None = None
    plan: Plan | None = None
    approval: Approval | None = None
    approval_problem: str = ""
    """Why the stored approval does not count: `replayed`, `unsigned` or `bad_signature`. `approval` is None then."""


class JobId(Struct, frozen=True):
    """The parts of a job id `{queue}:session:call`."""

    queue: str
    session: str
    call: str

    def __str__(self) -> str:
        return f"{{{self.queue}}}:{self.session}:{self.call}"


def check_name(what: str, name: str) -> str:
    """The name, if it may be part of a job id.

    Raises:
        ValueError: it is not 1 to 64 letters, digits, dots, underscores or hyphens, beginning with a letter or digit.
    """
    if not _NAME_PATTERN.fullmatch(name):
        raise ValueError(
            f"{what} {name[:80]!r} must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
        )
    return name


def read_job_id(job_id: str) -> JobId:
    """The parts of a job id.

    Raises:
        ValueError: it does not have the shape `{queue}:session:call`.
    """
    found = _JOB_ID_PATTERN.fullmatch(job_id)
    if not found:
        raise ValueError(f"not a job id: {job_id[:200]!r}")
    return JobId(*found.groups())
