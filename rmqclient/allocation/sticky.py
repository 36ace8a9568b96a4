"""Sticky: balanced, and of what members have as little as possible moves.

The parts differ by one queue at most, as with ``averaged``; the places for one more go to those that have most. A
member keeps what it has up to its part, and the rest goes, with what nobody has, to those that have less.

Why members agree in the end although they look at the owners at different moments, while queues move:

1. A member knows exactly what it has itself, because nobody else changes that while its lease lasts; so it never takes
   more than its part, and after its first look at the present members it never has more than one above the smaller
   part.
2. Of those that have one more than the smaller part, the first by (number of queues, client id) keep it. A member gives
   it up only when as many as there are such places stand before it, and those give up nothing; so the places fill
   from the front, and each is given up at most once by each member behind.
3. Everything else only takes what is free. A queue that a stale look gave to two members has one grant, by epoch and
   lease, and the one that did not get it looks again. Every take brings the owners nearer to a whole, balanced
   allocation, and of such an allocation this function moves nothing.

A member is settled when the owners are what it computed, for all queues and not only for its own; until then it looks
again at every tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmqclient.allocation.strategy import Allocation
from rmqclient.message import MessageQueue


@dataclass(frozen=True, slots=True)
class sticky:  # noqa: N801 - written as a function, like the other strategies with settings
    """The strategy ``sticky``, with the present owner of each queue that has one."""

    owner_of: Mapping[MessageQueue, str]

    @property
    def name(self) -> str:
        """What members compare."""
        return "sticky"

    def __call__(self, members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
        """Allocate."""
        held: Allocation = {member: [] for member in members}
        free: list[MessageQueue] = []
        for queue in queues:
            held.get(self.owner_of.get(queue, ""), free).append(queue)
        share, left_over = divmod(len(queues), len(members))
        most_first = sorted(members, key=lambda member: -len(held[member]))
        room = {member: share + (place < left_over) for place, member in enumerate(most_first)}
        for member, part in held.items():
            free += part[room[member] :]
            del part[room[member] :]
        free.sort(key=lambda queue: queue.sort_key, reverse=True)
        for member, part in held.items():
            while len(part) < room[member]:
                part.append(free.pop())
        return held
