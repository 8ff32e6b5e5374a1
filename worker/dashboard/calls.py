"""One call: all that Redis still knows of it, from submit to reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from contracts import keys
from contracts.connection import clock_ms
from contracts.levels import Level, read_level
from worker.dashboard.action_log import read_actions
from worker.dashboard.audit_tail import AuditTail
from worker.dashboard.call_records import Call, CallState, Decision, OutputPiece, Payload, Step
from worker.dashboard.reads import (
    Entry,
    Peek,
    Reads,
    attempts,
    number,
    peek,
    peek_commands,
    read_claim,
    stream_ms,
    text,
)
from worker.dashboard.redaction import Shown
from worker.dashboard.replies import Reply, decode, read_reply
from worker.dashboard.search import row_of

PIECES = 64
"""Progress entries shown of one call, the latest."""


class _Found(Struct, kw_only=True):
    """What the reads of one call gave."""

    now_ms: int
    queue: str
    session: str
    call: str
    peek: Peek
    owner: str
    attempt: int
    started_ms: int | None
    cancelling: bool
    held: str
    due_ms: int | None
    granted: bool
    taint: Level
    workspace: str
    has_payload: bool
    reply: Reply | None = None
    entries: list[Entry] = []

    @property
    def queued_ms(self) -> int | None:
        """How long it waited for its claim, or waits so far."""
        submitted_ms = self.peek.submitted_ms or self.due_ms
        return max(0, (self.started_ms or self.now_ms) - submitted_ms) if submitted_ms else None

    @property
    def run_ms(self) -> int | None:
        """How long it has run so far."""
        return self.now_ms - self.started_ms if self.started_ms is not None else None

    @property
    def state(self) -> CallState:
        """Where the call is. What is written last counts first."""
        if self.reply is not None:
            return _terminal(self.reply.kind)
        if self.entries:
            return _terminal(self.entries[0].kind)
        if self.owner:
            return "running"
        if self.granted:
            return "granted"
        if self.held[:1] in ("R", "E"):
            return "waiting"
        return "queued" if self.has_payload else "unknown"


class Calls:
    """Reads single calls."""

    def __init__(self, reads: Reads, tails: Mapping[str, AuditTail], shown: Shown) -> None:
        self._reads, self._tails, self._shown = reads, tails, shown

    async def call(self, queue: str, session: str, call: str, entry: str = "") -> Call:
        """One call. `entry` is its id in the audit stream, where the link has it.

        Raises:
            LookupError: nothing is known of it.
        """
        found = await self._find(queue, session, call, entry)
        if found.state == "unknown":
            raise LookupError(f"nothing is known of call {call} of session {session}: never submitted, or forgotten")
        pieces = await self._pieces(found)
        actions = await read_actions(self._reads, queue, session, call)
        reply, last = found.reply, found.entries[0] if found.entries else None
        level = read_level(reply.level if reply else last.level if last else "PUBLIC")
        taint = max(
            found.taint, read_level(reply.taint if reply else last.taint if last else ""), key=lambda each: each.rank
        )
        return Call(
            now_ms=found.now_ms,
            queue=queue,
            session=session,
            call=call,
            tool=reply.tool if reply else last.tool if last else found.peek.tool,
            state=found.state,
            args=self._args(found, taint, last),
            output=self._shown(reply.output, level)
            if reply
            else Payload(note="not ended yet" if last is None else "the reply is no longer in Redis"),
            pieces=pieces,
            error=self._shown(reply.error, level) if reply and reply.error else Payload(),
            decision=_decision(found, self._shown, level),
            timeline=_timeline(found),
            attempt=reply.attempt if reply else last.attempt if last else found.attempt,
            worker=last.worker if last else found.owner,
            sandbox=reply.sandbox if reply else "",
            level=level.value,
            taint=taint.value,
            workspace=found.workspace,
            queued_ms=reply.queued_ms if reply else last.queued_ms if last else found.queued_ms,
            run_ms=reply.run_ms if reply else last.run_ms if last else found.run_ms,
            cancelling=found.cancelling,
            deadline_ms=found.peek.deadline_ms,
            priority=found.peek.priority,
            trace=found.peek.trace,
            audit=[row_of(each, queue, self._shown) for each in found.entries],
            actions=actions,
        )

    async def _find(self, q: str, s: str, c: str, entry: str) -> _Found:
        now_ms = await self._reads.now_ms()
        job = keys.job_id(q, s, c)
        answers = await self._reads.many(
            [
                ("TIME",),
                ("GET", keys.in_progress(q, s, c)),
                ("EXISTS", keys.cancel(q, s, c)),
                ("HGET", keys.running(q, s), c),
                ("ZSCORE", keys.queue(q), job),
                ("ZSCORE", keys.batch(q), job),
                ("ZSCORE", keys.leases(q), job),
                ("HMGET", keys.session(q, s), "taint", "workspace"),
                ("EXISTS", keys.job(q, s, c)),
                *peek_commands(q, s, c),
                # Last: whoever removed what stands above has stored the outcome in the same step.
                ("GET", keys.done(q, s, c)),
            ]
        )
        clock, claimed, cancelling, held, due, late, leased, record, has_payload, head, tail, done = answers
        now_ms = clock_ms(clock)
        claim = read_claim(claimed)
        found = _Found(
            now_ms=now_ms,
            queue=q,
            session=s,
            call=c,
            peek=peek(head, tail),
            owner=claim.worker,
            attempt=attempts(held),
            started_ms=claim.started_ms,
            cancelling=bool(cancelling),
            held=text(held),
            due_ms=number(due if due is not None else late),
            granted=leased is not None,
            taint=read_level(text(record[0])),
            workspace=text(record[1], s),
            has_payload=bool(has_payload),
        )
        ended = await self._add_reply(found, done) if done else ""
        if ended or entry:
            found.entries = await self._tails[q].at(ended or entry, s, c)
        return found

    async def _add_reply(self, found: _Found, done: bytes) -> str:
        """Takes the terminal reply from the stored outcome or the stream. The stream's id of it."""
        _, _, rest = done.partition(b" ")
        entry_id, _, stored = rest.partition(b" ")
        stream_id = text(entry_id)
        if stored:
            found.reply = decode(stored, stream_id)
        elif stream_ms(stream_id):
            answer = await self._reads.redis.xrange(keys.replies(found.queue, found.session), stream_id, stream_id)
            found.reply = read_reply(answer[0]) if answer else None
        return stream_id

    async def _pieces(self, found: _Found) -> list[OutputPiece]:
        """What a command printed while it ran: it is alone in its session then, so nothing else is read with it."""
        tool = found.reply.tool if found.reply else found.peek.tool
        start_ms = found.reply.at_ms - found.reply.run_ms - 1000 if found.reply else found.started_ms
        if tool not in ("run_command", "exec.run") or start_ms is None:
            return []
        # Until just before the terminal reply, which may be large and is at hand already.
        end = f"({found.reply.stream_id}" if found.reply else "+"
        answer = await self._reads.redis.xrevrange(
            keys.replies(found.queue, found.session), end, str(max(0, start_ms)), count=PIECES
        )
        replies = [reply for item in reversed(answer) if (reply := read_reply(item)) is not None]
        return [
            OutputPiece(
                at_ms=reply.at_ms,
                stream=reply.stream,
                text=self._shown(reply.text, read_level(reply.level)),
                dropped_bytes=reply.dropped_bytes,
            )
            for reply in replies
            if reply.kind == "progress" and reply.call == found.call
        ]

    def _args(self, found: _Found, taint: Level, last: Entry | None) -> Payload:
        """The arguments while the payload stands; afterwards what the worker noted of them."""
        if found.peek.args is not None:
            return self._shown(found.peek.args, taint)
        if found.peek.head:
            return self._shown(
                found.peek.head, taint, note="the beginning of a payload that is long, or no call of ours"
            )
        if last is not None and last.about:
            return self._shown(last.about, taint, note="what the worker noted: the payload is removed when a call ends")
        return Payload(note="the payload is removed when a call ends")


def _terminal(kind: str) -> CallState:
    return kind if kind in ("completed", "denied", "failed") else "unknown"  # type: ignore[return-value]


def _decision(found: _Found, shown: Shown, level: Level) -> Decision | None:
    last = found.entries[0] if found.entries else None
    error = (found.reply.error if found.reply else None) or {}
    if found.state == "denied":
        code = error.get("code") or (last.code if last else "")
        verdict: Literal["ask", "deny"] = "ask" if code == "approval_required" else "deny"
        reason = shown(str(error.get("message", "")), level).value
        policy, rule = (str(error.get(name) or (getattr(last, name) if last else "")) for name in ("policy", "rule"))
        return Decision(verdict=verdict, policy=policy, rule=rule, reason=reason or "")
    if found.state == "completed":
        return Decision(verdict="allow", reason="no policy objected")
    return None


def _timeline(found: _Found) -> list[Step]:
    """From submit to reply, as far as it has come."""
    reply, last = found.reply, found.entries[0] if found.entries else None
    if reply is not None or last is not None:
        ended_ms = reply.at_ms if reply is not None else last.at_ms if last is not None else 0
        queued_ms, run_ms = (
            (reply.queued_ms, reply.run_ms) if reply else (last.queued_ms, last.run_ms) if last else (0, 0)
        )
        started_ms = ended_ms - run_ms
        worker = last.worker if last else ""
        return [
            Step(name="submitted", at_ms=started_ms - queued_ms),
            Step(name="claimed", at_ms=started_ms, detail=worker),
            Step(name="replied", at_ms=ended_ms, detail=found.state),
        ]
    steps = []
    submitted_ms = found.peek.submitted_ms or found.due_ms
    if submitted_ms:
        steps.append(Step(name="submitted", at_ms=submitted_ms))
    if found.held in ("R", "E"):
        steps.append(Step(name="waiting", at_ms=found.now_ms, detail="for its turn in the session"))
    if found.started_ms is not None:
        steps.append(Step(name="claimed", at_ms=found.started_ms, detail=found.owner))
    return steps
