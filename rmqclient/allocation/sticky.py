"""Sticky: a balanced allocation that moves as few queues as possible.

The shares differ by at most one queue, as with ``averaged``; the larger shares go to the members that have most queues.
A member keeps its queues up to its share. Its other queues, and those without an owner, go to members that have fewer.

Members read the owners at different moments, while queues move. They agree in the end because:

1. A member knows exactly which queues it has: no other member changes that while its lease lasts. So it never takes
   more than its share. Once it has read the present members, it never has more than one queue above the smaller share.
2. Of the members with one queue more than the smaller share, the first by (number of queues, client id) keep it. A
   member gives it up only if the members before it take up all the larger shares, and those give up nothing. So the
   larger shares are filled from the front, and each member further back gives up each of them at most once.
3. All other steps only take free queues. If outdated owners make two members choose the same queue, epoch and lease let
   only one have the grant, and the other one reads the owners again. Every take brings the owners nearer to a complete,
   balanced allocation, and this function leaves such an allocation as it is.

A member is settled when the owners of all queues, not only of its own, are those that it computed. Until then it reads
them again at every tick.
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
        """The name that members compare."""
        return "sticky"

    def __call__(self, members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
        """Return the queues of each member."""
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
