"""Clients: connected producers and consumers by group, from their heartbeats.

A broker identifies a member by its connection [ConsumerManager, ProducerManager]. A client leaves a group by request
35, when its connection ends, and after 120 s without a heartbeat. Nothing here reads the store: :class:`Watching` is
told of changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from rmqclient.broker.clients import heartbeats
from rmqclient.broker.clients.member import Consumer, Members, Producer
from rmqclient.broker.request import Peer
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_M = TypeVar("_M", Producer, Consumer)

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
    """The connected clients; two connections with one client id are two members. For the thread of the event loop.

    All times are of ``ran_s``, the seconds in which this process runs (:mod:`rmqclient.store.runtime.awake`).
    """

    def __init__(self, watching: Watching, ran_s: Callable[[], float]) -> None:
        self._watching = watching
        self.ran_s = ran_s
        self.producers = Members[Producer]()
        self.consumers = Members[Consumer]()
        self._groups_of: dict[Peer, set[str]] = {}
        self._subscriptions: dict[str, dict[str, bodies.Subscription]] = {}
        self._kept_bytes = 0  # of all producers and consumers
        self._said: dict[Peer, bytes] = {}  # digest of the last heartbeat, while all of it still holds

    def repeats(self, peer: Peer, body: bytes) -> bool:
        """Take a heartbeat that equals the last one of its connection; return False for any other."""
        if self._said.get(peer) != _digest(body):
            return False
        now = self.ran_s()
        for group in self._groups_of[peer]:
            if (producer := self.producers.find(group, peer)) is not None:
                producer.beat_at = now
            if (consumer := self.consumers.find(group, peer)) is not None:
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
        now = self.ran_s()
        for each in heartbeat.producers:
            producer = Producer(each.group, heartbeat.client_id, peer, language, version, now)
            self._count(producer, self.producers.find(each.group, peer))
            self.producers.put(producer)
        changed = set()
        for data in heartbeat.consumers:
            consumer = Consumer(
                data.group, heartbeat.client_id, peer, language, version, data.consume_type, data.message_model,
                data.consume_from, {each.topic: each for each in data.subscriptions}, now, now,
            )  # fmt: skip
            if self._take(consumer):
                changed.add(data.group)
        return changed

    def leave(self, peer: Peer, producer_group: str | None, consumer_group: str | None) -> None:
        """Remove a connection from these groups; an empty name is ignored. [ClientManageProcessor.unregisterClient]"""
        if producer_group:
            self._drop(self.producers, producer_group, peer)
        if consumer_group:
            self._drop_consumer(consumer_group, peer)

    def end_silent(self) -> None:
        """Remove every client whose last heartbeat is older than :data:`SILENCE_S`."""
        oldest = self.ran_s() - SILENCE_S
        for producer in [each for each in self.producers if each.beat_at < oldest]:
            self._drop(self.producers, producer.group, producer.peer)
        for consumer in [each for each in self.consumers if each.beat_at < oldest]:
            _log.warning("group %s: %s is silent for %.0f s, and is out", consumer.group, consumer.client_id, SILENCE_S)
            self._drop_consumer(consumer.group, consumer.peer)

    def begin(self, peer: Peer, queue: MessageQueue) -> int | None:
        """Return a broadcast consumer's start offset in a queue; None after its first pull, and for other consumers."""
        for group in self._groups_of.get(peer, ()):
            consumer = self.consumers.find(group, peer)
            if consumer is not None and consumer.start_offsets.get(queue) is not None:
                return consumer.start_offsets[queue]
        return None

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
        known = [members.find(group, peer) for group in groups for members in (self.producers, self.consumers)]
        more = heartbeats.size_of(heartbeat) - sum(each.kept_bytes for each in known if each is not None)
        if more > 0 and self._kept_bytes + more > MOST_KEPT_BYTES:
            text = f"the heartbeats of all clients take {self._kept_bytes:,} bytes, and this one {more:,} more"
            raise AnswerError(ResponseCode.SYSTEM_BUSY, f"{text}; at most {MOST_KEPT_BYTES:,}")

    def _count(self, member: Producer | Consumer, known: Producer | Consumer | None) -> None:
        """Count a member in the place of the known one of its group and connection."""
        self._groups_of[member.peer].add(member.group)
        self._kept_bytes += member.kept_bytes - (known.kept_bytes if known is not None else 0)

    def _take(self, consumer: Consumer) -> bool:
        """Add or update a member; return whether the others must be told."""
        group = consumer.group
        known = self.consumers.find(group, consumer.peer)
        self._count(consumer, known)
        self._subscriptions[group] = _newer(self._subscriptions.get(group, {}), consumer.subscriptions)
        if known is None or not _is_same(known, consumer):
            if known is not None:
                self._watching.left(known)
            self.consumers.put(consumer)
            self._watching.joined(consumer)
            return True
        known.beat_at = known.seen_at = consumer.beat_at
        before, known.subscriptions = known.subscriptions, consumer.subscriptions
        if _expressions(before) != _expressions(known.subscriptions):
            self._watching.joined(known)
        return before.keys() != known.subscriptions.keys()

    def _close(self, peer: Peer) -> None:
        for group in self._groups_of.pop(peer, set()):
            self._drop(self.producers, group, peer)
            self._drop_consumer(group, peer)
        self._said.pop(peer, None)

    def _drop_consumer(self, group: str, peer: Peer) -> None:
        consumer = self._drop(self.consumers, group, peer)
        if consumer is not None:
            if not self.consumers.of(group):
                self._subscriptions.pop(group, None)
            self._watching.left(consumer)

    def _drop(self, members: Members[_M], group: str, peer: Peer) -> _M | None:
        """Remove a member, and its group from those of its connection unless it is also in it in its other role."""
        self._said.pop(peer, None)
        member = members.drop(group, peer)
        if member is not None:
            self._kept_bytes -= member.kept_bytes
            if self.producers.find(group, peer) is None and self.consumers.find(group, peer) is None:
                self._groups_of.get(peer, set()).discard(group)
        return member


def _groups_in(heartbeat: bodies.Heartbeat) -> set[str]:
    return {each.group for each in heartbeat.producers} | {each.group for each in heartbeat.consumers}


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
