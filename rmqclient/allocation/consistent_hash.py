"""Consistent hash: each queue to the next member on a ring (AllocateMessageQueueConsistentHash, ConsistentHashRouter).

Every member stands on the ring at ``virtual_nodes`` places, the hashes of ``<client id>-0``, ``<client id>-1`` and so
on; a queue belongs to the first place at or behind its own hash, or to the lowest place when there is none. A hash is
the first four bytes of an MD5, big-endian. A member that comes or goes moves only the queues next to its places; the
shares are not even.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from rmqclient.allocation.strategy import Allocation
from rmqclient.message import MessageQueue

VIRTUAL_NODES = 10
"""[virtualNodeCnt]"""


@dataclass(frozen=True, slots=True)
class hashed:  # noqa: N801 - written as a function: allocation=hashed(100)
    """The strategy ``hash`` with another number of virtual nodes. Raises ValueError below 1."""

    virtual_nodes: int = VIRTUAL_NODES

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise ValueError(f"virtual_nodes={self.virtual_nodes}: a member needs at least 1 place on the ring")

    @property
    def name(self) -> str:
        """What members compare."""
        return "hash" if self.virtual_nodes == VIRTUAL_NODES else f"hash({self.virtual_nodes})"

    def __call__(self, members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
        """Allocate."""
        # Where two places have the same hash the later one stands, as in RocketMQ's map.
        ring = {_hash(f"{member}-{node}"): member for member in members for node in range(self.virtual_nodes)}
        places = sorted(ring)
        allocation: Allocation = {member: [] for member in members}
        for queue in queues:
            place = bisect_left(places, _hash(_text(queue)))
            allocation[ring[places[place % len(places)]]].append(queue)
        return allocation


def _text(queue: MessageQueue) -> str:
    """MessageQueue.toString."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _hash(key: str) -> int:
    """ConsistentHashRouter.MD5Hash; what UTF-8 cannot say is a question mark, as in String.getBytes."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
