"""Estimates and percentiles of the charts, without a server."""

from __future__ import annotations

import pytest

from worker.dashboard.reads import Entry
from worker.dashboard.series import SAMPLE, bucket_of, latency_of, series_of


def entries(times_ms: list[int], kind: str = "completed") -> list[Entry]:
    return [Entry(stream_id=f"{at}-{n}", kind=kind, queued_ms=1, run_ms=2) for n, at in enumerate(times_ms)]


def sampled(all_of_them: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """What is read of a bucket: its first and its last entries."""
    return all_of_them[:SAMPLE], all_of_them[-SAMPLE:]


@pytest.mark.parametrize("count", [0, 1, SAMPLE - 1, SAMPLE, SAMPLE + 1, 2 * SAMPLE - 1, 2 * SAMPLE])
def test_a_bucket_that_was_read_whole_is_counted(count: int) -> None:
    bucket = bucket_of(0, *sampled(entries([n * 10 for n in range(count)])))
    assert bucket.ended == pytest.approx(count, rel=0.05)
    assert bucket.sample == count
    assert bucket.exact == (count < 2 * SAMPLE)


@pytest.mark.parametrize(
    "what, times_ms",
    [
        ("steady", list(range(5000))),
        ("a burst at the start", [n // 10 for n in range(3000)]),
        ("a burst in the middle", [2500 + n // 10 for n in range(3000)]),
        ("all at once", [7] * 4000),
    ],
)
def test_a_fuller_bucket_is_estimated_within_a_tenth(what: str, times_ms: list[int]) -> None:
    bucket = bucket_of(0, *sampled(entries(times_ms)))
    if what == "all at once":
        # Nothing tells how many share one millisecond: no less than was seen is claimed.
        assert 2 * SAMPLE <= bucket.ended <= len(times_ms)
    else:
        assert bucket.ended == pytest.approx(len(times_ms), rel=0.1)
    assert not bucket.exact


def test_shares_are_those_of_the_sample() -> None:
    bucket = bucket_of(0, [*entries([1, 2, 3], "completed"), *entries([4], "failed")], [])
    assert (bucket.count("completed"), bucket.count("failed"), bucket.count("denied")) == (3, 1, 0)


@pytest.mark.parametrize(
    "values, p50, p95",
    [([], None, None), ([7], 7, 7), (list(range(1, 101)), 50, 95), ([1, 1, 1, 100], 1, 100), ([5, 1], 1, 5)],
)
def test_percentiles_are_by_nearest_rank(values: list[int], p50: int | None, p95: int | None) -> None:
    found = latency_of(values)
    assert (found.p50_ms, found.p95_ms) == (p50, p95)


def test_what_the_stream_no_longer_has_is_unknown_and_the_open_bucket_is_left_out() -> None:
    buckets = [bucket_of(start, entries([start + 1]), []) for start in (0, 5000, 10_000)]
    series = series_of(buckets, whole_since_ms=6000, bucket_s=5)
    assert series.at_ms == [0, 5000]
    assert series.completed_per_s == [None, 0.2]
    assert series.run_p50_ms == [2, 2]
