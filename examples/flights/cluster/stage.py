"""Stage: the cluster and the processes of the demonstration, and how far they are.

The application, the replay and the report are those of the directory. Only what shows the progress asks a cluster.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from examples.flights.app import GROUPS, TOPIC
from examples.flights.stage import Counts, DemoFailed, Processes
from rmqclient.admin import Admin
from rmqclient.errors import QueueError

_READY = re.compile(r"worker (\d+) \(pid (\d+)\): ready")


def ready_workers(log: Path) -> list[int]:
    """Return the process id of each worker that was ever ready, the oldest first, by the log of the supervisor."""
    return [int(pid) for _, pid in _READY.findall(log.read_text(encoding="utf-8", errors="replace"))]


def wait_for_workers(log: Path, watched: Processes, workers: int) -> list[int]:
    """Wait until so many workers have been ready; return their process ids. Raises DemoFailed."""
    while len(pids := ready_workers(log)) < workers:
        watched.look(pids)
    return pids


def kill_worker(log: Path, watched: Processes) -> tuple[int, float]:
    """Kill the first worker; return its process id, and the seconds until another one was ready in its place."""
    victim, *_ = pids = ready_workers(log)
    begin = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    wait_for_workers(log, watched, len(pids) + 1)
    return victim, time.monotonic() - begin


class Counting:
    """The progress of replay and groups. No count goes back: a broker that is away does not tell what it has."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._latest = Counts(0, dict.fromkeys(GROUPS, 0))

    def look(self) -> Counts:
        """Return how many messages are stored, and how many each group has committed."""
        try:
            sent = self._admin.topic(TOPIC).messages
            committed = {
                group: sum(queue.committed_offset for queue in self._admin.lag(group) if queue.topic == TOPIC)
                for group in GROUPS
            }
        except QueueError:
            return self._latest
        before = self._latest
        counts = {group: max(count, before.acknowledged[group]) for group, count in committed.items()}
        self._latest = Counts(max(sent, before.sent), counts)
        return self._latest

    def check(self) -> None:
        """Raise DemoFailed when a group has not committed everything."""
        lag = sum(queue.lag for group in GROUPS for queue in self._admin.lag(group))
        if lag:
            raise DemoFailed(f"all messages are handled, but the lag is {lag}")
