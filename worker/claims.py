"""What claim.lua and finish.lua are told and tell, as structs."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from contracts.calls import JobId, Session, read_job_id
from contracts.levels import read_level
from worker.approvals import Approvals

T = TypeVar("T")


class Claimed(Struct, frozen=True, kw_only=True):
    """One call, claimed: what claim.lua found. `word` says whether it may run (`run`) or what to answer instead."""

    id: str
    job: JobId
    queue: str
    token: int
    attempt: int
    word: str
    tool_seen: str
    payload: bytes
    now_ms: int
    session: Session
    retry_after_ms: int | None = None
    limit: str = ""
    """Whose limit it is over, if `word` is `rate_limited`: the tenant's, the session's or the tool's."""


class Turn(Struct, frozen=True, kw_only=True):
    """The answer of one claim. `due_ms` is how long until the next entry is due, or -1 when there is none."""

    calls: list[Claimed]
    more: bool
    due_ms: int
    now_ms: int
    """The server's clock when it was made."""


class Ending(Struct, frozen=True, kw_only=True):
    """What finish.lua needs of one call that has ended."""

    id: str
    queue: str
    token: int
    reply: bytes
    digest: str
    level: str
    audit: bytes = b""
    plan: str = ""
    ask: bytes = b""


class Consent(Struct, frozen=True, kw_only=True):
    """What became of the wish for somebody's yes: `word` is approved, rejected, none, used or stale."""

    word: str = "none"
    approver: str = ""
    reason: str = ""


def read_turn(queue: str, answer: list[Any], require_sessions: bool, approvals: Approvals) -> Turn:
    """claim.lua's answer: 11 words a call, then how many more there are of its plan, then those."""
    now_ms, more, due_ms = answer[:3]
    calls, at = [], 3
    while at < len(answer):
        end = at + 12 + answer[at + 11]
        calls.append(
            _read_claim(queue, now_ms, answer[at : at + 11], answer[at + 12 : end], require_sessions, approvals)
        )
        at = end
    return Turn(calls=calls, more=bool(more), due_ms=due_ms, now_ms=now_ms)


def _read_claim(
    queue: str, now_ms: int, row: list[Any], planned: list[Any], require_sessions: bool, approvals: Approvals
) -> Claimed:
    job_id, token, attempt, word, tool, payload, place, mode, taint, level, pin = row
    name_of_job = job_id.decode()
    job = read_job_id(name_of_job)
    name = job.session
    prepared = place is not None
    said = word.decode().split(" ")
    found = approvals.plan_found(queue, name, planned)
    session = Session(
        name=name,
        prepared=prepared or not require_sessions,
        workspace=place.decode(errors="replace") if prepared else name,
        mode=read_text(mode) or "normal",
        taint=read_level(read_text(taint)),
        workspace_level=read_level(read_text(level)),
        workspace_pin=read_level(read_text(pin)) if pin else None,
        plan=found.plan,
        approval=found.approval,
        approval_problem=found.problem,
    )
    return Claimed(
        id=name_of_job,
        job=job,
        queue=queue,
        token=token,
        attempt=attempt,
        word=said[0],
        retry_after_ms=int(said[1]) if len(said) > 1 else None,
        limit=said[2] if len(said) > 1 else "",
        tool_seen=tool.decode(),
        payload=payload,
        now_ms=now_ms,
        session=session,
    )


def read_text(value: bytes | None) -> str | None:
    """What stands in Redis as text, whoever wrote it."""
    return None if value is None else value.decode(errors="replace")


def without(all_: list[T], some: list[T]) -> list[T]:
    """What is left, with all that has come meanwhile."""
    gone = {id(each) for each in some}
    return [each for each in all_ if id(each) not in gone]
