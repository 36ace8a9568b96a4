"""Standing: for how long a supervisor's processes stood still, so that no worker is blamed for it.

A machine that was suspended, a paused container and a Ctrl-Z stop the supervisor, too: it judges by the time in which
it has run itself. A worker that was stopped alone shows it in its state, and has not used the time limit of its
message.
"""

from __future__ import annotations

from pathlib import Path

from rmqclient.admin.workers import Awake, Pauses


class Standing:
    """What a supervisor saw of itself and of its workers. Times ``now`` are CLOCK_BOOTTIME in ns."""

    def __init__(self, now: int | None = None) -> None:
        self._awake = Awake()
        self._awake.begin(now)
        self._looked = self._awake.look(now)
        self._ran_ns = 0
        self._of: dict[int, Pauses] = {}

    def look(self, pids: list[int], now: int | None = None) -> None:
        """See how much time has passed since the last look, and which workers are stopped."""
        looked, self._looked = self._looked, self._awake.look(now)
        self._of = {pid: pauses for pid, pauses in self._of.items() if pid in pids}
        ran_ns = self._awake.ran_since(looked, self._looked)
        self._ran_ns += ran_ns
        if ran_ns == self._looked - looked:
            for pid in filter(is_stopped, pids):
                self._of.setdefault(pid, Pauses()).add(looked, self._looked)

    def ran_s(self, now: int | None = None) -> float:
        """Return for how many seconds the supervisor has run so far, as a clock that stands still when it does."""
        return (self._ran_ns + self._awake.ran_since(self._looked, now)) / 1e9

    def watched_s(self, age_s: float, now: int | None = None) -> float:
        """Return for how many of the last ``age_s`` seconds the supervisor has run."""
        now = self._awake.look(now)
        return max(0.0, self._awake.ran_since(now - int(age_s * 1e9), now) / 1e9)

    def running_s(self, pid: int, age_s: float, now: int | None = None) -> float:
        """Return for how many of the last ``age_s`` seconds a worker has run, and the supervisor, too."""
        now = self._awake.look(now)
        stood_ns = self._of[pid].ns_since(now - int(age_s * 1e9)) if pid in self._of else 0
        return max(0.0, self.watched_s(age_s, now) - stood_ns / 1e9)


def is_stopped(pid: int) -> bool:
    """Tell whether a process is stopped, by a signal or a debugger."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] in ("T", "t")
