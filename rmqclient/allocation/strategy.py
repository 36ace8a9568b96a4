"""Strategy: what every way of allocating takes and gives, and the order in which members and queues stand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from rmqclient.message import MessageQueue

Allocation = dict[str, list[MessageQueue]]
Strategy = Callable[[Sequence[str], Sequence[MessageQueue]], Allocation]
"""Takes sorted members and sorted queues, neither of them empty."""


def in_order_of_members(members: Sequence[str]) -> list[str]:
    """Return members as Java sorts strings, each once."""
    return sorted(set(members), key=lambda text: text.encode("utf-16-be", "surrogatepass"))


@functools.lru_cache(maxsize=16)
def in_order_of_queues(queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
    """Return queues as RocketMQ sorts them, each once. The same again and again, so it is remembered."""
    return tuple(sorted(set(queues), key=lambda queue: queue.sort_key))
