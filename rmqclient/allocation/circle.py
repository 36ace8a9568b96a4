"""Circle: queues dealt one by one, like cards (AllocateMessageQueueAveragelyByCircle)."""

from __future__ import annotations

from collections.abc import Sequence

from rmqclient.allocation.strategy import Allocation
from rmqclient.message import MessageQueue


def circle(members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
    """Give queue ``j`` to member ``j % len(members)``."""
    return {member: list(queues[number :: len(members)]) for number, member in enumerate(members)}
