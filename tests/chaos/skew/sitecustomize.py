"""Python runs this at start where PYTHONPATH names its directory: the wall clock of that one process stands wrong."""

from __future__ import annotations

import os
import time

_SHIFT_NS = int(float(os.environ.get("CHAOS_CLOCK_SHIFT_S", "0")) * 1e9)
_time_ns = time.time_ns


def _shifted_ns() -> int:
    return _time_ns() + _SHIFT_NS


def _shifted() -> float:
    return _shifted_ns() / 1e9


time.time_ns = _shifted_ns
time.time = _shifted
