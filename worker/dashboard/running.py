"""What runs now: from the leases, the longest running first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contracts import keys
from contracts.calls import JobId
from contracts.levels import Level, read_level
from worker.dashboard.call_records import Payload, Running, RunningCall
from worker.dashboard.reads import Reads, about, attempts, job_of, peek, peek_commands, read_claim, text
from worker.dashboard.redaction import Shown
from worker.dashboard.replies import read_reply

LOOKED_AT = 1000
SHOWN = 100
WITH_OUTPUT = 25


class RunningCalls:
    """What is claimed, and since when."""

    def __init__(self, reads: Reads, shown: Shown) -> None:
        self._reads, self._shown = reads, shown

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
            claims = await self._reads.many(("GET", keys.in_progress(job.queue, job.session, job.call)) for job in jobs)
            found += [(read_claim(claim).started_ms or now_ms, job) for claim, job in zip(claims, jobs, strict=True)]
        found.sort(key=lambda each: each[0])
        return Running(now_ms=now_ms, total=total, calls=await self._rows([job for _, job in found[:SHOWN]]))

    async def _rows(self, jobs: Sequence[JobId]) -> list[RunningCall]:
        commands: list[tuple[Any, ...]] = []
        for job in jobs:
            q, s, c = job.queue, job.session, job.call
            commands += (
                ("GET", keys.in_progress(q, s, c)),
                ("HGET", keys.running(q, s), c),
                ("EXISTS", keys.cancel(q, s, c)),
                ("HGET", keys.session(q, s), "taint"),
                *peek_commands(q, s, c),
            )
        answers = await self._reads.many(commands)
        rows = [self._row(job, answers[at * 6 : at * 6 + 6]) for at, job in enumerate(jobs)]
        return await self._with_output(rows)

    def _row(self, job: JobId, answers: list[Any]) -> RunningCall:
        claimed, held, cancelling, taint, head, tail = answers
        claim, seen = read_claim(claimed), peek(head, tail)
        return RunningCall(
            queue=job.queue,
            session=job.session,
            call=job.call,
            tool=seen.tool,
            state="running" if claimed else "granted",
            worker=claim.worker,
            attempt=attempts(held),
            submitted_ms=seen.submitted_ms,
            started_ms=claim.started_ms,
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
