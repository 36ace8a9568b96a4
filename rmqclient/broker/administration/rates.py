"""Rates: messages stored and finished per second, minute, hour and day. [BrokerStatsManager]

They are differences of offsets in shared memory, so messages of local processes count, too. One thread samples the
offsets every 10 s. Sums of an hour are exact to ten minutes, those of a day to an hour.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Collection
from threading import Event, Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqclient.broker.stored_names import stored_group
from rmqclient.store import MessageStore, clock
from rmqclient.store.threads.guarded import GuardedThread

if TYPE_CHECKING:
    from rmqclient.remoting.bodies import BrokerStats, StatsItem

SAMPLE_S: Final = 10.0

FIRST_OF_5: Final = 413
"""Version number of 5.0.0. Tools from it on ask for more figures. [MQVersion]"""

_WINDOWS: Final = ((SAMPLE_S, 6), (600.0, 6), (3_600.0, 24))
"""Seconds between two samples, and the number of samples kept: for a minute, an hour and a day."""


class Offsets(NamedTuple):
    """Offsets at one time, by queue slot and by slot of group and queue."""

    at_s: float
    """Monotonic seconds."""
    ends: array[int]
    committed: array[int]


class Rates:
    """Counts messages from the server's start. Safe for threads."""

    def __init__(self, store: MessageStore) -> None:
        self.began_ms = clock.wall_ms()
        self._store = store
        self._lock = Lock()
        self._first = self.sample()
        self._first_byte = store.state.published_to
        self._samples = [deque([self._first], count + 1) for _, count in _WINDOWS]
        self._day = time.localtime().tm_yday
        self._mornings = [(0, 0), (0, 0)]
        self._ended = Event()
        self._thread = GuardedThread(target=self._run, name="rmq-serve-rates")
        self._thread.start()

    @property
    def age_s(self) -> float:
        """How long the server has been running."""
        return time.monotonic() - self._first.at_s

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def put(self, topic: str) -> BrokerStats | None:
        """Return the rates of messages stored in a topic; None if there were none since the start."""
        queues = self._slots_of_topic(topic)
        return self._stats(lambda sample: _sum(sample.ends, queues))

    def put_in_all(self) -> BrokerStats | None:
        """Return the rates of messages stored in all topics; None if there were none since the start."""
        return self._stats(lambda sample: sum(sample.ends))

    def taken_in_all(self) -> BrokerStats | None:
        """Return the rates of messages that all groups finished; None if there were none since the start."""
        return self._stats(lambda sample: sum(sample.committed))

    def taken(self, topic: str, group: str, now: Offsets | None = None) -> BrokerStats | None:
        """Return the rates of messages of a topic that a group finished; None if there were none since the start.

        Pass one sample as ``now`` to several calls, so that each does not take its own.
        """
        slots = self._slots_of_group(group, topic)
        return self._stats(lambda sample: _sum(sample.committed, slots), now)

    def put_per_second_of(self, topic: str) -> float:
        """Return the messages per second stored in a topic, over the last minute."""
        found = self.put(topic)
        return found.minute.per_second if found else 0.0

    def consume_tps(self, group: str, topic: str, now: Offsets | None = None) -> float:
        """Return the messages per second of a topic that a group finished, over the last minute. ``now`` as above."""
        found = self.taken(topic, group, now)
        return found.minute.per_second if found else 0.0

    def put_per_second(self) -> list[float]:
        """Return the messages per second stored, over 10 s, a minute and ten minutes."""
        return self._per_second(lambda sample: sum(sample.ends))

    def taken_per_second(self) -> list[float]:
        """Return the messages per second that all groups finished, over 10 s, a minute and ten minutes."""
        return self._per_second(lambda sample: sum(sample.committed))

    def mornings(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the messages stored until yesterday's midnight and until today's, and the same of finished ones.

        They count from the server's start, as :meth:`puts` and :meth:`takes` do.
        """
        with self._lock:
            (put_before, taken_before), (put, taken) = self._mornings
        return (put_before, put), (taken_before, taken)

    def puts(self) -> int:
        """Return the number of messages stored since the start."""
        return max(0, sum(self.sample().ends) - sum(self._first.ends))

    def put_bytes(self) -> int:
        """Return the bytes of records stored since the start."""
        return self._store.state.published_to - self._first_byte

    def takes(self) -> int:
        """Return the number of messages that groups finished since the start."""
        return max(0, sum(self.sample().committed) - sum(self._first.committed))

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.note()

    def note(self) -> None:
        """Keep a sample of the offsets."""
        sample = self.sample()
        with self._lock:
            for (interval_s, _), samples in zip(_WINDOWS, self._samples, strict=True):
                if sample.at_s - samples[-1].at_s >= interval_s - 1:
                    samples.append(sample)
            if (today := time.localtime().tm_yday) != self._day:
                self._day = today
                self._mornings = [self._mornings[1], (self.puts(), self.takes())]

    def sample(self) -> Offsets:
        """Read all offsets."""
        groups = self._store.groups
        ends, committed = self._store.topics.max_offsets(), groups.column("committed_offset")
        return Offsets(time.monotonic(), array("Q", ends), array("Q", committed))

    def _stats(self, count: Callable[[Offsets], int], now: Offsets | None = None) -> BrokerStats | None:
        from rmqclient.remoting.bodies import BrokerStats  # noqa: PLC0415 - only tools ask

        now = now or self.sample()
        if count(now) == count(self._first):
            return None
        with self._lock:
            oldest = [samples[0] for samples in self._samples]
        return BrokerStats(*(_item(count(now) - count(each), now.at_s - each.at_s) for each in oldest))

    def _per_second(self, count: Callable[[Offsets], int]) -> list[float]:
        now = self.sample()
        with self._lock:
            minute, hour = list(self._samples[0]), list(self._samples[1])
        chosen = (minute[-1], minute[0], hour[-1])
        return [_item(count(now) - count(each), now.at_s - each.at_s).per_second for each in chosen]

    def _slots_of_topic(self, topic: str) -> list[int]:
        topics = self._store.topics
        return [topics.slot(queue) for queue in topics.queues(topic)] if topic in topics else []

    def _slots_of_group(self, group: str, topic: str) -> list[int]:
        found = (self._store.groups.find(stored_group(group), queue_slot) for queue_slot in self._slots_of_topic(topic))
        return [slot.number for slot in found if slot is not None]


def _sum(values: array[int], slots: Collection[int]) -> int:
    return sum(values[slot] for slot in slots if slot < len(values))


def _item(count: int, seconds: float) -> StatsItem:
    """Return a count over some seconds. A negative count, of a group that was moved back, is 0."""
    from rmqclient.remoting.bodies import StatsItem  # noqa: PLC0415 - only tools ask

    count = max(0, count)
    return StatsItem(count, round(count / max(seconds, 1.0), 3), 0.0)
