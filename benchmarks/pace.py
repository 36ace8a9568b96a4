"""Pace: calls at even intervals, for latencies at a fixed rate, and how late the machine itself wakes a process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_SPIN_NS: Final = 150_000
"""Longer than a sleep overruns; this last part of a pause is spent polling the clock."""

_SLEEP_NS: Final = 1_000_000


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


def wakes_late(seconds: float) -> list[int]:
    """Sleep for 1 ms again and again; return by how many nanoseconds each sleep was too long."""
    late = []
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    while (now_ns := time.monotonic_ns()) < end_ns:
        time.sleep(_SLEEP_NS / 1e9)
        late.append(time.monotonic_ns() - now_ns - _SLEEP_NS)
    return late
