"""What the load of this machine does to a test that measures time."""

from __future__ import annotations

import time

_WORK_S = 0.02


def slowdown() -> float:
    """Return how much longer work takes than on an idle machine, at least 1: some milliseconds of work are timed.

    A test multiplies a time limit by the slowdown, so that the limit is strict on an idle machine and fair on a busy
    one.
    """
    begin, work_begin = time.monotonic(), time.thread_time()
    while time.thread_time() - work_begin < _WORK_S:
        pass
    return max((time.monotonic() - begin) / _WORK_S, 1.0)
