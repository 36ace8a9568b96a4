"""Lanes: the messages of one queue by sharding key.

Each key that has messages in flight has a lane. A lane is one piece of work, for one thread at a time.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Mapping, Sequence

from rmqclient.backend.group_protocols import Death, Grant
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.handler import Batch
from rmqclient.message import ReceivedMessage
from rmqclient.store import clock


class KeyOrderedQueue(ProcessQueue):
    """One granted queue, and the lanes of its messages in flight."""

    def __init__(
        self,
        grant: Grant,
        config: ConsumerConfig,
        deaths: Mapping[int, Sequence[Death]] | None = None,
        batch: Batch | None = None,
    ) -> None:
        super().__init__(grant, config, deaths, batch)
        self.lanes = Lanes()

    def held_back(self) -> list[float]:
        """Return when each message comes whose lane is held."""
        return self.lanes.held_back()

    def due_times(self) -> list[float]:
        """Return when the queue may have something to give, a lane that is held included."""
        times, due = super().due_times(), self.lanes.next_due()
        return times if due is None else [*times, due]


class Lane:
    """The messages of one key that are taken and not finished, the oldest first."""

    __slots__ = ("key", "lanes", "messages", "running")

    def __init__(self, lanes: Lanes, key: str | int) -> None:
        self.lanes = lanes
        self.key = key
        """The sharding key, or the queue offset of a message without one."""
        self.messages: list[ReceivedMessage] = []
        self.running = False
        """Whether a thread handles a message of the lane."""


class Lanes:
    """The lanes of one process queue. A lane exists from its first message until it is empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str | int, Lane] = {}
        self._held: list[tuple[float, int, int, Lane]] = []
        self._count = itertools.count()

    def add(self, batch: list[ReceivedMessage]) -> list[Lane]:
        """Sort messages into lanes; return the lanes that are new."""
        found = []
        lanes = self._lanes
        with self._lock:
            for message in batch:
                key = message.sharding_key or message.queue_offset
                lane = lanes.get(key)
                if lane is None:
                    lane = lanes[key] = Lane(self, key)
                    found.append(lane)
                lane.messages.append(message)
        return found

    def is_over(self, lane: Lane) -> bool:
        """Forget a lane that is empty. False when messages have come meanwhile."""
        with self._lock:
            if lane.messages:
                return False
            lane.running = False
            del self._lanes[lane.key]
            return True

    def hold(self, lane: Lane, pause_s: float) -> None:
        """Keep the lane from all threads for a while."""
        with self._lock:
            lane.running = False
            due, first = clock.elapsed() + pause_s, lane.messages[0].queue_offset
            heapq.heappush(self._held, (due, first, next(self._count), lane))

    def due(self) -> list[Lane]:
        """Return the lanes whose pause is over."""
        found: list[Lane] = []
        if self._held:
            with self._lock:
                while self._held and self._held[0][0] <= clock.elapsed():
                    found.append(heapq.heappop(self._held)[-1])
        return found

    def next_due(self) -> float | None:
        """Return when, by `clock.elapsed`, the next pause is over; None when no lane is held."""
        with self._lock:
            return self._held[0][0] if self._held else None

    def held_back(self) -> list[float]:
        """Return the end of its lane's pause, for each message of the lanes that are held."""
        with self._lock:
            return [due for due, _, _, lane in self._held for _ in lane.messages]

    @property
    def running(self) -> bool:
        """Whether a handler runs with a message of a lane."""
        with self._lock:
            return any(lane.running for lane in self._lanes.values())
