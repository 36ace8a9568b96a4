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
    """Offsets at one time."""

    at_s: float
    """Monotonic seconds."""
    stored: array[int]
    """End of each queue, by queue slot."""
    finished: array[int]
    """Committed offset of each group in each queue, by slot of group and queue."""


class Rates:
    """Messages ``stored``, and those that groups ``finished``, counted from the server's start. Safe for threads."""

    def __init__(self, store: MessageStore) -> None:
        self.began_ms = clock.wall_ms()
        self._store = store
        self._lock = Lock()
        self.first = self.sample()
        self._first_byte = store.state.published_to
        self._samples = [deque([self.first], count + 1) for _, count in _WINDOWS]
        self.stored = Counted(self, lambda sample: sample.stored)
        self.finished = Counted(self, lambda sample: sample.finished)
        self._day = time.localtime().tm_yday
        self._ended = Event()
        self._thread = GuardedThread(target=self._run, name="rmq-serve-rates")
        self._thread.start()

    @property
    def age_s(self) -> float:
        """How long the server has been running."""
        return time.monotonic() - self.first.at_s

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def put_bytes(self) -> int:
        """Return the bytes of records stored since the start."""
        return self._store.state.published_to - self._first_byte

    def slots_of_topic(self, topic: str) -> list[int]:
        """Return what to count in ``stored`` for one topic."""
        topics = self._store.topics
        return [topics.slot(queue) for queue in topics.queues(topic)] if topic in topics else []

    def slots_of_group(self, group: str, topic: str) -> list[int]:
        """Return what to count in ``finished`` for a group in one topic."""
        found = (self._store.groups.find(stored_group(group), queue_slot) for queue_slot in self.slots_of_topic(topic))
        return [slot.number for slot in found if slot is not None]

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
            for counted in (self.stored, self.finished):
                counted.mornings = counted.mornings[1], counted.total()

    def sample(self) -> Offsets:
        """Read all offsets."""
        ends, committed = self._store.topics.max_offsets(), self._store.groups.column("committed_offset")
        return Offsets(time.monotonic(), array("Q", ends), array("Q", committed))

    def samples(self) -> list[list[Offsets]]:
        """Return the samples that are kept for a minute, an hour and a day, each from the oldest on."""
        with self._lock:
            return [list(samples) for samples in self._samples]


class Counted:
    """One number of each sample that only grows, as totals and rates.

    ``slots`` are those of a topic or of a group (:meth:`Rates.slots_of_topic`, :meth:`Rates.slots_of_group`); None for
    all. Pass one sample as ``now`` to several calls, so that each does not take its own.
    """

    def __init__(self, rates: Rates, column: Callable[[Offsets], array[int]]) -> None:
        self._rates = rates
        self._column = column
        self.mornings = (0, 0)
        """The totals at yesterday's midnight and at today's; they count from the server's start."""

    def total(self) -> int:
        """Return the number of messages since the start."""
        return max(0, self._count(self._rates.sample()) - self._count(self._rates.first))

    def stats(self, slots: Collection[int] | None = None, now: Offsets | None = None) -> BrokerStats | None:
        """Return the rates over a minute, an hour and a day; None if there were no messages since the start."""
        from rmqclient.remoting.bodies import BrokerStats  # noqa: PLC0415 - only tools ask

        now = now or self._rates.sample()
        if self._count(now, slots) == self._count(self._rates.first, slots):
            return None
        return BrokerStats(*(self._since(samples[0], now, slots) for samples in self._rates.samples()))

    def per_second(self, slots: Collection[int], now: Offsets | None = None) -> float:
        """Return the messages per second over the last minute."""
        found = self.stats(slots, now)
        return found.minute.per_second if found else 0.0

    def recent(self) -> list[float]:
        """Return the messages per second in all, over 10 s, a minute and ten minutes."""
        now, (minute, hour, _) = self._rates.sample(), self._rates.samples()
        return [self._since(before, now).per_second for before in (minute[-1], minute[0], hour[-1])]

    def _count(self, sample: Offsets, slots: Collection[int] | None = None) -> int:
        values = self._column(sample)
        return sum(values) if slots is None else sum(values[slot] for slot in slots if slot < len(values))

    def _since(self, before: Offsets, now: Offsets, slots: Collection[int] | None = None) -> StatsItem:
        """Return the messages between two samples. A negative number, of a group that was moved back, is 0."""
        from rmqclient.remoting.bodies import StatsItem  # noqa: PLC0415 - only tools ask

        count = max(0, self._count(now, slots) - self._count(before, slots))
        return StatsItem(count, round(count / max(now.at_s - before.at_s, 1.0), 3), 0.0)
