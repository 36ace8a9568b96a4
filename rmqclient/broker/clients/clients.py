"""Clients: connected producers and consumers by group, from their heartbeats.

A broker identifies a member by its connection [ConsumerManager, ProducerManager]. A client leaves a group by request
35, when its connection ends, and after 120 s without a heartbeat. Nothing here reads the store: :class:`Watching` is
told of changes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from typing import Protocol

from rmqclient.broker.clients import heartbeats
from rmqclient.broker.clients.consumer import Consumer, Producer
from rmqclient.broker.request import Peer
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

MOST_KEPT_BYTES = 256 << 20
"""Bytes of memory for the heartbeats of all clients, at most."""

SILENCE_S = 120.0
"""Seconds without a heartbeat after which a client is removed. [ClientHousekeepingService, CHANNEL_EXPIRED_TIMEOUT]"""


class Watching(Protocol):
    """Is told when a member joins or leaves a consumer group."""

    def joined(self, consumer: Consumer) -> None:
        """A connection became a member of a group, or a member subscribes to other topics or messages than before."""

    def left(self, consumer: Consumer) -> None:
        """A member left its group; its connection may have ended."""


class Clients:
    """The connected clients; two connections with one client id are two members. For the thread of the event loop."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._producers: dict[str, dict[Peer, Producer]] = {}
        self._consumers: dict[str, dict[Peer, Consumer]] = {}
        self._groups_of: dict[Peer, set[str]] = {}
        self._subscriptions: dict[str, dict[str, bodies.Subscription]] = {}
        self._kept_bytes = 0  # of all producers and consumers
        self._said: dict[Peer, bytes] = {}  # digest of the last heartbeat, while all of it still holds

    def repeats(self, peer: Peer, body: bytes) -> bool:
        """Take a heartbeat that equals the last one of its connection; return False for any other."""
        if self._said.get(peer) != _digest(body):
            return False
        now = time.monotonic()
        for group in self._groups_of[peer]:
            if (producer := self._producers.get(group, {}).get(peer)) is not None:
                producer.beat_at = now
            if (consumer := self._consumers.get(group, {}).get(peer)) is not None:
                consumer.beat_at = consumer.seen_at = now
        return True

    def remember(self, peer: Peer, body: bytes, heartbeat: bodies.Heartbeat) -> None:
        """Note a heartbeat that was accepted completely, for :meth:`repeats`.

        One that does not name all groups of its connection is not noted: repeating it must not renew the others.
        """
        if self._groups_of.get(peer) == _groups_in(heartbeat):
            self._said[peer] = _digest(body)
        else:
            self._said.pop(peer, None)

    def beat(self, peer: Peer, heartbeat: bodies.Heartbeat, language: int, version: int) -> set[str]:
        """Take a heartbeat. Returns the groups whose members must get request 40.

        These are the groups that the connection joined, and those in which it changed its topics. A newer version of a
        subscription alone is no change. [ConsumerGroupInfo.updateSubscription]

        Raises AnswerError and changes nothing: code 1 if the connection is in too many groups, those of its earlier
        heartbeats included, and code 2 if the heartbeats of all clients take too much memory.
        """
        if peer not in self._groups_of:
            self._groups_of[peer] = set()
            peer.when_closed(lambda: self._close(peer))
        self._check_room(peer, heartbeat)
        now = time.monotonic()
        for each in heartbeat.producers:
            self._put_producer(Producer(each.group, heartbeat.client_id, peer, language, version, now))
        changed = set()
        for data in heartbeat.consumers:
            consumer = Consumer(
                data.group, heartbeat.client_id, peer, language, version, data.consume_type, data.message_model,
                data.consume_from, {each.topic: each for each in data.subscriptions}, now, now,
            )  # fmt: skip
            if self._take(consumer, data):
                changed.add(data.group)
        return changed

    def leave(self, peer: Peer, producer_group: str | None, consumer_group: str | None) -> None:
        """Remove a connection from these groups; an empty name is ignored. [ClientManageProcessor.unregisterClient]"""
        if producer_group:
            self._drop_producer(producer_group, peer)
        if consumer_group:
            self._drop_consumer(consumer_group, peer)

    def end_silent(self) -> None:
        """Remove every client whose last heartbeat is older than :data:`SILENCE_S`."""
        oldest = time.monotonic() - SILENCE_S
        for group, producers in list(self._producers.items()):
            for producer in [each for each in producers.values() if each.beat_at < oldest]:
                self._drop_producer(group, producer.peer)
        for consumer in [each for each in self.all_consumers() if each.beat_at < oldest]:
            _log.warning("group %s: %s is silent for %.0f s, and is out", consumer.group, consumer.client_id, SILENCE_S)
            self._drop_consumer(consumer.group, consumer.peer)

    def producer_groups(self) -> list[str]:
        """Return the producer groups that have a member, sorted."""
        return sorted(self._producers)

    def producers(self, group: str) -> list[Producer]:
        """Return the members of a producer group, the earliest first."""
        return list(self._producers.get(group, {}).values())

    def producer_peers(self, group: str) -> list[Peer]:
        """Return the connections of a producer group that are open."""
        return [each.peer for each in self.producers(group) if each.peer.is_open]

    def producer(self, client_id: str) -> Peer | None:
        """Return the connection of a producer by its client id; the newest of several."""
        found = None
        for producers in self._producers.values():
            for each in producers.values():
                if each.client_id == client_id and each.peer.is_open:
                    found = each.peer
        return found

    def consumer_groups(self) -> list[str]:
        """Return the consumer groups that have a member, sorted."""
        return sorted(self._consumers)

    def consumers(self, group: str) -> list[Consumer]:
        """Return the members of a consumer group, the earliest first."""
        return list(self._consumers.get(group, {}).values())

    def all_consumers(self) -> Iterator[Consumer]:
        """Yield the members of all consumer groups."""
        for members in list(self._consumers.values()):
            yield from list(members.values())

    def consumer(self, group: str, peer: Peer) -> Consumer | None:
        """Return the member of a group that has a connection."""
        return self._consumers.get(group, {}).get(peer)

    def begin(self, peer: Peer, queue: MessageQueue) -> int | None:
        """Return a broadcast consumer's start offset in a queue; None after its first pull, and for other consumers."""
        for group in self._groups_of.get(peer, ()):
            consumer = self._consumers.get(group, {}).get(peer)
            if consumer is not None and consumer.start_offsets.get(queue) is not None:
                return consumer.start_offsets[queue]
        return None

    def consumer_named(self, group: str, client_id: str) -> Consumer | None:
        """Return the member of a group with a client id; the earliest of several."""
        return next((each for each in self.consumers(group) if each.client_id == client_id), None)

    def subscription(self, group: str, topic: str) -> bodies.Subscription | None:
        """Return a group's subscription to a topic: the one of its members with the highest version."""
        return self._subscriptions.get(group, {}).get(topic)

    def subscriptions(self, group: str) -> dict[str, bodies.Subscription]:
        """Return the subscriptions of a group, by topic."""
        return dict(self._subscriptions.get(group, {}))

    def _check_room(self, peer: Peer, heartbeat: bodies.Heartbeat) -> None:
        """Raise AnswerError if a heartbeat exceeds the limits, together with the earlier ones of all clients."""
        groups = _groups_in(heartbeat)
        count = len(self._groups_of[peer] | groups)
        if count > heartbeats.MOST_GROUPS:
            text = (
                f"client {heartbeat.client_id!r} is in {count} groups by its heartbeats of the last {SILENCE_S:.0f} s"
            )
            raise heartbeats.refusal(f"{text}; at most {heartbeats.MOST_GROUPS}")
        more = heartbeats.size_of(heartbeat) - sum(self._kept_of(peer, group) for group in groups)
        if more > 0 and self._kept_bytes + more > MOST_KEPT_BYTES:
            text = f"the heartbeats of all clients take {self._kept_bytes:,} bytes, and this one {more:,} more"
            raise AnswerError(ResponseCode.SYSTEM_BUSY, f"{text}; at most {MOST_KEPT_BYTES:,}")

    def _kept_of(self, peer: Peer, group: str) -> int:
        """Return the bytes that a connection takes in a group."""
        consumer = self._consumers.get(group, {}).get(peer)
        size = heartbeats.PRODUCER_BYTES if peer in self._producers.get(group, {}) else 0
        return size + (_size_of(consumer) if consumer is not None else 0)

    def _put_producer(self, producer: Producer) -> None:
        producers = self._producers.setdefault(producer.group, {})
        if producer.peer not in producers:
            self._kept_bytes += heartbeats.PRODUCER_BYTES
            self._groups_of[producer.peer].add(producer.group)
        producers[producer.peer] = producer

    def _take(self, consumer: Consumer, data: bodies.ConsumerData) -> bool:
        """Add or update a member; return whether the others must be told."""
        members = self._consumers.setdefault(data.group, {})
        known = members.get(consumer.peer)
        self._groups_of[consumer.peer].add(data.group)
        self._kept_bytes += _size_of(consumer) - (_size_of(known) if known is not None else 0)
        self._subscriptions[data.group] = _newer(self._subscriptions.get(data.group, {}), consumer.subscriptions)
        if known is None or not _is_same(known, consumer):
            if known is not None:
                self._watching.left(known)
            members[consumer.peer] = consumer
            self._watching.joined(consumer)
            return True
        known.beat_at = known.seen_at = consumer.beat_at
        before, known.subscriptions = known.subscriptions, consumer.subscriptions
        if _expressions(before) != _expressions(known.subscriptions):
            self._watching.joined(known)
        return before.keys() != known.subscriptions.keys()

    def _close(self, peer: Peer) -> None:
        for group in self._groups_of.pop(peer, set()):
            self._drop_producer(group, peer)
            self._drop_consumer(group, peer)
        self._said.pop(peer, None)

    def _drop_producer(self, group: str, peer: Peer) -> None:
        self._said.pop(peer, None)
        producers = self._producers.get(group, {})
        if producers.pop(peer, None) is None:
            return
        if not producers:
            del self._producers[group]
        self._kept_bytes -= heartbeats.PRODUCER_BYTES
        self._leave(group, peer)

    def _drop_consumer(self, group: str, peer: Peer) -> None:
        self._said.pop(peer, None)
        members = self._consumers.get(group, {})
        consumer = members.pop(peer, None)
        if consumer is None:
            return
        if not members:
            del self._consumers[group]
            self._subscriptions.pop(group, None)
        self._kept_bytes -= _size_of(consumer)
        self._leave(group, peer)
        self._watching.left(consumer)

    def _leave(self, group: str, peer: Peer) -> None:
        """Remove a group from those of a connection, unless it is also in it in its other role."""
        if peer not in self._producers.get(group, {}) and peer not in self._consumers.get(group, {}):
            self._groups_of.get(peer, set()).discard(group)


def _groups_in(heartbeat: bodies.Heartbeat) -> set[str]:
    return {each.group for each in heartbeat.producers} | {each.group for each in heartbeat.consumers}


def _size_of(consumer: Consumer) -> int:
    return heartbeats.size_of_consumer(consumer.subscriptions.values())


def _newer(
    known: Mapping[str, bodies.Subscription], beaten: Mapping[str, bodies.Subscription]
) -> dict[str, bodies.Subscription]:
    """Return the subscriptions of a heartbeat, each replaced by the known one if that has a higher version.

    Each member has its own versions, and its pulls are checked against them. [ConsumerGroupInfo.updateSubscription]
    """
    return {
        topic: known[topic] if topic in known and known[topic].version > each.version else each
        for topic, each in beaten.items()
    }


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _is_same(known: Consumer, other: Consumer) -> bool:
    """Return whether two entries are of the same member, whatever it subscribes to."""
    return (known.client_id, known.consume_type, known.message_model) == (
        other.client_id,
        other.consume_type,
        other.message_model,
    )


def _expressions(subscriptions: Mapping[str, bodies.Subscription]) -> dict[str, tuple[str, str]]:
    return {topic: (each.expression_type, each.expression) for topic, each in subscriptions.items()}
