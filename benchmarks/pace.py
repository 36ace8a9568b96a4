"""Pace: calls at even intervals, for latencies at a fixed rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_SPIN_NS: Final = 150_000
"""Longer than a sleep overruns; this last part of a pause is spent polling the clock."""


def pace(step: Callable[[int], object], times: int, per_second: int) -> None:
    """Call ``step`` with the time at which it is due, ns of CLOCK_MONOTONIC; a late call is made at once."""
    interval_ns = 1_000_000_000 // per_second
    due_ns = time.monotonic_ns()
    for _ in range(times):
        due_ns += interval_ns
        pause_ns = due_ns - time.monotonic_ns() - _SPIN_NS
        if pause_ns > 0:
            time.sleep(pause_ns / 1e9)
        while time.monotonic_ns() < due_ns:
            pass
        step(due_ns)
