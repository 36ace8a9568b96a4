"""Bells of one process: wake threads when messages have come or a group has changed."""

from __future__ import annotations

import threading

from rmqclient.backend.bells import ThreadBell
from rmqclient.store import MessageQueue


class ClusterBell(ThreadBell):
    """Wakes threads of this process; satisfies :class:`rmqclient.backend.bells.ArrivalBell`.

    ``lane`` is the number of this bell.
    """

    def __init__(self, lane: int = 0) -> None:
        super().__init__()
        self.lane = lane

    def arm(self, *queues: MessageQueue) -> int:
        """Return :meth:`heard`. The queues need not be armed: a member's grants always ring its bell."""
        del queues
        return self.heard()


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
