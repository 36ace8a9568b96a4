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
    """Monotonic seconds of the last request of any kind for this group."""
    asked_members_at: float = 0.0
    """Monotonic seconds at which it last asked for the members of the group; it has rebalanced since."""
    refused: set[str] = field(default_factory=set)
    """Topics in which it is not a member, because its subscription differs from the group's."""
    process: Process | None = None
    """Its process, if known for sure; looked up when it first locks a queue in order."""
    start_offsets: dict[MessageQueue, int | None] = field(default_factory=dict)
    """Of a broadcast member: end of each queue when it came; None once it has pulled from the queue."""

    @property
    def shares_queues(self) -> bool:
        """Whether this is a push consumer in clustering mode."""
        return (
            self.message_model is bodies.MessageModel.CLUSTERING
            and self.consume_type is not bodies.ConsumeType.CONSUME_ACTIVELY
        )

    @property
    def is_broadcast(self) -> bool:
        """Whether this is a consumer in broadcast mode, which stores its own offsets."""
        return self.message_model is bodies.MessageModel.BROADCASTING
