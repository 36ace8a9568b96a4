"""Backend: a store or a cluster, for producers and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from rmqclient.backend.bells import ArrivalBell, Bell
from rmqclient.backend.group_protocols import Members
from rmqclient.backend.limits import Limits
from rmqclient.backend.protocols import Sender, Span
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.replies import Replies, ReplySender
from rmqclient.backend.steps import StepStore
from rmqclient.backend.transactions import OpenTransaction, Transactions
from rmqclient.backend.updates import UpdateReader
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.names import PRODUCER_GROUP
from rmqclient.store import MemberInfo, MessageQueue
from rmqclient.store.observe.summary import Group


class Backend(Protocol):
    """A store or a cluster. Every method raises StoreClosed after :meth:`close`, and in a forked child."""

    @property
    def limits(self) -> Limits:
        """What it accepts and promises."""

    @property
    def steps(self) -> StepStore | None:
        """What keeps the results of durable steps; None if it has no place for them."""

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
