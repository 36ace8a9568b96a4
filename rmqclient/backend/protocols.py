"""Protocols of a backend: what producers and consumers ask of the place where messages are kept.

=================  ====================================================================================
:class:`Backend`   topics, queues, reading, and the way to the four others
:class:`Sender`    appends messages
:class:`Members`   takes part in groups, for one consumer: all its members share one thread
:class:`Membership`  one member: what it sees of its group, and the queues that it is granted
:class:`Grant`     one queue, granted to one member under one epoch
:class:`Bell`      wakes a thread when a group changes, an :class:`ArrivalBell` when messages arrive
=================  ====================================================================================

The store's own objects satisfy them structurally: the compiled :class:`rmqclient.store.QueueGrant` is the grant, and a
handler thread calls it directly. Messages have one shape everywhere, :class:`rmqclient.message.ReceivedMessage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import NamedTuple, Protocol

from rmqclient.backend.pull_result import PullResult
from rmqclient.filters import MessageFilter
from rmqclient.filters.tag import TagFilter
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.store import MemberInfo, MessageQueue, StoreConfig


class Bell(Protocol):
    """Wakes sleeping threads. Any thread or process may ring it."""

    def heard(self) -> int:
        """Return a number that changes at each ring, for :meth:`wait`."""

    def wait(self, heard: int, timeout_s: float) -> None:
        """Sleep until the bell rings, at most ``timeout_s`` seconds; return at once if it rang since ``heard``."""

    def ring(self) -> None:
        """Wake every thread that sleeps on this bell."""


class ArrivalBell(Bell, Protocol):
    """A bell that the senders to some queues ring, once each time that it is armed."""

    lane: int
    """The number by which a :class:`Grant` knows this bell."""

    def arm(self, *queues: MessageQueue) -> int:
        """Ask the next sender to each of these queues to ring; return :meth:`heard`. Raises UnknownTopic."""


class Grant(Protocol):
    """One message queue, granted to one member of a group under one epoch.

    Taking is for one thread at a time; acknowledging is safe for threads.
    """

    queue: MessageQueue
    group_queue: int
    """The number by which a :class:`RunningSlot` knows this queue of this group."""
    epoch: int
    next_offset: int
    """Queue offset of the message that comes next."""
    damaged: list[tuple[int, int, int]]
    """Messages that a take stepped over: queue offset, commit log offset, and what stands there."""
    expired: int
    """How many messages were removed before they were taken."""
    has_unopened: bool
    """Whether a compressed batch was taken that cannot be opened."""

    @property
    def committed_offset(self) -> int:
        """Every message below it is finished."""

    @property
    def max_offset(self) -> int:
        """Queue offset that the next message of the queue will get."""

    @property
    def has_more(self) -> bool:
        """Whether there are messages that were not taken."""

    @property
    def valid(self) -> bool:
        """Whether the queue still belongs to this grant: no later epoch has begun."""

    @property
    def lease_is_over(self) -> bool:
        """Whether the lease has run out and was not renewed, so that another member may get the queue."""

    @property
    def paused(self) -> bool:
        """Whether the group takes nothing from this queue."""

    def show(self, flow_control: int) -> None:
        """Let other processes see why this queue gives nothing; 0 when it does."""

    def renew(self, lease_ms: int) -> bool:
        """Let the lease end ``lease_ms`` from now. False when the epoch is old. Raises StoreBusy."""

    def release(self) -> bool:
        """Give the queue back. False when the epoch is old: it has another owner. Raises StoreBusy."""

    def arm(self, lane: int) -> bool:
        """Ask the next sender to this queue to ring the bell of this lane. True when there is something to take."""

    def take(self, limit: int, span: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages, none more than ``span`` above the committed offset."""

    def begin(self, message: ReceivedMessage) -> bool:
        """Count an attempt of the message at the head of an ordered queue. False when the epoch is old."""

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Mark a message finished. False when the epoch is old."""

    def finish(self, messages: list[ReceivedMessage]) -> list[int]:
        """Mark messages finished inside of their batches; return the queue offsets to acknowledge now."""

    def acknowledge_offsets(self, offsets: list[int]) -> bool:
        """Mark the messages at these queue offsets finished. False when the epoch is old."""


class RunningSlot(Protocol):
    """What one handler thread says before it runs something, for whoever finds its process dead."""

    def serve(self, group_queue: int) -> None:
        """Say of which queue the next messages are: :attr:`Grant.group_queue`."""

    def begin(self, message: ReceivedMessage) -> None:
        """Say that the handler of this message is about to run."""

    def begin_batch(self, messages: list[ReceivedMessage]) -> None:
        """Say that the handler of these messages is about to run."""

    def rest(self) -> None:
        """Say that no handler runs."""

    def release(self) -> None:
        """Give the slot back."""


class Death(Protocol):
    """A message was being handled when a process died."""

    @property
    def begun(self) -> int:
        """How often the message had been begun from this queue, 1 for the first time."""

    @property
    def client_id(self) -> str:
        """Of the member that died; empty when it is not known any more."""

    @property
    def pid(self) -> int:
        """Process id of the member that died."""


class Seat(Protocol):
    """A member of a group, as the other members count it."""

    @property
    def client_id(self) -> str:
        """The name that the members are sorted by."""

    @property
    def key(self) -> tuple[int, int]:
        """Identifies the member; :meth:`Membership.owners` gives it of each queue."""


class Membership(Protocol):
    """One member of a group, for one topic. Except for :attr:`bell`, for one thread."""

    group: str
    topic: str
    client_id: str

    @property
    def bell(self) -> ArrivalBell:
        """The bell that the handler threads of this member sleep on."""

    def beat(self) -> None:
        """Show that this process runs."""

    def watch(self) -> bool:
        """Look whether the member that this one watches has died. True when it has: every member is woken then."""

    def counted(self, lease_ms: int) -> tuple[Seat, ...]:
        """Return the members that the queues are allocated to, sorted by client id.

        A member whose last beat is older than ``lease_ms`` is not counted.
        """

    def owners(self, queues: Sequence[MessageQueue]) -> tuple[tuple[int, int], ...]:
        """Return the :attr:`Seat.key` of the member that has each queue; ``(0, 0)`` for a queue without an owner."""

    def grant(self, queue: MessageQueue, wanted: MessageFilter, lease_ms: int) -> Grant | None:
        """Become the owner of a queue if it is free, and return what takes its messages; None if it is not free.

        A group that never had the queue begins at its oldest message. Raises UnknownTopic, TableFull, StoreBusy.
        """

    def interrupted(self, grant: Grant) -> Mapping[int, Sequence[Death]]:
        """Return, by queue offset, the messages that processes died with before this grant, the last death last."""

    def tell(self, seats: Iterable[Seat]) -> None:
        """Wake these members, so that they look at once."""

    def claim(self, count: int) -> Sequence[RunningSlot]:
        """Take a slot for each of ``count`` handler threads. Raises TableFull, StoreBusy."""

    def leave(self) -> None:
        """End the membership. Queues must be released before."""


class Members(Protocol):
    """The memberships of one consumer. One thread sees to all of them and sleeps on :attr:`bell`."""

    @property
    def bell(self) -> Bell:
        """Rings when a member joins or leaves or a topic is made, and when another member tells one of these.

        A first join replaces this bell by another one.
        """

    def all(self) -> Sequence[MemberInfo]:
        """Return every member whose process runs."""

    def has(self, group: str, topic: str) -> bool:
        """Tell whether a group has a living member for a topic, in any process."""

    def join(self, group: str, topic: str, client_id: str, subscription: str) -> Membership:
        """Become a member. ``subscription`` must be the same for all members of the group that consume the topic.

        Raises SubscriptionMismatch when a living member has another one, ClientIdInUse when one has the same client
        id, InvalidName for a client id that is empty or too long, TableFull, StoreBusy.
        """


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


class Span(NamedTuple):
    """The messages that a queue has."""

    min_offset: int
    """Queue offset of the oldest message."""
    max_offset: int
    """Queue offset that the next message will get."""


class GroupQueue(NamedTuple):
    """How a group stands in one queue, as an onlooker sees it."""

    group: str
    """Of a broadcast group, with the name of the member."""
    queue: MessageQueue
    committed_offset: int
    acknowledged_ahead: int
    """Messages above the committed offset that are finished."""
    owner: tuple[int, int]
    """:attr:`Seat.key` of the member that was granted the queue last; the member may be dead."""
    epoch: int
    paused: bool
    flow_control: int
    """What :meth:`Grant.show` was given last."""
    held_attempts: int
    """Attempts of the failed message that an ordered queue is held by; 0 without such a message."""


class Backend(Protocol):
    """Where messages are kept. Every method raises StoreClosed after :meth:`close`, and in a forked child."""

    @property
    def config(self) -> StoreConfig:
        """The settings that it works by."""

    def check_usable(self) -> None:
        """Raise StoreClosed after :meth:`close`, and in a forked child."""

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic. Raises UnknownTopic."""

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

    def sender(self, make_topic: Callable[[str], list[MessageQueue]], *, prepare: bool = True) -> Sender:
        """Return what appends messages for one producer.

        ``make_topic`` returns the queues of a topic that the sender does not know yet. ``prepare=False`` does no work
        ahead of the sends: for a producer that sends little, or waits for a flush of each message.
        """

    def members(self) -> Members:
        """Return what takes part in groups, for one consumer."""

    def bell(self) -> ArrivalBell:
        """Return a bell that the senders to some queues ring."""

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return where a group goes on in a queue; None when it never had the queue. Raises UnknownTopic."""

    def commit_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Set where a group goes on in a queue. Raises QueueOwned while a member of the group has it."""

    def begin_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set where a new group begins, in all these queues or in none, and keep that on the disk.

        False, and nothing is done, when the group has one of the queues. Raises TableFull, StoreBusy.
        """

    def group_queues(self) -> list[GroupQueue]:
        """Return how every group stands in every queue that it ever had."""

    def seek(self, offsets: Mapping[tuple[str, MessageQueue], int]) -> None:
        """Move groups in queues, by group and queue, and keep that on the disk. Members lose the queues.

        Raises TableFull, StoreBusy, StoreFull.
        """

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        """Let groups take nothing more from queues, or again. Raises StoreBusy."""

    def alone(self, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """Keep every other process from what has this name, until the block ends. Raises StoreBusy."""

    def shared(self) -> Backend:
        """Return this backend for a user that does not own it: its ``close`` leaves this one open."""

    def close(self) -> None:
        """Leave. Closing twice does nothing."""
