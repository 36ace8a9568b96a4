"""Averaged: each member gets neighbouring queues (AllocateMessageQueueAveragely). The default."""

from __future__ import annotations

from collections.abc import Sequence

from rmqclient.allocation.strategy import Allocation
from rmqclient.message import MessageQueue


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
