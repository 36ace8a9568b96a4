"""Protocols of a backend's parts.

===========================================  ================================================================
:class:`Topics`, :class:`Queues`             what there is, and reading it
:class:`Messages`                            finds messages by keys and ids
:class:`Producers`, :class:`Sender`          append messages
:class:`StepStore`                           keeps the results of durable steps
:mod:`rmqclient.backend.transactions`        decides about half messages
:mod:`rmqclient.backend.replies`             receives and sends replies
:mod:`rmqclient.backend.group_protocols`     groups, their members, and their queues
:mod:`rmqclient.backend.bells`               wake a thread when a group changes, or when messages arrive
===========================================  ================================================================

Messages have one shape everywhere, :class:`rmqclient.message.ReceivedMessage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from rmqclient.backend.bells import ArrivalBell, Bell
from rmqclient.backend.futures import SendFuture
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.replies import Replies, ReplySender
from rmqclient.backend.transactions import Transactions
from rmqclient.backend.updates import UpdateReader
from rmqclient.filters.tag import TagFilter
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.names import PRODUCER_GROUP
from rmqclient.store import MessageQueue


class Buffer(Protocol):
    """Messages of one process that are not stored yet. Safe for threads."""

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""

    def add(self, message: Message, sharding_key: str | None) -> None:
        """Add a message, whose body must be bytes. Raises as a send of it."""

    def flush(self) -> int:
        """Store every message now; return their number. Raises as a send."""

    def close(self) -> None:
        """Store every message and stop. Raises as a send; the buffer stays open if a later call may succeed."""


class Sender(Protocol):
    """Appends messages. Safe for threads. Every method raises as :meth:`rmqclient.Producer.send`."""

    def check_usable(self) -> None:
        """Raise StoreClosed if the sender can no longer be used."""

    def encoded(self, message: Message) -> Message:
        """Return a message with its encoded body, as bytes. Raises MessageRejected."""

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """Append a message. ``due_ms`` is its time of delivery, in ms since 1970; 0 for at once."""

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """As :meth:`append`, but never wait for a disk or a network.

        The future ends when a send would return. Errors that are known at once are raised here.
        """

    def append_batch(
        self, messages: Sequence[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        """Append messages of one topic to one queue, all or none."""

    def append_once(
        self,
        message: Message,
        key: str,
        within: timedelta | None,
        sharding_key: str | None,
        delay_level: int,
        due_ms: int,
    ) -> SendResult:
        """Append a message, which already has the key, unless one was appended with this key before.

        ``within`` limits the age of the earlier one; the result says which of both happened.
        """

    def append_inner_batch(
        self,
        messages: Sequence[Message],
        pack: Callable[[bytes], tuple[bytes, int]],
        sharding_key: str | None = None,
        *,
        most_bytes: int,
    ) -> list[SendResult]:
        """Append messages as one record, whose body ``pack`` compresses. Raises BatchTooLarge, too."""

    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Append the half message of a transaction of a producer group."""

    def append_copy(
        self,
        message: ReceivedMessage,
        queue: MessageQueue,
        properties: Mapping[str, str],
        *,
        reconsume_times: int,
        delay_level: int = 0,
        due_ms: int = 0,
    ) -> SendResult:
        """Append a copy of a received message to a queue, with exactly these properties.

        A cluster chooses the queue of the topic if ``queue`` has no broker name.
        """

    def cancel(self, message_id: str) -> bool:
        """Cancel a timer message. False if it does not wait."""

    def wait_until_flushed(self, commit_log_end: int | None = None) -> None:
        """Wait until the log is on disk up to an offset; None for its current end.

        Raises NotFlushed, StorePoisoned.
        """

    def buffer(self, limit_bytes: int) -> Buffer:
        """Return a buffer of this process, with ``limit_bytes`` of messages at most."""

    def close(self) -> None:
        """Wait for every :meth:`append_async`. Closing twice does nothing."""


class Span(NamedTuple):
    """The range of offsets that a queue has."""

    min_offset: int
    """Queue offset of the oldest message."""
    max_offset: int
    """Queue offset of the next message to be stored."""


class Topics(Protocol):
    """The topics of a backend, by the application's names."""

    def names(self) -> list[str]:
        """Return the names of all topics, sorted; of a store that lost ``topics.json``, including removed ones."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that have messages, or may get some. Raises UnknownTopic."""

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that consumers read; empty without the permission. Raises UnknownTopic."""

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues for new messages, at least one. Raises UnknownTopic, TopicNotWritable."""

    def create(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic, or return the queues that it has. Raises TableFull, ConfigMismatch.

        On a cluster each master gets ``queue_count`` queues; a compact topic raises NotOnCluster before 5.0.
        """

    def cleanup_policy(self, topic: str) -> str:
        """Return ``delete`` or ``compact``. Raises UnknownTopic."""

    def bell(self) -> Bell:
        """Return a bell that rings when a topic is made; on a cluster never: waiters poll at their time-out."""


class Queues(Protocol):
    """The queues of a backend, for readers that are not members of a group. Methods raise UnknownTopic."""

    def span(self, queue: MessageQueue) -> Span:
        """Return the range of offsets that a queue has."""

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored then or later, or else the max offset."""

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its queue offset. Raises MessageExpired, StoreCorrupt."""

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on with a wanted tag.

        The messages of a compressed batch come together, so there can be more. Damaged records are skipped.
        """

    def bell(self) -> ArrivalBell:
        """Return a bell that senders to armed queues ring."""

    def update_reader(self) -> UpdateReader:
        """Return a bulk reader of keys and values for one table."""


class Messages(Protocol):
    """The messages of a backend, by their keys and ids."""

    def by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key, the newest first; of each broker at most 64.

        Raises StoreFull, StoreBusy.
        """

    def topics_with(self, key: str, topics: Sequence[str]) -> list[str]:
        """Return those of some topics that may have messages with a key, in their order; all if a look is as dear.

        Raises as :meth:`by_key`.
        """

    def by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its unique id or its offset message id; None if no message has the id.

        Without ``topic`` a unique id is searched for in every topic. Raises StoreFull, StoreBusy.
        """

    def settle(self) -> None:
        """Wait until :meth:`by_key` finds messages that any process, living or dead, sent before this call.

        Raises StoreBusy if that takes too long, StoreCorrupt, LimitReached.
        """

    def begin_ms(self) -> int | None:
        """Return the time since which it has all messages, in ms since 1970; None if no older ones were removed."""


class ProducerSettings(NamedTuple):
    """What a backend has to know of a producer; each uses what it needs."""

    make_topic: Callable[[str], list[MessageQueue]]
    """Returns the queues of a topic that is new to the producer. Brokers make topics by themselves."""
    group: str = PRODUCER_GROUP
    durable: bool = False
    """Whether a decision about a transaction waits for a flush. Brokers flush as they are configured."""
    client_id: str | None = None
    """Name under which a transaction producer of a store is asked about undecided messages; None makes a name."""
    prepare: bool = False
    """Whether to work ahead of the sends, for a producer that sends much and waits for no flush of each message."""


class Producers(Protocol):
    """What the producers of a backend are made of."""

    def sender(self, settings: ProducerSettings) -> Sender:
        """Return a sender for one producer."""

    def transactions(self, settings: ProducerSettings) -> Transactions:
        """Return the transactions of a producer's group."""

    def replies(self) -> Replies:
        """Return the replies to one producer's requests."""

    def reply_sender(self) -> ReplySender:
        """Return a sender of replies."""


class StepSender(Sender, Protocol):
    """A sender of results of steps, and of copies of waiting messages."""

    def deliver_early(self, message: ReceivedMessage) -> SendResult | None:
        """Deliver a timer message before its time; None if it no longer waits. Raises as a send."""


class StepStore(Protocol):
    """A store that keeps the results of steps."""

    @property
    def log_begin(self) -> int:
        """Commit log offset of the oldest message. One before it, in a compacted file, may outlive its results."""

    def has(self, topic: str) -> bool:
        """Return whether a topic exists. This is cheap."""

    def sender(self) -> StepSender:
        """Return a sender that makes a missing topic, with one queue."""
