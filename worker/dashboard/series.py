"""How a queue did over time, out of samples of its audit stream: read when somebody looks, never collected."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from contracts import keys
from worker.dashboard.reads import Entry, Reads, read_entries, stream_ms
from worker.dashboard.records import Latency, Series

SAMPLE = 30
"""Entries read at each end of a bucket. A bucket with no more than these is counted, a fuller one is estimated."""
WINDOWS: dict[str, tuple[int, int]] = {"10m": (5, 120), "1h": (30, 120), "6h": (180, 120), "24h": (720, 120)}
"""Window to (seconds a bucket, buckets)."""
RECENT_S = 300
"""What the figures beside the charts cover."""

KINDS = ("completed", "denied", "failed")


class Bucket(Struct, kw_only=True):
    """One stretch of time. `ended` estimates how many calls ended in it; the rest describes the sample."""

    start_ms: int
    ended: float
    exact: bool
    kinds: dict[str, int]
    waits_ms: list[int]
    runs_ms: list[int]

    @property
    def sample(self) -> int:
        """How many entries were looked at."""
        return sum(self.kinds.values())

    def count(self, kind: str) -> float:
        """How many calls ended so, by their share of the sample."""
        return self.ended * self.kinds.get(kind, 0) / self.sample if self.sample else 0.0


class History:
    """Buckets of one queue and one window. A bucket that is over never changes, so it is read once."""

    def __init__(self, reads: Reads, queue: str, bucket_s: int, count: int) -> None:
        self._reads, self._name = reads, keys.audit(queue)
        self._bucket_ms, self._count = bucket_s * 1000, count
        self._over: dict[int, Bucket] = {}
        self._lock = asyncio.Lock()

    async def buckets(self, now_ms: int) -> tuple[list[Bucket], int]:
        """The window's buckets, the last one still open, and since when the stream is whole (ms)."""
        async with self._lock:
            open_ms = now_ms - now_ms % self._bucket_ms
            starts = [open_ms - back * self._bucket_ms for back in range(self._count - 1, -1, -1)]
            first = await self._reads.redis.xrange(self._name, "-", "+", count=1)
            whole_since_ms = stream_ms(first[0][0].decode()) if first else now_ms
            commands: list[tuple[Any, ...]] = []
            made = {start: bucket_of(start, (), ()) for start in starts if start not in self._over}
            # Where a stream has nothing as old as the end of a range, XREVRANGE goes through all of it: don't ask.
            there = [start for start in made if start + self._bucket_ms > whole_since_ms]
            for start in there:
                begin, end = str(start), str(start + self._bucket_ms - 1)
                commands.append(("XRANGE", self._name, begin, end, "COUNT", SAMPLE))
                commands.append(("XREVRANGE", self._name, end, begin, "COUNT", SAMPLE))
            answers = await self._reads.many(commands)
            for start, head, tail in zip(there, answers[::2], answers[1::2], strict=True):
                made[start] = bucket_of(start, read_entries(head), read_entries(tail)[::-1])
            everything = {**self._over, **made}
            self._over = {start: bucket for start, bucket in everything.items() if starts[0] <= start < open_ms}
            return [everything[start] for start in starts], whole_since_ms


def bucket_of(start_ms: int, head: Sequence[Entry], tail: Sequence[Entry]) -> Bucket:
    """A bucket out of its first and its last entries, both in the stream's order. They may overlap."""
    seen = {entry.stream_id for entry in head}
    entries = [*head, *(entry for entry in tail if entry.stream_id not in seen)]
    exact = len(head) < SAMPLE or len(entries) < 2 * SAMPLE
    kinds: dict[str, int] = {}
    for entry in entries:
        kinds[entry.kind] = kinds.get(entry.kind, 0) + 1
    return Bucket(
        start_ms=start_ms,
        ended=len(entries) if exact else _estimate(head, tail),
        exact=exact,
        kinds=kinds,
        waits_ms=[entry.queued_ms for entry in entries],
        runs_ms=[entry.run_ms for entry in entries if entry.kind != "denied"],
    )


def _estimate(head: Sequence[Entry], tail: Sequence[Entry]) -> float:
    """As many as would stand between the first and the last entry at the density of both ends."""
    per_ms = statistics.fmean(len(part) / max(1, part[-1].at_ms - part[0].at_ms + 1) for part in (head, tail))
    return max(2.0 * SAMPLE, per_ms * (tail[-1].at_ms - head[0].at_ms + 1))


def series_of(buckets: Sequence[Bucket], whole_since_ms: int, bucket_s: int) -> Series:
    """Columns for the charts. The bucket still open is left out; what the stream no longer has is null."""
    over = buckets[:-1]
    known = [bucket.start_ms + bucket_s * 1000 > whole_since_ms for bucket in over]
    rates = {
        kind: [
            round(bucket.count(kind) / bucket_s, 3) if have else None for bucket, have in zip(over, known, strict=True)
        ]
        for kind in KINDS
    }
    waits, runs = ([latency_of(values) for values in column] for column in _times(over))
    return Series(
        bucket_s=bucket_s,
        at_ms=[bucket.start_ms for bucket in over],
        completed_per_s=rates["completed"],
        denied_per_s=rates["denied"],
        failed_per_s=rates["failed"],
        wait_p50_ms=[each.p50_ms for each in waits],
        wait_p95_ms=[each.p95_ms for each in waits],
        run_p50_ms=[each.p50_ms for each in runs],
        run_p95_ms=[each.p95_ms for each in runs],
    )


def _times(buckets: Sequence[Bucket]) -> tuple[list[list[int]], list[list[int]]]:
    return [bucket.waits_ms for bucket in buckets], [bucket.runs_ms for bucket in buckets]


def latency_of(values: Iterable[int]) -> Latency:
    """Median and 95th percentile (nearest rank)."""
    ordered = sorted(values)
    if not ordered:
        return Latency()
    return Latency(p50_ms=_rank(ordered, 0.5), p95_ms=_rank(ordered, 0.95))


def _rank(ordered: Sequence[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]
