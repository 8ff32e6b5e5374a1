"""The first page: each queue now and lately, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contracts import keys
from contracts.connection import clock_ms
from contracts.orchestrator import WorkerView
from worker.dashboard.reads import Reads, number
from worker.dashboard.records import Overview, Problem, QueueStatus, WorkerRow, Workers
from worker.dashboard.series import RECENT_S, WINDOWS, Bucket, History, latency_of, series_of

SILENT_MS = 30_000
"""A worker that has not been heard of for so long counts as gone: its heartbeats come every few seconds."""
STALLED_MS = 10_000
"""Calls that wait longer than this, while nothing ends, are stalled."""
FAILING_SHARE = 0.5
FAILING_LEAST = 10


class Queues:
    """Reads the status of queues. Keeps, a queue and window, the buckets that are over."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._histories: dict[tuple[str, str], History] = {}

    async def overview(self, queue: str, window: str) -> Overview:
        """All queues, and the series of `queue`.

        Raises:
            KeyError: there is no such queue or window.
        """
        if queue not in self._reads.queues:
            raise KeyError(f"queue {queue!r} is not watched here")
        bucket_s, _ = WINDOWS[window]
        statuses = [await self.status(each) for each in self._reads.queues]
        buckets, whole_since_ms = await self._history(queue, window).buckets(statuses[0].now_ms)
        return Overview(
            now_ms=statuses[0].now_ms,
            queues=statuses,
            series_of=queue,
            series=series_of(buckets, whole_since_ms, bucket_s),
        )

    async def status(self, queue: str) -> QueueStatus:
        """One queue."""
        q = queue
        clock, depth, batch, leased, head, late, beats, dead = await self._reads.many(
            [
                ("TIME",),
                ("ZCARD", keys.queue(q)),
                ("ZCARD", keys.batch(q)),
                ("ZCARD", keys.leases(q)),
                ("ZRANGE", keys.queue(q), 0, 0, "WITHSCORES"),
                ("ZRANGE", keys.batch(q), 0, 0, "WITHSCORES"),
                ("HGETALL", keys.workers(q)),
                ("XLEN", keys.dead(q)),
            ]
        )
        now_ms = clock_ms(clock)
        buckets, _ = await self._history(q, "10m").buckets(now_ms)
        recent = [bucket for bucket in buckets if bucket.start_ms > now_ms - RECENT_S * 1000]
        workers = read_workers(beats, now_ms)
        alive = [worker for worker in workers if worker.age_ms < SILENT_MS]
        draining = [worker for worker in alive if worker.heartbeat.get("draining")]
        ended = sum(bucket.ended for bucket in recent)
        shares = {
            kind: sum(bucket.count(kind) for bucket in recent) / ended if ended else None
            for kind in ("failed", "denied")
        }
        status = QueueStatus(
            queue=q,
            depth=depth,
            batch_depth=batch,
            leased=leased,
            oldest_ms=max(0, now_ms - int(float(head[1]))) if head else 0,
            dead=dead,
            workers=workers,
            now_ms=now_ms,
            workers_alive=len(alive),
            workers_draining=len(draining),
            slots=sum(_count(worker, "slots") for worker in alive if worker not in draining),
            busy=sum(_count(worker, "running") for worker in alive),
            window_s=RECENT_S,
            per_s=_per_s(recent, now_ms),
            wait=latency_of(ms for bucket in recent for ms in bucket.waits_ms),
            run=latency_of(ms for bucket in recent for ms in bucket.runs_ms),
            failed_share=shares["failed"],
            denied_share=shares["denied"],
            sampled=not all(bucket.exact for bucket in recent),
            problems=[],
        )
        batch_oldest_ms = max(0, now_ms - int(float(late[1]))) if late else 0
        return msgspec.structs.replace(status, problems=problems_of(status, recent, batch_oldest_ms))

    async def workers(self) -> Workers:
        """The workers of all queues, each once."""
        queues = self._reads.queues
        clock, *beats = await self._reads.many([("TIME",), *(("HGETALL", keys.workers(q)) for q in queues)])
        now_ms = clock_ms(clock)
        latest: dict[str, WorkerView] = {}
        served: dict[str, set[str]] = {}
        for queue, answer in zip(queues, beats, strict=True):
            for worker in read_workers(answer, now_ms):
                named = worker.heartbeat.get("queues")
                served.setdefault(worker.worker, {queue}).update(named if isinstance(named, list) else ())
                if worker.worker not in latest or worker.age_ms < latest[worker.worker].age_ms:
                    latest[worker.worker] = worker
        rows = [_row(worker, sorted(map(str, served[name]))) for name, worker in latest.items()]
        order = {"silent": 0, "draining": 1, "serving": 2}
        return Workers(now_ms=now_ms, workers=sorted(rows, key=lambda row: (order[row.state], row.worker)))

    def _history(self, queue: str, window: str) -> History:
        if (queue, window) not in self._histories:
            self._histories[queue, window] = History(self._reads, queue, *WINDOWS[window])
        return self._histories[queue, window]


def read_workers(beats: dict[bytes, bytes], now_ms: int) -> list[WorkerView]:
    """The workers of a heartbeat hash, by name. One whose heartbeat can't be read is there with an empty one."""
    workers = []
    for name, beat in sorted(beats.items()):
        at, _, body = beat.partition(b" ")
        try:
            heartbeat = msgspec.json.decode(body, type=dict[str, Any])
        except ValueError:
            heartbeat = {}
        age_ms = now_ms - (number(at) or 0)
        workers.append(WorkerView(worker=name.decode(errors="replace"), age_ms=age_ms, heartbeat=heartbeat))
    return workers


def problems_of(status: QueueStatus, recent: Sequence[Bucket], batch_oldest_ms: int) -> list[Problem]:
    """What is wrong with a queue, the worst first."""
    found: list[Problem] = []

    def add(code: str, severity: Any, message: str, advice: str) -> None:
        found.append(Problem(code=code, severity=severity, queue=status.queue, message=message, advice=advice))

    waiting = status.depth + status.batch_depth
    oldest_ms = max(status.oldest_ms, batch_oldest_ms)
    last_minute = [bucket for bucket in recent if bucket.start_ms > status.now_ms - 60_000]
    waits = f"{waiting:,} {'call waits' if waiting == 1 else 'calls wait'}, the oldest for {span(oldest_ms)}"
    if not status.workers_alive:
        severity = "critical" if waiting or status.leased else "warning"
        what = waits if waiting else "nothing waits now"
        add(
            "no_workers",
            severity,
            f"No worker serves this queue; {what}.",
            f"Start one: toolreef worker --queue {status.queue}",
        )
    elif status.workers_draining == status.workers_alive and waiting:
        add(
            "draining",
            "critical",
            f"All workers are draining; {waits}.",
            "Start new workers; these take no more calls.",
        )
    elif waiting and oldest_ms > STALLED_MS and not any(bucket.ended for bucket in last_minute):
        if status.busy >= status.slots:
            add(
                "saturated",
                "warning",
                f"Every slot is taken by a long call; {waits}.",
                "Look at the running calls; cancel some or add workers.",
            )
        else:
            add(
                "stalled",
                "critical",
                f"Workers are alive with free slots, but nothing has ended for a minute; {waits}.",
                "Look at the workers' logs, and restart them if they are silent.",
            )
    elif waiting and oldest_ms > 6 * STALLED_MS:
        add(
            "behind",
            "warning",
            f"Calls come in faster than they are carried out; {waits}.",
            "Add workers, or look for a session that floods the queue.",
        )
    silent = [worker for worker in status.workers if worker.age_ms >= SILENT_MS]
    if silent and status.workers_alive:
        names = ", ".join(worker.worker for worker in silent[:3])
        add(
            "silent_worker",
            "warning",
            f"{len(silent)} of {len(status.workers)} workers not heard of for {span(SILENT_MS)} or more: {names}.",
            "If it was not stopped on purpose, look at its host. Its calls come back when their leases end.",
        )
    ended = sum(bucket.ended for bucket in recent)
    for share, code, what in ((status.failed_share, "failing", "fail"), (status.denied_share, "denying", "are denied")):
        if share is not None and share >= FAILING_SHARE and ended >= FAILING_LEAST:
            add(
                code,
                "warning",
                f"{share:.0%} of the calls of the last {status.window_s // 60} minutes {what}.",
                "See the page of failures for the causes.",
            )
    return found


def span(ms: int) -> str:
    """A length of time in words short enough for a sentence."""
    seconds = ms // 1000
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h"
    return f"{seconds // 86400} days"


def _per_s(recent: Sequence[Bucket], now_ms: int) -> float:
    minute = [bucket for bucket in recent if bucket.start_ms > now_ms - 60_000]
    if not minute:
        return 0.0
    return round(sum(bucket.ended for bucket in minute) / max(1.0, (now_ms - minute[0].start_ms) / 1000), 2)


def _count(worker: WorkerView, field: str) -> int:
    return number(worker.heartbeat.get(field)) or 0


def _row(worker: WorkerView, queues: list[str]) -> WorkerRow:
    beat = worker.heartbeat
    metrics = beat.get("metrics")
    counts = metrics if isinstance(metrics, dict) else {}
    state = "silent" if worker.age_ms >= SILENT_MS else "draining" if beat.get("draining") else "serving"
    return WorkerRow(
        worker=worker.worker,
        queues=queues,
        age_ms=worker.age_ms,
        state=state,  # type: ignore[arg-type]
        running=_count(worker, "running"),
        slots=_count(worker, "slots"),
        version=str(beat.get("version", "")),
        sandbox=str(beat.get("sandbox", "")),
        **{
            name: number(counts.get(name)) or 0
            for name in ("completed", "denied", "failed", "reconnects", "undeliverable")
        },
    )
