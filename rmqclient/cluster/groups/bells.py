"""Bells of one process: threads sleep on a condition until messages have come or a group has changed."""

from __future__ import annotations

import threading

from rmqclient.store import MessageQueue


class ClusterBell:
    """Wakes threads of this process; satisfies :class:`rmqclient.backend.bells.ArrivalBell`.

    ``lane`` is the number by which a grant finds this bell.
    """

    def __init__(self, lane: int = 0) -> None:
        self.lane = lane
        self._rings = 0
        self._rang = threading.Condition()

    def heard(self) -> int:
        """Return a number that changes at each ring, for :meth:`wait`."""
        return self._rings

    def wait(self, heard: int, timeout_s: float) -> None:
        """Sleep until the bell rings, at most ``timeout_s`` seconds; return at once if it rang since ``heard``."""
        with self._rang:
            if self._rings == heard and timeout_s > 0:
                self._rang.wait(timeout_s)

    def ring(self) -> None:
        """Wake every thread that sleeps on this bell."""
        with self._rang:
            self._rings += 1
            self._rang.notify_all()

    def arm(self, *queues: MessageQueue) -> int:
        """Return :meth:`heard`. The grants of a member ring its bell without being asked for each queue."""
        del queues
        return self._rings


class Bells:
    """The bells of one consumer, by their lanes. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: list[ClusterBell] = []

    def make(self) -> ClusterBell:
        """Return a new bell."""
        with self._lock:
            self._bells.append(ClusterBell(len(self._bells)))
            return self._bells[-1]

    def of_lane(self, lane: int) -> ClusterBell:
        """Return the bell of a lane."""
        return self._bells[lane]
