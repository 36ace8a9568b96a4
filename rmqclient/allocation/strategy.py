"""Strategy: the type of all allocation strategies, the order of members and queues, and the two simplest ones.

``averaged``, the default, gives each member neighbouring queues (AllocateMessageQueueAveragely). ``circle`` deals the
queues one by one, like cards (AllocateMessageQueueAveragelyByCircle).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from rmqclient.message import MessageQueue

Allocation = dict[str, list[MessageQueue]]
Strategy = Callable[[Sequence[str], Sequence[MessageQueue]], Allocation]
"""Takes sorted members and sorted queues, both nonempty; returns the queues of each member."""


def in_order_of_members(members: Sequence[str]) -> list[str]:
    """Return members as Java sorts strings, each once."""
    return sorted(set(members), key=lambda text: text.encode("utf-16-be", "surrogatepass"))


@functools.lru_cache(maxsize=16)
def in_order_of_queues(queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
    """Return queues as RocketMQ sorts them, each once. Cached, because calls repeat their arguments."""
    return tuple(sorted(set(queues), key=lambda queue: queue.sort_key))


def averaged(members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
    """Give each member the same number of queues; the first members get one of the remainder each."""
    share, left_over = divmod(len(queues), len(members))
    allocation: Allocation = {}
    start = 0
    for number, member in enumerate(members):
        end = start + share + (number < left_over)
        allocation[member] = list(queues[start:end])
        start = end
    return allocation


def circle(members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
    """Give queue ``j`` to member ``j % len(members)``."""
    return {member: list(queues[number :: len(members)]) for number, member in enumerate(members)}
