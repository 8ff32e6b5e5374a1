"""What runs now: from the leases, the longest running first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contracts import keys
from contracts.calls import JobId
from contracts.levels import Level, read_level
from worker.dashboard.call_records import Payload, Running, RunningCall
from worker.dashboard.reads import Reads, about, job_of, number, peek, peek_commands, text
from worker.dashboard.redaction import Shown
from worker.dashboard.replies import read_reply

LOOKED_AT = 1000
SHOWN = 100
WITH_OUTPUT = 25


class RunningCalls:
    """`claim_life_s` is the workers' setting of that name: what is left of it on a call's counter of attempts tells
    when the call was claimed, which nothing else in Redis does."""

    def __init__(self, reads: Reads, shown: Shown, claim_life_s: float) -> None:
        self._reads, self._shown = reads, shown
        self._claim_life_ms = int(claim_life_s * 1000)

    async def running(self) -> Running:
        """The calls that have run longest, over all queues."""
        now_ms = await self._reads.now_ms()
        total = 0
        found: list[tuple[int, JobId]] = []
        for queue in self._reads.queues:
            leased, members = await self._reads.many(
                [("ZCARD", keys.leases(queue)), ("ZRANGE", keys.leases(queue), 0, LOOKED_AT - 1)]
            )
            total += leased
            jobs = [job for member in members if (job := job_of(member)) is not None]
            left = await self._reads.many(("PTTL", keys.retry(job.queue, job.session, job.call)) for job in jobs)
            found += [(self.started_ms(ms, now_ms) or now_ms, job) for ms, job in zip(left, jobs, strict=True)]
        found.sort(key=lambda each: each[0])
        return Running(now_ms=now_ms, total=total, calls=await self._rows([job for _, job in found[:SHOWN]], now_ms))

    def started_ms(self, left_ms: Any, now_ms: int) -> int | None:
        """When a call was claimed, out of what is left of its counter's life; None for one that is not claimed."""
        left = number(left_ms)
        if left is None or not 0 < left <= self._claim_life_ms:
            return None
        return now_ms - (self._claim_life_ms - left)

    async def _rows(self, jobs: Sequence[JobId], now_ms: int) -> list[RunningCall]:
        commands: list[tuple[Any, ...]] = []
        for job in jobs:
            q, s, c = job.queue, job.session, job.call
            commands += (
                ("GET", keys.in_progress(q, s, c)),
                ("GET", keys.retry(q, s, c)),
                ("PTTL", keys.retry(q, s, c)),
                ("EXISTS", keys.cancel(q, s, c)),
                ("HGET", keys.session(q, s), "taint"),
                *peek_commands(q, s, c),
            )
        answers = await self._reads.many(commands)
        rows = [self._row(job, answers[at * 7 : at * 7 + 7], now_ms) for at, job in enumerate(jobs)]
        return await self._with_output(rows)

    def _row(self, job: JobId, answers: list[Any], now_ms: int) -> RunningCall:
        owner, attempt, left, cancelling, taint, head, tail = answers
        seen = peek(head, tail)
        return RunningCall(
            queue=job.queue,
            session=job.session,
            call=job.call,
            tool=seen.tool,
            state="running" if owner else "granted",
            worker=text(owner).partition(" ")[2],
            attempt=number(attempt) or 0,
            submitted_ms=seen.submitted_ms,
            started_ms=self.started_ms(left, now_ms) if owner else None,
            cancelling=bool(cancelling),
            about=self._shown.line(about(seen.args), read_level(text(taint))),
            last_output=Payload(),
        )

    async def _with_output(self, rows: list[RunningCall]) -> list[RunningCall]:
        """The last line that each of the first few commands printed. A command is alone in its session's stream."""
        commands = [row for row in rows if row.tool in ("run_command", "exec.run") and row.started_ms][:WITH_OUTPUT]
        answers = await self._reads.many(
            ("XREVRANGE", keys.replies(row.queue, row.session), "+", str(row.started_ms), "COUNT", 1)
            for row in commands
        )
        printed: dict[tuple[str, str], Payload] = {}
        for row, answer in zip(commands, answers, strict=True):
            reply = read_reply(answer[0]) if answer else None
            if reply is not None and reply.kind == "progress" and reply.call == row.call:
                lines = reply.text.rstrip().splitlines() or [""]
                printed[row.session, row.call] = self._shown.line(lines[-1], Level(reply.level))
        return [
            msgspec.structs.replace(row, last_output=printed.get((row.session, row.call), row.last_output))
            for row in rows
        ]
