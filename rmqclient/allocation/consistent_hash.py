"""Consistent hash: the next member on a ring gets a queue (AllocateMessageQueueConsistentHash, ConsistentHashRouter).

Every member has ``virtual_nodes`` places on the ring, the hashes of ``<client id>-0``, ``<client id>-1`` and so on. A
queue belongs to the lowest place at or above its own hash, or to the lowest of all if no place is above. A hash is the
first four bytes of an MD5, big-endian. When a member joins or leaves, only the queues next to its places move. The
shares are uneven.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from rmqclient.allocation.strategy import Allocation
from rmqclient.message import MessageQueue
from rmqclient.store.numbers import whole

VIRTUAL_NODES = 10
"""[virtualNodeCnt]"""

MOST_NODES = 10_000


@dataclass(frozen=True, slots=True)
class hashed:  # noqa: N801 - written as a function: allocation=hashed(100)
    """The strategy ``hash`` with another number of virtual nodes. Raises ValueError below 1 and above 10,000."""

    virtual_nodes: int = VIRTUAL_NODES

    def __post_init__(self) -> None:
        whole("virtual_nodes", self.virtual_nodes, 1, MOST_NODES)

    @property
    def name(self) -> str:
        """The name that members compare."""
        return "hash" if self.virtual_nodes == VIRTUAL_NODES else f"hash({self.virtual_nodes})"

    def __call__(self, members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
        """Return the queues of each member."""
        # If two places have the same hash, the later one wins, as in RocketMQ's map.
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
    """ConsistentHashRouter.MD5Hash; text that UTF-8 cannot encode becomes a question mark, as in String.getBytes."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
