"""When a command was carried out that waited at the server: never told later than it can have been."""

from __future__ import annotations

import time

from worker.server_clock import ServerClock

SENT = 100.0
"""time.monotonic() of the command by which the clock was read; the server's clock then said 1,000,000 ms."""


def _read() -> ServerClock:
    clock = ServerClock()
    clock.note(SENT, 1_000_000)
    return clock


def test_what_was_done_a_second_later_was_done_about_then() -> None:
    assert SENT + 0.9 < _read().earliest(1_001_000, SENT, SENT + 60) <= SENT + 1.0


def test_it_is_never_told_to_be_before_the_command_was_sent() -> None:
    assert _read().earliest(1_000_000, SENT, SENT + 60) == SENT


def test_a_clock_that_was_never_read_tells_nothing() -> None:
    assert ServerClock().earliest(1_001_000, SENT, SENT + 60) == SENT


def test_a_clock_that_was_set_back_or_forward_tells_nothing_until_it_is_read_again() -> None:
    for said_ms in (900_000, 1_100_000):
        clock = _read()
        assert clock.earliest(said_ms, SENT, SENT + 2) == SENT
        assert clock.earliest(1_001_000, SENT, SENT + 60) == SENT


def test_another_server_is_another_clock() -> None:
    clock = _read()
    clock.forget()
    assert clock.earliest(1_001_000, SENT, SENT + 60) == SENT


def test_it_is_fresh_for_a_while_after_it_was_read() -> None:
    clock = ServerClock()
    told = [clock.is_fresh]
    for age_s in (0, 61):
        clock.note(time.monotonic() - age_s, 1_000_000)
        told.append(clock.is_fresh)
    assert told == [False, True, False]
