"""Consumer: one connection as a member of one consumer group. Producer: one connection in one producer group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqclient.broker.clients.process import Process
from rmqclient.broker.request import Peer
from rmqclient.remoting import bodies
from rmqclient.store import MessageQueue


@dataclass(slots=True, eq=False)
class Producer:
    """A connection that sends for a producer group. Two of them are never equal."""

    group: str
    client_id: str
    peer: Peer
    language: int
    """Number of a :class:`rmqclient.remoting.codes.Language`."""
    version: int
    """Ordinal of its RocketMQ version."""
    beat_at: float
    """Monotonic seconds of the last heartbeat."""


@dataclass(slots=True, eq=False)
class Consumer:
    """A connection that is a member of a consumer group. Two of them are never equal."""

    group: str
    client_id: str
    peer: Peer
    language: int
    """Number of a :class:`rmqclient.remoting.codes.Language`."""
    version: int
    """Ordinal of its RocketMQ version."""
    consume_type: bodies.ConsumeType
    message_model: bodies.MessageModel
    consume_from: bodies.ConsumeFrom
    subscriptions: Mapping[str, bodies.Subscription]
    """By topic."""
    beat_at: float
    """Monotonic seconds of the last heartbeat."""
    seen_at: float
    """Monotonic seconds of the last request of this group, whichever it was."""
    asked_members_at: float = 0.0
    """Monotonic seconds at which it last asked who is in the group; it has rebalanced since."""
    refused: set[str] = field(default_factory=set)
    """Topics in which it is no member, because it wants other messages than the group."""
    process: Process | None = None
    """Its process, since it first locked a queue in order, if that is sure."""
    begins: dict[MessageQueue, int | None] = field(default_factory=dict)
    """Of a broadcast member: where the queues ended when it came; None for one that it has pulled since."""

    @property
    def shares_queues(self) -> bool:
        """Whether it is pushed messages of queues that nobody else of the group has meanwhile."""
        return (
            self.message_model is bodies.MessageModel.CLUSTERING
            and self.consume_type is not bodies.ConsumeType.CONSUME_ACTIVELY
        )

    @property
    def is_broadcast(self) -> bool:
        """Whether it gets every message and keeps its offsets itself."""
        return self.message_model is bodies.MessageModel.BROADCASTING
