"""Boot clock: CLOCK_BOOTTIME of the host, by which all processes of a store compare times.

In a time namespace (Linux 5.6: ``unshare -T``, a container that was restored from a checkpoint) the clock is ahead of
the host's, or behind it. A process there would take every lease for over, or for endless, and every heartbeat for
silence. So what it is ahead is taken off, once for a process, which never changes its namespace but by a new program.
"""

from __future__ import annotations

import time
from pathlib import Path

_OFFSETS = Path("/proc/self/timens_offsets")


def boottime() -> int:
    """Return CLOCK_BOOTTIME of the host in ns: one clock for all processes, which counts suspend and never steps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - NAMESPACE_AHEAD_NS


def _namespace_ahead_ns(offsets: str) -> int:
    """Return what the clock of a namespace is ahead, from the lines of its offsets [time_namespaces(7)]; 0 without."""
    for line in offsets.splitlines():
        name, *numbers = line.split()
        if name == "boottime":
            seconds, nanoseconds = map(int, numbers)
            return seconds * 1_000_000_000 + nanoseconds
    return 0


def _offsets() -> str:
    try:
        return _OFFSETS.read_text("ascii")
    except OSError:  # a kernel without time namespaces
        return ""


NAMESPACE_AHEAD_NS = _namespace_ahead_ns(_offsets())
"""What CLOCK_BOOTTIME of this process is ahead of the host's; 0 outside of time namespaces."""
