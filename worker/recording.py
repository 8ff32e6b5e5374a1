"""How a call ended, in the worker's audit log and, with its place there, for the audit stream."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType, structs

from contracts.codec import encode
from contracts.levels import Level
from contracts.replies import Terminal
from worker.audit import FileChange
from worker.claims import Claimed
from worker.hooks.post_tool_response import Classified
from worker.judging import MAX_ABOUT_CHARS, Judgement, clean_paths
from worker.parts import Parts
from worker.tools.context import ToolContext


class _Entry(Struct, kw_only=True):
    """One entry of the audit stream."""

    worker: str
    seq: int
    hash: str
    id: str
    tool: str
    kind: str
    code: str
    policy: str
    rule: str
    level: Level
    taint: Level
    attempt: int
    queued_ms: int
    run_ms: int
    policy_version: str | UnsetType = UNSET
    approver: str | UnsetType = UNSET
    about: str


def record_end(
    reply: Terminal,
    answer: Classified,
    claim: Claimed,
    context: ToolContext | None,
    judgement: Judgement | None,
    parts: Parts,
) -> bytes:
    """Writes the audit log's record, before the reply is published. Returns the audit stream's entry.

    The entry begins with worker, seq and hash: finish.lua keeps the last of each worker.
    """
    kind = str(type(reply).__struct_config__.tag)
    error = answer.error
    code = error.code if error else ""
    changed: Sequence[FileChange] = context.changed if context is not None else ()
    opened: Sequence[str] = context.opened if context is not None and answer.level is not Level.PUBLIC else ()
    if changed or opened:
        paths = clean_paths([*(change.path for change in changed), *opened], judgement, answer.level, parts)
        changed = [structs.replace(change, path=path) for change, path in zip(changed, paths, strict=False)]
        opened = paths[len(changed) :]
    mark = parts.audit.finished(claim.id, kind, code, answer.level, reply.taint, files=changed, opened=opened)
    return encode(
        _Entry(
            worker=parts.audit.worker,
            seq=mark.seq,
            hash=mark.hash,
            id=claim.id,
            tool=reply.tool,
            kind=kind,
            code=code,
            policy=(error.policy if error else None) or "",
            rule=(error.rule if error else None) or "",
            level=answer.level,
            taint=reply.taint,
            attempt=claim.attempt,
            queued_ms=reply.queued_ms,
            run_ms=reply.run_ms,
            policy_version=(judgement.version if judgement else "") or UNSET,
            approver=(judgement.approver if judgement else "") or UNSET,
            about=answer.about[:MAX_ABOUT_CHARS],
        )
    )
