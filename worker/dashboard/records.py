"""What the API says of queues and workers: one struct an answer. The OpenAPI document is made from these structs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from contracts.orchestrator import WorkerView

Severity = Literal["critical", "warning"]


class Answer(Struct, frozen=True, kw_only=True):
    """What every answer has: Redis' clock when it was read, Unix time in ms."""

    now_ms: int


class Problem(Struct, frozen=True, kw_only=True):
    """Something that a person should look at: what is the matter, and what to do."""

    code: str
    severity: Severity
    queue: str
    message: str
    advice: str


class Latency(Struct, frozen=True, kw_only=True):
    """Milliseconds; null where nothing was measured."""

    p50_ms: int | None = None
    p95_ms: int | None = None


class Series(Struct, frozen=True, kw_only=True):
    """Columns of equal length for charts: one place a bucket, by its start. Null where the audit stream is trimmed."""

    bucket_s: int
    at_ms: list[int]
    completed_per_s: list[float | None]
    denied_per_s: list[float | None]
    failed_per_s: list[float | None]
    wait_p50_ms: list[int | None]
    wait_p95_ms: list[int | None]
    run_p50_ms: list[int | None]
    run_p95_ms: list[int | None]


class QueueStatus(Struct, frozen=True, kw_only=True):
    """A queue now (the fields of `toolreef status --json`), and how it did in the last `window_s` seconds.

    `sampled`: more calls ended than were read, so rates are estimates from samples of each five seconds.
    """

    queue: str
    depth: int
    batch_depth: int
    leased: int
    oldest_ms: int
    dead: int
    workers: list[WorkerView]
    now_ms: int
    workers_alive: int
    workers_draining: int
    slots: int
    busy: int
    window_s: int
    per_s: float
    wait: Latency
    run: Latency
    failed_share: float | None
    denied_share: float | None
    sampled: bool
    problems: list[Problem]


class Overview(Answer, frozen=True, kw_only=True):
    """All queues, and the series of one of them."""

    queues: list[QueueStatus]
    series_of: str
    series: Series


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A worker process by its last heartbeat, with all queues that it serves."""

    worker: str
    queues: list[str]
    age_ms: int
    state: Literal["serving", "draining", "silent"]
    running: int
    slots: int
    version: str
    sandbox: str
    completed: int
    denied: int
    failed: int
    reconnects: int
    undeliverable: int


class Workers(Answer, frozen=True, kw_only=True):
    """All workers that were heard of within an hour."""

    workers: list[WorkerRow]
