"""Cluster backend: the backend of a RocketMQ cluster. It wires the parts of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from rmqclient.backend.bells import ArrivalBell, Bell
from rmqclient.backend.group_protocols import Members
from rmqclient.backend.limits import Limits
from rmqclient.backend.protocols import Sender, Span
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.replies import Replies, ReplySender
from rmqclient.backend.transactions import OpenTransaction, Transactions
from rmqclient.backend.updates import MessageUpdates, UpdateReader
from rmqclient.cluster.address.state_directory import cluster_directory
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.beginning import begin_group
from rmqclient.cluster.groups.bells import ClusterBell
from rmqclient.cluster.groups.members import ClusterMembers
from rmqclient.cluster.producing.producing import Producing
from rmqclient.cluster.reading.alone import Alone
from rmqclient.cluster.reading.arrival_bell import ArrivalBell as ClusterArrivalBell
from rmqclient.cluster.reading.finding import Finding
from rmqclient.cluster.reading.groups import Groups
from rmqclient.cluster.reading.open_transactions import OpenTransactions
from rmqclient.cluster.reading.queues import Queues
from rmqclient.cluster.reading.removing import remove_group
from rmqclient.cluster.reading.topics import Topics
from rmqclient.errors import NotOnCluster
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.names import PRODUCER_GROUP
from rmqclient.place import shown
from rmqclient.store import MemberInfo, MessageQueue
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.observe.summary import Group

_READ_AT_ONCE = 32
_EVERY_TAG = TagFilter(frozenset())


class ClusterBackend:
    """The cluster of one URL."""

    def __init__(self, url: str) -> None:
        self.root = url
        self.limits = Limits()
        self.steps = None
        self._client = ClusterClient(ClusterURL.parse(url))
        self._producing = Producing(self._client, self.limits)
        self._topics = Topics(self._client)
        self._queues = Queues(self._client)
        self._finding = Finding(self._client)
        self._groups = Groups(self._client, self._queues)
        self._open_transactions = OpenTransactions(self._client, self._queues, self._finding)
        self._alone = Alone(self._client)

    @property
    def namespace(self) -> str:
        """The namespace of the URL; empty if it has none."""
        return self._client.url.namespace

    @property
    def directory(self) -> Path:
        """Directory of this host for the cluster's state."""
        return cluster_directory("clusters", self._client.url.name_servers)

    def check_usable(self) -> None:
        """Raise StoreClosed after :meth:`close`, and in a forked child."""
        self._client.check_usable()

    def topics(self) -> list[str]:
        """Return the names of all topics of the namespace, sorted."""
        return self._topics.all()

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic. Raises UnknownTopic."""
        return self._topics.queues(topic)

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Return :meth:`queues`, because a route has no other readable queues."""
        return self._topics.queues(topic)

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that accept messages. Raises UnknownTopic, TopicNotWritable."""
        return self._topics.write_queues(topic)

    def create_topic(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic with ``queue_count`` queues on every master, or return the queues that it has.

        Raises NotOnCluster for a compact topic on a broker older than 5.0, ConfigMismatch.
        """
        return self._topics.create(topic, queue_count, cleanup_policy)

    def cleanup_policy(self, topic: str) -> str:
        """Return ``delete`` or ``compact``. Raises UnknownTopic."""
        return self._topics.cleanup_policy(topic)

    def span(self, queue: MessageQueue) -> Span:
        """Return the range of offsets that a queue has. Raises UnknownTopic."""
        return self._queues.span(queue)

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored then or later, or else the max offset."""
        return self._queues.offset_by_time(queue, timestamp_ms)

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its queue offset. Raises MessageExpired."""
        return self._queues.message_at(queue, queue_offset)

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on with a wanted tag. Raises UnknownTopic."""
        return self._queues.read(queue, offset, limit, wanted)

    def messages_by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key, the newest first; at most 64 of each broker."""
        return self._finding.by_key(topic, key, begin_ms, end_ms, limit)

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its unique id or its offset message id; None if no message has the id."""
        found = self._finding.by_offset_id(message_id)
        if found is not None and topic in (None, found.topic):
            return found
        for name in self.topics() if topic is None else [topic]:
            for message in self.messages_by_key(name, message_id, 0, END_OF_TIME, 64):
                if message.message_id == message_id:
                    return message
        return None

    def settle(self) -> None:
        """Wait until messages sent before can be found by their keys. Raises StoreBusy after 5 s."""
        self._finding.settle()

    def begin_ms(self) -> int | None:
        """Return the time since which all brokers have all messages; None if none were removed."""
        return self._finding.begin_ms()

    def update_reader(self) -> UpdateReader:
        """Return a reader of keys and values for one table."""
        return MessageUpdates(
            lambda queue, offset: self.read(queue, offset, _READ_AT_ONCE, _EVERY_TAG),
            lambda message: message.store_timestamp << 64 | message.commit_log_offset,
            reads_in_order=False,
        )

    def sender(
        self,
        make_topic: Callable[[str], list[MessageQueue]],
        *,
        prepare: bool = True,
        group: str = PRODUCER_GROUP,
    ) -> Sender:
        """Return a sender for one producer. Brokers make topics, so ``make_topic`` is not called."""
        del make_topic, prepare
        return self._producing.sender(group)

    def transactions(self, group: str, *, durable: bool) -> Transactions:
        """Return the transactions of a producer group. Brokers flush as configured, so ``durable`` has no effect."""
        del durable
        return self._producing.transactions(group)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Return the undecided transactions of all masters; see :mod:`rmqclient.cluster.reading.open_transactions`."""
        return self._open_transactions.all()

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commit a transaction or roll it back. Raises NotOnCluster for one that a broker gave up."""
        self._open_transactions.decide(transaction, commit=commit)

    def replies(self) -> Replies:
        """Return the replies to one producer's requests."""
        return self._producing.replies()

    def reply_sender(self) -> ReplySender:
        """Return a sender of replies."""
        return self._producing.reply_sender()

    def members(self) -> Members:
        """Return the memberships of one consumer."""
        return ClusterMembers(self._client.url)

    def consumers(self, group: str | None = None) -> list[MemberInfo]:
        """Return the members of a group, or of every group, as the brokers know them."""
        return self._groups.members(group)

    def bell(self) -> ArrivalBell:
        """Return a bell that rings when messages arrive."""
        return ClusterArrivalBell(self._client, self._queues)

    def topic_bell(self) -> Bell:
        """Return a bell that never rings; waiters poll at their time-out."""
        return ClusterBell()

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's offset in a queue; None if it never had the queue."""
        return self._groups.committed_offset(group, queue)

    def commit_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Set a group's offset in a queue. Raises QueueOwned while members of it consume the topic."""
        self._groups.commit(group, queue, queue_offset)

    def begin_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set the start offsets of a new group; False if it already has one of the queues."""
        return begin_group(self._client, self._client.url.wrap(group), offsets)

    def groups(self, group: str | None = None) -> list[Group]:
        """Return every group as its brokers know it. Retries that wait are known to nobody."""
        return self._groups.all(group)

    def seek(self, offsets: Mapping[tuple[str, MessageQueue], int], *, at_ms: int | None = None) -> None:
        """Move groups in queues; see :meth:`rmqclient.cluster.reading.groups.Groups.seek`."""
        self._groups.seek(offsets, at_ms)

    def remove_group(self, group: str) -> None:
        """Forget a group; see :mod:`rmqclient.cluster.reading.removing`."""
        remove_group(self._client, group)

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        """Raise NotOnCluster: brokers cannot pause a group in a topic."""
        del group_queues
        what = "paused" if paused else "resumed"
        raise NotOnCluster(f"a group cannot be {what} on a cluster, whose brokers have no such state: stop its workers")

    def alone(self, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """Hold a named mutex between all processes until the block ends."""
        return self._alone.keep_others_out(name, timeout_s)

    def shared(self) -> ClusterBackend:
        """Return this backend for another user, whose ``close`` leaves it open."""
        return SharedClusterBackend(self)

    def close(self) -> None:
        """Leave the cluster. Closing twice does nothing."""
        self._client.close()

    def __repr__(self) -> str:
        return f"ClusterBackend({shown(self.root)!r})"


class SharedClusterBackend(ClusterBackend):
    """The same client, for a user that leaves it open."""

    def __init__(self, owned: ClusterBackend) -> None:
        self.__dict__.update(owned.__dict__)

    def close(self) -> None:
        """Do nothing: the client belongs to another user."""
