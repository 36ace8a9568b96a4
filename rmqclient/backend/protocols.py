"""Protocols of a backend: what producers and consumers ask of the place where messages are kept.

===========================================  ============================================================
:class:`Backend`                             topics, queues, reading, and the way to the others
:class:`Sender`                              appends messages
:mod:`rmqclient.backend.transactions`        decides about half messages
:mod:`rmqclient.backend.replies`             brings replies to requesters
:mod:`rmqclient.backend.group_protocols`     members of groups, and the queues that they are granted
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
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.replies import Replies, ReplySender
from rmqclient.backend.transactions import OpenTransaction, Transactions
from rmqclient.backend.updates import UpdateReader
from rmqclient.filters.tag import TagFilter
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.names import PRODUCER_GROUP
from rmqclient.store import MemberInfo, MessageQueue, StoreConfig
from rmqclient.store.observe.summary import Group


class Buffer(Protocol):
    """Messages of one process that are not stored yet; safe for threads."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing is stored any more."""

    def add(self, message: Message, sharding_key: str | None) -> None:
        """Take a message, whose body must be bytes. Raises what a send of it would raise."""

    def flush(self) -> int:
        """Store every message now; return how many there were. Raises as a send."""

    def close(self) -> None:
        """Store every message and stop. Raises as a send; the buffer stays open if a later call may succeed."""


class Sender(Protocol):
    """Appends messages; safe for threads. Every method raises what :meth:`rmqclient.Producer.send` raises."""

    def check_usable(self) -> None:
        """Raise StoreClosed when nothing can be sent any more."""

    def encoded(self, message: Message) -> Message:
        """Return a message with the body that is stored, as bytes. Raises MessageRejected."""

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """Append a message. ``due_ms`` is when it is delivered, in ms since 1970; 0 delivers it at once."""

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """Append a message as :meth:`append` does, and never wait for a disk or a network.

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
        """Append a message that has its key already, unless one was appended with this key before.

        ``within`` limits how long ago; the result says which of both happened.
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
        """Append a received message again, to a queue of a topic, with exactly these properties."""

    def cancel(self, message_id: str) -> bool:
        """Cancel a message that waits for its time. False when it does not wait."""

    def wait_until_flushed(self, commit_log_end: int | None = None) -> None:
        """Return when the log is on the disk up to an offset; None stands for all that is in it.

        Raises NotFlushed, StorePoisoned.
        """

    def buffer(self, limit_bytes: int) -> Buffer:
        """Return a buffer of this process, for at most so many bytes of messages."""

    def close(self) -> None:
        """Return when every :meth:`append_async` has ended. Closing twice does nothing."""


class Span(NamedTuple):
    """The messages that a queue has."""

    min_offset: int
    """Queue offset of the oldest message."""
    max_offset: int
    """Queue offset that the next message will get."""


class Backend(Protocol):
    """Where messages are kept. Every method raises StoreClosed after :meth:`close`, and in a forked child."""

    @property
    def config(self) -> StoreConfig:
        """The settings that it works by."""

    @property
    def root(self) -> Path | str:
        """What a user named: the directory, or the URL of a cluster."""

    @property
    def namespace(self) -> str:
        """What tells its topics from topics of the same name elsewhere, in traces; may be empty."""

    @property
    def directory(self) -> Path:
        """Where this host keeps what belongs to the backend beside its messages; it need not exist."""

    def check_usable(self) -> None:
        """Raise StoreClosed after :meth:`close`, and in a forked child."""

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that have messages, or may get some. Raises UnknownTopic."""

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Return those that consumers get messages from; none without the permission. Raises UnknownTopic."""

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return those that new messages go to; there is one. Raises UnknownTopic, TopicNotWritable."""

    def create_topic(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic, or return the queues that it has. Raises TableFull, ConfigMismatch."""

    def cleanup_policy(self, topic: str) -> str:
        """Return ``delete`` or ``compact``. Raises UnknownTopic."""

    def span(self, queue: MessageQueue) -> Span:
        """Return which messages a queue has. Raises UnknownTopic."""

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored then or later; the max offset when there is none."""

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its place in a queue. Raises MessageExpired, StoreCorrupt."""

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on with a wanted tag. Raises UnknownTopic.

        The messages of a compressed batch come together, so there can be more. Damaged records are stepped over.
        """

    def messages_by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key, the newest first."""

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its unique id or its offset message id; None when no message has the id.

        Without ``topic`` a unique id is searched for in every topic.
        """

    def settle(self) -> None:
        """Return when :meth:`messages_by_key` finds what was sent before this call, by whichever process, dead or not.

        Raises StoreBusy when that takes too long.
        """

    def begin_ms(self) -> int | None:
        """Return when the oldest message was stored, in ms since 1970, if older ones were removed; None if none was."""

    def update_reader(self) -> UpdateReader:
        """Return what reads keys and values, many at a time, for one table."""

    def sender(
        self,
        make_topic: Callable[[str], list[MessageQueue]],
        *,
        prepare: bool = True,
        group: str = PRODUCER_GROUP,
    ) -> Sender:
        """Return what appends messages for one producer of a group.

        ``make_topic`` returns the queues of a topic that the sender does not know yet. ``prepare=False`` does no work
        ahead of the sends: for a producer that sends little, or waits for a flush of each message.
        """

    def transactions(self, group: str, *, durable: bool) -> Transactions:
        """Return what decides the transactions of a producer group; with ``durable``, a decision waits for a flush."""

    def open_transactions(self) -> Iterable[OpenTransaction]:
        """Return the undecided transactions: first those that were given up, then the others, each the oldest first."""

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commit a transaction or roll it back, as its producer would.

        Raises TransactionDecided, MessageExpired, and as a send.
        """

    def replies(self) -> Replies:
        """Return what takes the replies to the requests of one producer."""

    def reply_sender(self) -> ReplySender:
        """Return what sends replies."""

    def members(self) -> Members:
        """Return what takes part in groups, for one consumer."""

    def bell(self) -> ArrivalBell:
        """Return a bell that the senders to some queues ring."""

    def topic_bell(self) -> Bell:
        """Return a bell that rings when a topic is made."""

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return where a group goes on in a queue; None when it never had the queue. Raises UnknownTopic."""

    def commit_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Set where a group goes on in a queue. Raises QueueOwned while a member of the group has it."""

    def begin_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set where a new group begins, in all these queues or in none, and keep that on the disk.

        False, and nothing is done, when the group has one of the queues. Raises TableFull, StoreBusy.
        """

    def consumers(self, group: str | None = None) -> list[MemberInfo]:
        """Return the living members of a group, its broadcast members included, or those of every group."""

    def groups(self, group: str | None = None) -> list[Group]:
        """Return every group that has consumed or consumes, sorted by name; with a name, at least that group.

        A backend may know only of one group who has its queues.
        """

    def seek(self, offsets: Mapping[tuple[str, MessageQueue], int], *, at_ms: int | None = None) -> None:
        """Move groups in queues, by group and queue, and keep that on the disk. Members lose the queues.

        ``at_ms`` is the time that the offsets stand for, if they do: 0 for the begin of the queues, -1 for their end.

        Raises TableFull, StoreBusy, StoreFull.
        """

    def remove_group(self, group: str) -> None:
        """Forget a group that nobody runs: its offsets, its settings, and the failed messages that wait for it.

        A consumer that joins under the name later is a new group. Raises QueueOwned while a member runs.
        """

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        """Let groups take nothing more from queues, or again. Raises StoreBusy."""

    def alone(self, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """Keep every other process from what has this name, until the block ends. Raises StoreBusy."""

    def shared(self) -> Backend:
        """Return this backend for a user that does not own it: its ``close`` leaves this one open."""

    def close(self) -> None:
        """Leave. Closing twice does nothing."""
