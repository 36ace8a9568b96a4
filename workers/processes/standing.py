"""Standing: for how long a supervisor's processes stood still, so that no handler is blamed for it.

A machine that was suspended, a paused container and a Ctrl-Z stop the supervisor, too: its looks come late then. A
worker that was stopped alone shows it in its state. What stood still has not used the time limit of its message.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

STOOD_S = 2.0
"""A look that comes so late shows that this process stood still; the looks are a quarter of a second apart."""

_KEPT = 256


class _Pause(NamedTuple):
    ended: float
    took_s: float


class Standing:
    """What a supervisor saw of itself and of its workers; times are CLOCK_BOOTTIME in seconds."""

    def __init__(self, now: float | None = None) -> None:
        self._looked = _now() if now is None else now
        self._all: deque[_Pause] = deque(maxlen=_KEPT)
        self._of: dict[int, deque[_Pause]] = {}

    def look(self, pids: list[int], now: float | None = None) -> None:
        """See how much time has passed since the last look, and which workers are stopped."""
        now = _now() if now is None else now
        passed = now - self._looked
        self._looked = now
        self._of = {pid: pauses for pid, pauses in self._of.items() if pid in pids}
        if passed > STOOD_S:
            self._all.append(_Pause(now, passed))
            return
        for pid in pids:
            if is_stopped(pid):
                self._of.setdefault(pid, deque(maxlen=_KEPT)).append(_Pause(now, passed))

    def running_s(self, pid: int, age_s: float, now: float | None = None) -> float:
        """Return for how many of the last ``age_s`` seconds a worker has run."""
        begin = (_now() if now is None else now) - age_s
        pauses = [*self._all, *self._of.get(pid, ())]
        stood_s = sum((min(each.took_s, each.ended - begin) for each in pauses if each.ended > begin), 0.0)
        return max(0.0, age_s - stood_s)


def is_stopped(pid: int) -> bool:
    """Tell whether a process is stopped, by a signal or a debugger."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] in ("T", "t")


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
