"""Strategy: the type of all allocation strategies, and the order of members and queues."""

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
