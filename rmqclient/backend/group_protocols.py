"""Group protocols: what the consumers of a group ask of a backend.

===================  ================================================================================
:class:`Members`     the memberships of one consumer, which share one thread
:class:`Membership`  one member: what it sees of its group, and the queues that it is granted
:class:`Grant`       one queue, granted to one member under one epoch
:class:`RunningSlot` what a handler thread says before it runs something
===================  ================================================================================

The compiled :class:`rmqclient.store.QueueGrant` and :class:`rmqclient.store.Running` satisfy two of them structurally,
so a handler thread calls them directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from rmqclient.backend.bells import ArrivalBell, Bell
from rmqclient.message import ReceivedMessage
from rmqclient.store import MemberInfo, MessageQueue

if TYPE_CHECKING:
    from rmqclient.filters import MessageFilter


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

    def give_back(self, offsets: list[int], *, dead_lettered: bool) -> bool:
        """Mark messages finished that are stored for their next attempt, or as dead letters. False as above."""

    def count_failed(self, attempts: int) -> None:
        """Count delivery attempts that failed."""


class RunningSlot(Protocol):
    """What one handler thread says before it runs something, in case its process dies in it."""

    def serve(self, group_queue: int) -> None:
        """Say of which queue the next messages are: :attr:`Grant.group_queue`."""

    def begin(self, message: ReceivedMessage) -> None:
        """Say that the handler of this message is about to run."""

    def begin_batch(self, messages: list[ReceivedMessage]) -> None:
        """Say that the handler of these messages is about to run."""

    def show(self, messages: list[ReceivedMessage]) -> None:
        """Say the same to onlookers alone: the grant has counted the attempt, by :meth:`Grant.begin`."""

    def fail(self, messages: int) -> None:
        """Say that the call has ended, and that so many of its messages failed."""

    def forgive(self) -> None:
        """Say that a death of the process from now on is no attempt of what runs."""

    def rest(self) -> None:
        """Say that no handler runs."""

    def add_up(self) -> None:
        """Let others see how long the calls took that have ended since the last time."""

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

    @property
    def overdue_s(self) -> float | None:
        """Seconds since a supervisor ended the process because of the time limit of this call; None for other ends."""


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

        A member whose last beat is older than ``lease_ms`` is not counted. Raises StoreFenced for a store that another
        one replaced: nothing is to be taken from its queues any more.
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

    def stay_behind(self) -> bool:
        """Take part in the allocation no more, and keep the queues that were not released while they are renewed.

        False where a member cannot do that.
        """

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

    def join(
        self,
        group: str,
        topic: str,
        client_id: str,
        subscription: str,
        wanted: MessageFilter | None = None,
        *,
        ordered: bool = False,
    ) -> Membership:
        """Become a member. ``subscription`` must be the same for all members of the group that consume the topic.

        ``wanted`` selects the messages; None stands for all. ``ordered``: the queues keep their order, so
        that none may ever have two owners.

        Raises SubscriptionMismatch when a living member has another one, ClientIdInUse when one has the same client
        id, InvalidName for a client id that is empty or too long, TableFull, StoreBusy.
        """

    def close(self) -> None:
        """End what the memberships share, after they were left. Closing twice does nothing."""
