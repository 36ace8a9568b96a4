"""Averaged: neighbouring queues to each member (AllocateMessageQueueAveragely). The default."""

from __future__ import annotations

from collections.abc import Sequence

from rmqclient.allocation.strategy import Allocation
from rmqclient.message import MessageQueue


def averaged(members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
    """Give each member as many, the first ones one more where it does not come out even."""
    share, left_over = divmod(len(queues), len(members))
    allocation: Allocation = {}
    start = 0
    for number, member in enumerate(members):
        end = start + share + (number < left_over)
        allocation[member] = list(queues[start:end])
        start = end
    return allocation
