"""Cluster: brokers, which have one thread of work each, and their locks.

Assumed, since no cluster of a thousand brokers is at hand:

==============================  =========================================================================
figure                          why
==============================  =========================================================================
0.25 ms one way                 machines of one data centre
25 µs for a request             a send costs a 4.9.7 broker 22.6 µs of processor time
0.2 µs for each member listed   encoding 30 bytes, and sending them at 10 Gbit/s
5 µs for each member told       a notice of a change, one after the other to all members of the group
==============================  =========================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from benchmarks.scaling.events import Clock
from rmqclient.cluster.groups.member_list import ClusterSeat, seat_of
from rmqclient.store import MessageQueue

ONE_WAY_S: Final = 0.000_25
REQUEST_S: Final = 0.000_025
LISTED_S: Final = 0.000_000_2
TOLD_S: Final = 0.000_005

TOPIC: Final = "orders"
_SLICE_S: Final = 0.01


@dataclass(slots=True)
class Broker:
    """One broker: what it does in each slice of time, and the owner of each lock.

    A member takes a whole step at once, so requests come here out of the order of their times. Each gets the first
    slice from its time on that has room for it.
    """

    name: str
    locks: dict[MessageQueue, str] = field(default_factory=dict)
    answered: int = 0
    _work: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    def answer(self, at: float, work_s: float) -> float:
        """Take a request that comes ``at`` this time; return when it is answered."""
        self.answered += 1
        number = int(at / _SLICE_S)
        while self._work[number] and self._work[number] + work_s > _SLICE_S:
            number += 1
        self._work[number] += work_s
        return max(at, number * _SLICE_S) + work_s


class Cluster:
    """All brokers, and who is in the group. They learn of a change at the same time."""

    def __init__(self, clock: Clock, brokers: int, queues: int) -> None:
        self.clock = clock
        self.brokers = {name: Broker(name) for name in (f"broker-{number:04d}" for number in range(brokers))}
        self.names = tuple(self.brokers)
        of_each, rest = divmod(queues, brokers)
        self.queues = tuple(
            MessageQueue(TOPIC, number, name)
            for place, name in enumerate(self.names)
            for number in range(of_each + (place < rest))
        )
        self.asked: Counter[str] = Counter()
        """How often brokers were asked what."""
        self.seats: tuple[ClusterSeat, ...] = ()
        self.owner_of: dict[MessageQueue, str] = {}
        self.last_change = 0.0
        """When a queue was last locked or freed."""

    def change(self, joined: list[str], left: set[str]) -> None:
        """Let members join and leave. The locks of those that leave stay."""
        stayed = [seat for seat in self.seats if seat.client_id not in left]
        self.seats = tuple(sorted([*stayed, *map(seat_of, joined)]))

    def call(self, name: str, what: str, extra_s: float = 0.0) -> Broker:
        """Ask a broker and wait for its answer; return the broker."""
        broker = self.brokers[name]
        self.asked[what] += 1
        comes = self.clock.monotonic() + ONE_WAY_S
        self.clock.spend(broker.answer(comes, REQUEST_S + extra_s) - comes + 2 * ONE_WAY_S)
        return broker

    def members(self, name: str) -> tuple[ClusterSeat, ...]:
        """Ask a broker who is in the group."""
        self.call(name, "who is in the group", LISTED_S * len(self.seats))
        return self.seats

    def lock(self, queue: MessageQueue, client_id: str) -> bool:
        """Lock a queue; tell whether the client has it now."""
        owner = self.call(queue.broker_name, "lock").locks.setdefault(queue, client_id)
        if owner != client_id:
            return False
        self.owner_of[queue] = client_id
        self.last_change = self.clock.monotonic()
        return True

    def unlock(self, queue: MessageQueue, client_id: str) -> None:
        """Free a lock, if the client has it."""
        locks = self.call(queue.broker_name, "unlock").locks
        if locks.get(queue) == client_id:
            del locks[queue]
            self.owner_of.pop(queue, None)
            self.last_change = self.clock.monotonic()
