"""How a call ended, in the worker's audit log and, with its place there, for the audit stream."""

from __future__ import annotations

from contracts.codec import encode
from contracts.levels import Level
from contracts.replies import Terminal
from worker.audit import FileChange
from worker.broker import Claimed
from worker.hooks.post_tool_response import Classified
from worker.judging import MAX_ABOUT_CHARS, Judgement, noted
from worker.parts import Parts
from worker.tools.context import ToolContext


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
    changed = [_clean(change, parts) for change in context.changed] if context and context.changed else ()
    opened = context.opened if context is not None and answer.level is not Level.PUBLIC else ()
    mark = parts.audit.finished(
        claim.id, kind, code, answer.level, reply.taint, files=changed, opened=parts.classify.clean(opened)
    )
    return encode(
        {
            "worker": parts.audit.worker,
            "seq": mark.seq,
            "hash": mark.hash,
            "id": claim.id,
            "tool": reply.tool,
            "kind": kind,
            "code": code,
            "policy": (error.policy if error else None) or "",
            "rule": (error.rule if error else None) or "",
            "level": answer.level.value,
            "taint": reply.taint.value,
            "attempt": claim.attempt,
            "queued_ms": reply.queued_ms,
            "run_ms": reply.run_ms,
            **(noted(judgement) if judgement is not None else {}),
            "about": answer.about[:MAX_ABOUT_CHARS],
        }
    )


def _clean(change: FileChange, parts: Parts) -> FileChange:
    (path,) = parts.classify.clean([change.path])
    return FileChange(path=path, before=change.before, after=change.after)
