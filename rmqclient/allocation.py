"""Allocation: which member of a group gets which message queues. Pure functions of sorted inputs.

Every member computes the whole allocation by itself and takes its own part, so the same inputs must give the same
answer in every process: members are sorted as RocketMQ sorts client ids (String.compareTo, by UTF-16 units), queues by
:attr:`~rmqclient.message_queue.MessageQueue.sort_key`. The order in which they are given does not matter.

A further strategy is one function here and one line in ``STRATEGIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from rmqclient.message_queue import MessageQueue

Allocation = dict[str, list[MessageQueue]]
Strategy = Callable[[Sequence[str], Sequence[MessageQueue]], Allocation]
"""Takes sorted members and sorted queues, neither of them empty."""


def allocate(strategy: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
    """Return the queues of each member; every member is a key, those without a queue with an empty list.

    What is given twice counts once. Raises ValueError when there is no such strategy, no member or no queue, and for
    an empty client id (RocketMQ's AbstractAllocateMessageQueueStrategy.check).
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"no allocation strategy {strategy!r}: there is {', '.join(map(repr, sorted(STRATEGIES)))}")
    if not members or not queues:
        raise ValueError(f"nothing to allocate: {len(members)} members, {len(queues)} queues")
    if "" in members:
        raise ValueError("the client id of a member is empty")
    in_order = sorted(set(members), key=_utf16)
    return STRATEGIES[strategy](in_order, sorted(set(queues), key=lambda queue: queue.sort_key))


def averaged(members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
    """Neighbouring queues to each member, the first ones getting one more (AllocateMessageQueueAveragely)."""
    share, left_over = divmod(len(queues), len(members))
    allocation: Allocation = {}
    start = 0
    for number, member in enumerate(members):
        end = start + share + (number < left_over)
        allocation[member] = list(queues[start:end])
        start = end
    return allocation


STRATEGIES: Mapping[str, Strategy] = MappingProxyType({"averaged": averaged})
"""By name."""


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
