"""Protocols of a backend: the interface of producers and consumers to a store or a cluster.

===========================================  ============================================================
:class:`Backend`                             topics, queues, reading, and access to the others
:class:`Sender`                              appends messages
:mod:`rmqclient.backend.transactions`        decides about half messages
:mod:`rmqclient.backend.replies`             receives and sends replies
:mod:`rmqclient.backend.group_protocols`     members of groups, and their queues
:mod:`rmqclient.backend.bells`               wake a thread when a group changes, or when messages arrive
===========================================  ============================================================

The store's own objects satisfy them structurally. Messages have one shape everywhere,
:class:`rmqclient.message.ReceivedMessage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqclient.backend.bells import ArrivalBell, Bell
from rmqclient.backend.futures import SendFuture
from rmqclient.backend.group_protocols import Members
from rmqclient.backend.limits import Limits
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.replies import Replies, ReplySender
from rmqclient.backend.transactions import OpenTransaction, Transactions
from rmqclient.backend.updates import UpdateReader
from rmqclient.filters.tag import TagFilter
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.names import PRODUCER_GROUP
from rmqclient.store import MemberInfo, MessageQueue
from rmqclient.store.observe.summary import Group


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
        topic: str,
        queue_id: int,
        properties: Mapping[str, str],
        *,
        reconsume_times: int,
        delay_level: int = 0,
        due_ms: int = 0,
    ) -> SendResult:
        """Append a copy of a received message to a queue of a topic, with exactly these properties."""

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


class Backend(Protocol):
    """A store or a cluster. Every method raises StoreClosed after :meth:`close`, and in a forked child."""

    @property
    def limits(self) -> Limits:
        """What it accepts and promises."""

    @property
    def root(self) -> Path | str:
        """The user's argument: the directory, or the URL of a cluster."""

    @property
    def namespace(self) -> str:
        """Name that distinguishes its topics in traces from topics of the same name elsewhere; may be empty."""

    @property
    def directory(self) -> Path:
        """Directory of this host for other data than messages; it need not exist."""

    def check_usable(self) -> None:
        """Raise StoreClosed after :meth:`close`, and in a forked child."""

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that have messages, or may get some. Raises UnknownTopic."""

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that consumers read; empty without the permission. Raises UnknownTopic."""

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues for new messages, at least one. Raises UnknownTopic, TopicNotWritable."""

    def create_topic(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic, or return the queues that it has. Raises TableFull, ConfigMismatch."""

    def cleanup_policy(self, topic: str) -> str:
        """Return ``delete`` or ``compact``. Raises UnknownTopic."""

    def span(self, queue: MessageQueue) -> Span:
        """Return the range of offsets that a queue has. Raises UnknownTopic."""

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored then or later, or else the max offset."""

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its queue offset. Raises MessageExpired, StoreCorrupt."""

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on with a wanted tag. Raises UnknownTopic.

        The messages of a compressed batch come together, so there can be more. Damaged records are skipped.
        """

    def messages_by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key, the newest first."""

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its unique id or its offset message id; None if no message has the id.

        Without ``topic`` a unique id is searched for in every topic.
        """

    def settle(self) -> None:
        """Wait until :meth:`messages_by_key` finds messages that any process, living or dead, sent before this call.

        Raises StoreBusy if that takes too long.
        """

    def begin_ms(self) -> int | None:
        """Return the store time of the oldest message, in ms since 1970; None if no older ones were removed."""

    def update_reader(self) -> UpdateReader:
        """Return a bulk reader of keys and values for one table."""

    def sender(
        self,
        make_topic: Callable[[str], list[MessageQueue]],
        *,
        prepare: bool = True,
        group: str = PRODUCER_GROUP,
    ) -> Sender:
        """Return a sender for one producer of a group.

        ``make_topic`` returns the queues of a topic that is new to the sender. ``prepare=False`` skips work ahead of
        the sends, for a producer that sends little, or waits for a flush of each message.
        """

    def transactions(self, group: str, *, durable: bool) -> Transactions:
        """Return the transactions of a producer group; with ``durable``, a decision waits for a flush."""

    def open_transactions(self) -> Iterable[OpenTransaction]:
        """Return the undecided transactions: first those that were given up, then the others, each the oldest first."""

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commit a transaction or roll it back, as its producer would.

        Raises TransactionDecided, MessageExpired, and as a send.
        """

    def replies(self) -> Replies:
        """Return the replies to one producer's requests."""

    def reply_sender(self) -> ReplySender:
        """Return a sender of replies."""

    def members(self) -> Members:
        """Return the memberships of one consumer."""

    def bell(self) -> ArrivalBell:
        """Return a bell that senders to armed queues ring."""

    def topic_bell(self) -> Bell:
        """Return a bell that rings when a topic is made."""

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's offset in a queue; None if it never had the queue. Raises UnknownTopic."""

    def commit_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Set a group's offset in a queue. Raises QueueOwned while a member of the group has it."""

    def begin_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set the start offsets of a new group, in all these queues or none of them, on disk.

        Does nothing and returns False if the group already has one of the queues. Raises TableFull, StoreBusy.
        """

    def consumers(self, group: str | None = None) -> list[MemberInfo]:
        """Return the living members, including broadcast members, of a group or of every group."""

    def groups(self, group: str | None = None) -> list[Group]:
        """Return every group that has consumed or consumes, sorted by name; with a name, at least that group.

        A backend may know the owners of queues only for one named group.
        """

    def seek(self, offsets: Mapping[tuple[str, MessageQueue], int], *, at_ms: int | None = None) -> None:
        """Move groups in queues, by group and queue, on disk. Members lose the queues.

        ``at_ms`` is the time that the offsets were computed from, if any: 0 for the begin of the queues, -1 for their
        end.

        Raises TableFull, StoreBusy, StoreFull.
        """

    def remove_group(self, group: str) -> None:
        """Remove a group without members: its offsets, its settings, and the failed messages that wait for it.

        A consumer that joins under the name later is a new group. Raises QueueOwned while a member runs.
        """

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        """Pause or resume groups in queues. Raises StoreBusy."""

    def alone(self, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """Hold a named mutex between all processes until the block ends. Raises StoreBusy."""

    def shared(self) -> Backend:
        """Return this backend for another user, whose ``close`` leaves it open."""

    def close(self) -> None:
        """Leave. Closing twice does nothing."""
