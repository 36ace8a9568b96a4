"""Cluster backend: a RocketMQ cluster, which a URL names. It wires the rooms of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from rmqclient.backend.bells import ArrivalBell, Bell
from rmqclient.backend.group_protocols import Members
from rmqclient.backend.protocols import GroupQueue, Sender, Span
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.replies import Replies, ReplySender
from rmqclient.backend.transactions import Transactions
from rmqclient.backend.updates import UpdateReader
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.producing.producing import Producing
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.names import PRODUCER_GROUP
from rmqclient.place import shown
from rmqclient.store import MessageQueue, StoreConfig


class ClusterBackend:
    """The cluster of one URL."""

    def __init__(self, url: str) -> None:
        self.root = url
        self.config = StoreConfig()
        self._client = ClusterClient(ClusterURL.parse(url))
        self._producing = Producing(self._client, self.config)

    @property
    def directory(self) -> Path:
        """Where this host keeps what belongs to the cluster."""
        raise NotImplementedError

    def check_usable(self) -> None:
        """Raise StoreClosed after :meth:`close`, and in a forked child."""
        self._client.check_usable()

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        raise NotImplementedError

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic. Raises UnknownTopic."""
        raise NotImplementedError

    def create_topic(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic on every master, or return the queues that it has."""
        raise NotImplementedError

    def cleanup_policy(self, topic: str) -> str:
        """Return ``delete`` or ``compact``. Raises UnknownTopic."""
        raise NotImplementedError

    def span(self, queue: MessageQueue) -> Span:
        """Return which messages a queue has. Raises UnknownTopic."""
        raise NotImplementedError

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored then or later; the max offset when there is none."""
        raise NotImplementedError

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its place in a queue. Raises MessageExpired."""
        raise NotImplementedError

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on with a wanted tag. Raises UnknownTopic."""
        raise NotImplementedError

    def messages_by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key, the newest first."""
        raise NotImplementedError

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its unique id or its offset message id; None when no message has the id."""
        raise NotImplementedError

    def settle(self) -> None:
        """Return when messages that were sent before can be found by their keys."""
        raise NotImplementedError

    def begin_ms(self) -> int | None:
        """Return when the oldest message was stored, if older ones were removed."""
        raise NotImplementedError

    def update_reader(self) -> UpdateReader:
        """Return what reads keys and values for one table."""
        raise NotImplementedError

    def sender(
        self,
        make_topic: Callable[[str], list[MessageQueue]],
        *,
        prepare: bool = True,
        group: str = PRODUCER_GROUP,
    ) -> Sender:
        """Return what sends the messages of one producer. Brokers make topics, so ``make_topic`` is not called."""
        del make_topic, prepare
        return self._producing.sender(group)

    def transactions(self, group: str, *, durable: bool) -> Transactions:
        """Return what decides the transactions of a producer group. Brokers flush as they are configured."""
        del durable
        return self._producing.transactions(group)

    def replies(self) -> Replies:
        """Return what takes the replies to the requests of one producer."""
        return self._producing.replies()

    def reply_sender(self) -> ReplySender:
        """Return what sends replies."""
        return self._producing.reply_sender()

    def members(self) -> Members:
        """Return what takes part in groups, for one consumer."""
        raise NotImplementedError

    def bell(self) -> ArrivalBell:
        """Return a bell that rings when messages arrive."""
        raise NotImplementedError

    def topic_bell(self) -> Bell:
        """Return a bell that rings when a topic is made."""
        raise NotImplementedError

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return where a group goes on in a queue; None when it never had the queue."""
        raise NotImplementedError

    def commit_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Set where a group goes on in a queue. Raises QueueOwned while a member of the group has it."""
        raise NotImplementedError

    def begin_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set where a new group begins; False when it has one of the queues."""
        raise NotImplementedError

    def group_queues(self) -> list[GroupQueue]:
        """Return how every group stands in every queue that it ever had."""
        raise NotImplementedError

    def seek(self, offsets: Mapping[tuple[str, MessageQueue], int]) -> None:
        """Move groups in queues."""
        raise NotImplementedError

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        """Let groups take nothing more from queues, or again."""
        raise NotImplementedError

    def alone(self, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """Keep every other process from what has this name, until the block ends."""
        raise NotImplementedError

    def shared(self) -> ClusterBackend:
        """Return this backend for a user that does not own it."""
        return self

    def close(self) -> None:
        """Leave the cluster. Closing twice does nothing."""
        self._client.close()

    def __repr__(self) -> str:
        return f"ClusterBackend({shown(self.root)!r})"
