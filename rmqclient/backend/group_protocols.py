"""Group protocols: the interface of consumers to the groups of a backend.

===================  ================================================================================
:class:`Groups`      progress of groups, and moving them, for users that are not members
:class:`Members`     the memberships of one consumer, which share one thread
:class:`Membership`  one member: its view of the group, and its queues
:class:`Grant`       one queue, granted to one member under one epoch
:class:`RunningSlot` a record of the messages that a handler thread runs
===================  ================================================================================

The compiled :class:`rmqclient.store.QueueGrant` and :class:`rmqclient.store.Running` satisfy two of them structurally,
so a handler thread calls them directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rmqclient.backend.bells import ArrivalBell, Bell
from rmqclient.message import ReceivedMessage
from rmqclient.store import MemberInfo, MessageQueue, Strained

if TYPE_CHECKING:
    from rmqclient.filters import MessageFilter
    from rmqclient.store.observe.summary import Group


class Grant(Protocol):
    """One message queue, granted to one member of a group under one epoch.

    Taking is for one thread at a time; acknowledging is safe for threads.
    """

    queue: MessageQueue
    group_queue: int
    """Number of this queue of this group for :meth:`RunningSlot.serve`."""
    epoch: int
    damaged: list[tuple[int, int, int]]
    """Damaged messages that a take skipped: queue offset, commit log offset, and the kind of damage."""
    expired: int
    """Number of messages that were removed before they were taken."""

    @property
    def next_offset(self) -> int:
        """Queue offset of the next message."""

    @property
    def has_unopened(self) -> bool:
        """Whether a compressed batch was taken that could not be opened."""

    @property
    def committed_offset(self) -> int:
        """The offset below which every message is finished."""

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message to be stored."""

    @property
    def has_more(self) -> bool:
        """Whether more messages can be taken."""

    @property
    def valid(self) -> bool:
        """Whether the queue still belongs to this grant, so that no later epoch has begun."""

    @property
    def lease_is_over(self) -> bool:
        """Whether the lease has expired, so that another member may get the queue."""

    @property
    def paused(self) -> bool:
        """Whether the group is paused in this queue."""

    def show(self, flow_control: int) -> None:
        """Show other processes the reason for which delivery of this queue is paused; 0 for no reason."""

    def release(self) -> bool:
        """Release the queue. False if the epoch is old: the queue has another owner. Raises StoreBusy."""

    def arm(self, lane: int) -> bool:
        """Ask the next sender to this queue to ring the bell of this lane. True if a message can be taken now."""

    def take(self, limit: int, span: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages, at most ``span`` above the committed offset."""

    def begin(self, message: ReceivedMessage) -> bool:
        """Count an attempt of the message at the head of an ordered queue. False if the epoch is old."""

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Mark a message finished. False if the epoch is old."""

    def finish(self, messages: list[ReceivedMessage]) -> list[int]:
        """Mark messages finished within their batches; return the queue offsets to acknowledge now."""

    def acknowledge_offsets(self, offsets: list[int]) -> bool:
        """Mark the messages at these queue offsets finished. False if the epoch is old."""

    def give_back(self, offsets: list[int], *, dead_lettered: bool) -> bool:
        """Mark messages finished that were stored again for a retry, or as dead letters. False if the epoch is old."""

    def count_failed(self, attempts: int) -> None:
        """Count failed delivery attempts."""

    def lent_to(self, running: Any) -> Grant | None:
        """Return the grant of a call that may go on when another member has the queue: :meth:`Membership.lent`.

        ``running`` is its :class:`RunningSlot`. The grant is valid as long as the owner of the queue leaves the
        messages to the call. None where no owner does.
        """

    def is_between(self, running: Any) -> bool:
        """Whether a thread of this queue may be about to begin a message that its RunningSlot does not name yet."""


class Lent(Protocol):
    """Messages of a granted queue whose handlers still run in members that had the queue before.

    Their acknowledgements are accepted, so the queue's owner leaves them alone.
    """

    def is_finished(self, queue_offset: int) -> bool:
        """Whether a message is acknowledged."""

    def first_unfinished(self, queue_offset: int) -> int:
        """Return how many messages at the head of a compressed batch are noted as finished."""

    def offsets(self) -> frozenset[int]:
        """Return the queue offsets that were not taken back and are not acknowledged."""

    def look(self) -> frozenset[int]:
        """Take back what does not run any more, or runs in a process that is dead or stopped; return the other offsets.

        Raises StoreBusy.
        """


class RunningSlot(Protocol):
    """A record of the messages that one handler thread runs, for the case that its process dies."""

    def serve(self, group_queue: int, epoch: int) -> None:
        """Set the queue of the next messages: :attr:`Grant.group_queue` and :attr:`Grant.epoch`."""

    def begin(self, message: ReceivedMessage) -> None:
        """Note that the handler of this message is about to run, and enter a new copy of the thread's context.

        The context variables that the handler sets are gone at the next call, or at :meth:`rest`.
        """

    def note(self, message: ReceivedMessage) -> None:
        """Note the same in a context that is entered already, as that of a coroutine's task."""

    def begin_batch(self, messages: list[ReceivedMessage]) -> None:
        """As :meth:`begin`, for the messages of one call."""

    def show(self, messages: list[ReceivedMessage]) -> None:
        """As :meth:`begin_batch`, but only for display: :meth:`Grant.begin` has counted the attempt."""

    def fail(self, messages: int) -> None:
        """Note that the call has ended, and that this number of its messages failed."""

    def forgive(self) -> None:
        """Note that a death of the process from now on does not count as an attempt."""

    def rest(self) -> None:
        """Note that no handler runs, and leave its context."""

    def add_up(self) -> None:
        """Publish the durations of the calls that have ended since the last time."""

    def release(self) -> None:
        """Free the slot."""


class Death(Protocol):
    """The death of a process while it handled a message."""

    @property
    def begun(self) -> int:
        """Attempts of the message from this queue, including this one."""

    @property
    def client_id(self) -> str:
        """Client id of the dead member; empty if it is no longer known."""

    @property
    def pid(self) -> int:
        """Process id of the dead member."""

    @property
    def overdue_s(self) -> float | None:
        """Seconds since a supervisor ended the process because of the time limit of this call; None for other ends."""


class Terms(NamedTuple):
    """On which terms a member takes a topic."""

    text: str
    """Tags, filters, order and allocation; the same for all members of the group that consume the topic."""
    wanted: MessageFilter
    """Selects the messages."""
    ordered: bool = False
    """Whether queues keep their order, so that a queue must never have two owners."""
    lease_ms: int = 10_000
    """Time for which a member of a store counts and keeps its queues after its last beat or renewal."""


class Seat(Protocol):
    """A member of a group, as the other members count it."""

    @property
    def client_id(self) -> str:
        """The name by which members are sorted."""

    @property
    def key(self) -> tuple[int, int]:
        """Identifies the member in :meth:`Membership.owners`."""


class Membership(Protocol):
    """One member of a group, for one topic. Except for :attr:`bell`, for one thread."""

    group: str
    topic: str
    client_id: str

    @property
    def bell(self) -> ArrivalBell:
        """The bell on which the handler threads of this member sleep."""

    def beat(self) -> None:
        """Show that this process is alive."""

    def watch(self) -> bool:
        """Check whether the member that this one watches has died. If so, wake all members and return True."""

    def counted(self) -> tuple[Seat, ...]:
        """Return the members among which queues are allocated, sorted by client id.

        A member of a store whose last beat is older than the lease is not counted. Raises StoreFenced for a store that
        was replaced, from whose queues no message may be taken.
        """

    def owners(self, queues: Sequence[MessageQueue]) -> tuple[tuple[int, int], ...]:
        """Return the :attr:`Seat.key` of each queue's owner; ``(0, 0)`` for a queue without an owner."""

    def grant(self, queue: MessageQueue) -> Grant | None:
        """Become the owner of a queue and return its grant; None if it is not free.

        A group that never had the queue begins at its oldest message. Raises UnknownTopic, TableFull, StoreBusy.
        """

    def renew(self, grant: Grant) -> bool:
        """Extend the lease of a queue of this member. False if the queue has another owner. Raises StoreBusy."""

    def interrupted(self, grant: Grant) -> Mapping[int, Sequence[Death]]:
        """Return the deaths before this grant by the queue offset of their message, the oldest first."""

    def lent(self, grant: Grant) -> Lent | None:
        """Return the messages that still run elsewhere, of a grant that nobody has taken messages from.

        None where the next owner does not know them, as on a cluster: it gets them a second time.
        """

    def strained(self) -> Strained:
        """Return which of the :meth:`counted` members are busy, and which help them."""

    def show_kept(self, *, busy: bool) -> None:
        """Show that long calls keep all threads; ``busy`` if other members are to have the queues."""

    def show_free(self) -> None:
        """Show that a thread is free."""

    def tell(self, seats: Iterable[Seat]) -> None:
        """Wake these members, so that they look at once."""

    def topics_of_others(self) -> AbstractSet[str]:
        """Return the topics that other members of the group take. For any thread.

        Empty on a cluster, whose brokers do not know which member takes which topics.
        """

    def claim(self, count: int) -> Sequence[RunningSlot]:
        """Take a slot for each of ``count`` handler threads. Raises TableFull, StoreBusy."""

    def stay_behind(self) -> bool:
        """Leave the allocation, but keep queues that were not released while they are renewed.

        False if the backend does not support that.
        """

    def leave(self) -> None:
        """End the membership. Queues must be released before."""


class Members(Protocol):
    """The memberships of one consumer. One thread handles all of them and sleeps on :attr:`bell`."""

    @property
    def bell(self) -> Bell:
        """Rings when a member joins or leaves, when a topic is made, and when another member wakes one of these.

        A first join replaces this bell by another one.
        """

    def join(self, group: str, topic: str, client_id: str, terms: Terms) -> Membership:
        """Become a member.

        Raises SubscriptionMismatch if a living member of a store has another subscription, ClientIdInUse if one has the
        same client id, InvalidName for a client id that is empty or too long, TableFull, StoreBusy.
        """

    def close(self) -> None:
        """Close what the memberships share, after all were left. Closing twice does nothing."""


class Move(NamedTuple):
    """Where groups are moved to; each backend uses what it needs."""

    offsets: Mapping[tuple[str, MessageQueue], int]
    """The offset by group and queue."""
    at_ms: int | None = None
    """The time in ms that the offsets were computed from, if any: 0 for the begin of the queues, -1 for their end.

    Brokers older than 5.0 move running members only by it.
    """

    @property
    def in_words(self) -> str:
        """Where each queue is moved to, for the marks of a store."""
        places = {queue: offset for (_, queue), offset in self.offsets.items()}
        return ", ".join(f"{queue.topic} {queue.queue_id} to {offset:,}" for queue, offset in places.items())


class Groups(Protocol):
    """The groups of a backend, for users that are not members. Methods raise StoreBusy."""

    def all(self) -> list[Group]:
        """Return every group that has consumed or consumes, sorted by name. On a cluster without owners of queues."""

    def find(self, group: str) -> Group | None:
        """Return a group with the owners of its queues; None if it never consumed and has no member."""

    def members(self, group: str | None = None) -> list[MemberInfo]:
        """Return the living members, including broadcast members, of a group or of every group."""

    def memberships(self) -> Members:
        """Return the memberships of one consumer."""

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's offset in a queue; None if it never had the queue. Raises UnknownTopic."""

    def commit(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Set a group's offset in a queue. Raises QueueOwned while a member of the group has it."""

    def begin(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set the start offsets of a new group, in all these queues or none of them, on disk.

        Does nothing and returns False if the group already has one of the queues, or a member that takes their topic.
        Raises TableFull.
        """

    def seek(self, move: Move) -> None:
        """Move groups in queues, on disk. Members lose the queues.

        Raises TableFull after moving some of them, as StoreBusy does; StoreFull after moving all, but not yet on disk;
        NotOnCluster after moving nothing.
        """

    def remove(self, group: str) -> None:
        """Remove a group without members: its offsets, its settings, and the failed messages that wait for it.

        A failed message of a store that is still delayed goes to the next group of this name. Dead letters stay.
        Raises QueueOwned while a member runs, ReadOnlyReplica, StoreFull, and the error of a broker that refuses.
        """

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        """Pause or resume groups in queues, and wake the owners. Raises NotOnCluster: brokers have no such state."""


def left_to(running: RunningSlot, grant: Grant) -> Grant | None:
    """Return the grant by which a call finishes its messages, if the next owner of the queue has left them to it.

    ``running`` is the slot of the call, and ``grant`` the one under which it began. None if the messages are not its
    own any more.
    """
    left = grant.lent_to(running)
    return left if left is not None and left.valid else None


def is_ours(running: RunningSlot, grant: Grant) -> bool:
    """Tell whether an acknowledgement of what a call runs would be accepted now."""
    return grant.valid or left_to(running, grant) is not None
