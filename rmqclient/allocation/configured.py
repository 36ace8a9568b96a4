"""Configured: each member gets the queues that the settings list (AllocateMessageQueueByConfig)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmqclient.allocation.strategy import Allocation, in_order_of_members
from rmqclient.message import MessageQueue


@dataclass(frozen=True, slots=True, init=False)
class configured:  # noqa: N801 - written as a function: allocation=configured({...})
    """The strategy ``config``: the queues of each member by its client id.

    A member that is not named gets no queues. A queue that the topic does not have (yet) is left out; RocketMQ would
    assign it. Raises ValueError for a queue that two members are given; RocketMQ would let both have it.
    """

    queues_of: tuple[tuple[str, tuple[MessageQueue, ...]], ...]

    def __init__(self, queues_of: Mapping[str, Sequence[MessageQueue]]) -> None:
        owner_of: dict[MessageQueue, str] = {}
        for member, part in queues_of.items():
            for queue in part:
                if owner_of.setdefault(queue, member) != member:
                    raise ValueError(f"{queue!r} is configured for {owner_of[queue]!r} and for {member!r}: choose one")
        fixed = tuple((member, tuple(dict.fromkeys(queues_of[member]))) for member in in_order_of_members([*queues_of]))
        object.__setattr__(self, "queues_of", fixed)

    @property
    def name(self) -> str:
        """The name that members compare."""
        parts = (f"{member}: {', '.join(map(_short, part))}" for member, part in self.queues_of)
        return f"config({'; '.join(parts)})"

    def __call__(self, members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
        """Return the queues of each member."""
        known, queues_of = set(queues), dict(self.queues_of)
        return {member: [queue for queue in queues_of.get(member, ()) if queue in known] for member in members}


def _short(queue: MessageQueue) -> str:
    return ":".join(filter(None, (queue.topic, queue.broker_name, str(queue.queue_id))))
