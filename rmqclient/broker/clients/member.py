"""Members: one connection in one producer group, or as a member of one consumer group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rmqclient.broker.clients.heartbeats import PRODUCER_BYTES, size_of_consumer
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

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory that it takes, rounded up."""
        return PRODUCER_BYTES


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

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory that it takes, rounded up."""
        return size_of_consumer(self.subscriptions.values())


_M = TypeVar("_M", Producer, Consumer)


class Members(Generic[_M]):
    """The members of groups of one kind, by group and by connection. For the thread of the event loop."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[Peer, _M]] = {}

    def __iter__(self) -> Iterator[_M]:
        """Yield the members of all groups, the earliest of each group first."""
        return iter([member for members in self._by_group.values() for member in members.values()])

    def groups(self) -> list[str]:
        """Return the groups that have a member, sorted."""
        return sorted(self._by_group)

    def of(self, group: str) -> list[_M]:
        """Return the members of a group, the earliest first."""
        return list(self._by_group.get(group, {}).values())

    def find(self, group: str, peer: Peer) -> _M | None:
        """Return the member of a group that has a connection."""
        return self._by_group.get(group, {}).get(peer)

    def named(self, group: str, client_id: str) -> _M | None:
        """Return the member of a group with a client id; the earliest of several."""
        return next((each for each in self.of(group) if each.client_id == client_id), None)

    def open_peers(self, group: str) -> list[Peer]:
        """Return the connections of a group that are open, the earliest first."""
        return [each.peer for each in self.of(group) if each.peer.is_open]

    def newest_peer(self, client_id: str) -> Peer | None:
        """Return the open connection of a client in any group; the newest of several."""
        found = [each.peer for each in self if each.client_id == client_id and each.peer.is_open]
        return found[-1] if found else None

    def put(self, member: _M) -> None:
        """Add a member, in the place of the one with its group and connection."""
        self._by_group.setdefault(member.group, {})[member.peer] = member

    def drop(self, group: str, peer: Peer) -> _M | None:
        """Remove the member of a group that has a connection; return it."""
        members = self._by_group.get(group, {})
        member = members.pop(peer, None)
        if member is not None and not members:
            del self._by_group[group]
        return member
