"""Local backend: a store directory of this host.

A grant is the compiled :class:`rmqclient.store.QueueGrant` itself, and a sender exposes the bound methods of the
compiled appender, so there is no Python layer between a message and the kernel.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from rmqclient.backend.backend import Backend
from rmqclient.backend.limits import Limits
from rmqclient.backend.protocols import Span
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.reply_topic import TopicReplies, TopicReplySender
from rmqclient.backend.transactions import OpenTransaction
from rmqclient.errors import NotOnCluster
from rmqclient.filters.tag import TagFilter
from rmqclient.local.groups import LocalMembers
from rmqclient.local.open_transactions import decide, open_transactions
from rmqclient.local.reader import read
from rmqclient.local.sender import LocalSender, sender_of
from rmqclient.local.steps import LocalSteps
from rmqclient.local.transactions import LocalTransactions
from rmqclient.local.update_reader import LocalUpdateReader
from rmqclient.message import ReceivedMessage
from rmqclient.names import PRODUCER_GROUP, RETRY_PREFIX, group_and_member
from rmqclient.store import (
    HALF_TOPIC,
    ArrivalBell,
    Bell,
    MemberInfo,
    MessageQueue,
    MessageStore,
    clock,
    layout,
)
from rmqclient.store.errors import QueueError, QueueOwned, StoreUnusable
from rmqclient.store.files.file_lock import CRON_BYTES, CRON_STRIPES
from rmqclient.store.observe.reading import Reading, Unreadable
from rmqclient.store.observe.summary import Group, groups_of
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class LocalBackend:
    """A store of this host; methods are those of :class:`rmqclient.backend.backend.Backend`.

    ``owns_store``: closing the backend closes the store.
    """

    def __init__(self, store: MessageStore, *, owns_store: bool) -> None:
        self.store = store
        self._owns_store = owns_store
        self.limits = Limits.of(store.config)
        self.steps = LocalSteps(store)

    @property
    def root(self) -> Path:
        """The directory of the store."""
        return self.store.root

    @property
    def namespace(self) -> str:
        """The name of the directory."""
        return self.store.root.name

    @property
    def directory(self) -> Path:
        """The directory of the store."""
        return self.store.root

    def check_usable(self) -> None:
        """Raise StoreClosed if the store was closed, and in a forked child."""
        self.store.check_usable()

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted; if ``topics.json`` was lost, including removed ones."""
        topics = self._usable().topics
        known = topics.configs()
        return [name for name in topics.topics() if name in known or not known]

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic. Raises UnknownTopic."""
        return self._usable().topics.queues(topic)

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that consumers read. Raises UnknownTopic."""
        return self._usable().topics.read_queues(topic)

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues for new messages. Raises UnknownTopic, TopicNotWritable."""
        return self._usable().topics.write_queues(topic)

    def create_topic(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic, or return the queues that it has. Raises TableFull, ConfigMismatch."""
        return self._usable().topics.create(topic, queue_count, cleanup_policy)

    def cleanup_policy(self, topic: str) -> str:
        """Return ``delete`` or ``compact``. Raises UnknownTopic."""
        return "compact" if self._usable().topics.is_compact(topic) else "delete"

    def span(self, queue: MessageQueue) -> Span:
        """Return the range of offsets that a queue has. Raises UnknownTopic."""
        topics = self._usable().topics
        return Span(topics.min_offset(queue), topics.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored then or later, or else the max offset."""
        return self.store.messages.offset_by_time(queue, timestamp_ms)

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its queue offset. Raises MessageExpired, StoreCorrupt."""
        return self.store.messages.at(queue, queue_offset)

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on with a wanted tag. Raises UnknownTopic."""
        return read(self._usable(), queue, offset, limit, wanted)

    def messages_by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key, the newest first. Raises StoreFull, StoreBusy."""
        return self.store.messages.by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its id, or None; without ``topic`` search every topic. Raises StoreFull, StoreBusy."""
        return self.store.messages.by_id(message_id, topic)

    def settle(self) -> None:
        """Finish or undo the append of a dead process. Raises StoreBusy, StoreCorrupt, LimitReached."""
        self.store.settle_appends()

    def begin_ms(self) -> int | None:
        """Return the store time of the oldest message, in ms since 1970; None if no older ones were removed."""
        begin = self._usable().state.min_offset
        return self.store.messages.read(begin).store_timestamp if begin > 0 else None

    def update_reader(self) -> LocalUpdateReader:
        """Return a bulk reader of keys and values for one table."""
        return LocalUpdateReader(self.store)

    def sender(
        self,
        make_topic: Callable[[str], list[MessageQueue]],
        *,
        prepare: bool = True,
        group: str = PRODUCER_GROUP,
    ) -> LocalSender:
        """Return a sender for one producer."""
        del group  # records do not have the producer group
        return sender_of(self.store, make_topic, prepare=prepare)

    def transactions(self, group: str, *, durable: bool) -> LocalTransactions:
        """Return the transactions of a producer group."""
        return LocalTransactions(self.store, group, durable=durable)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Return the undecided transactions: first those that were given up, then the others, each the oldest first."""
        return open_transactions(self._usable())

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commit a transaction or roll it back. Raises TransactionDecided, MessageExpired, and as a send."""
        decide(self._usable(), transaction, commit=commit)

    def replies(self) -> TopicReplies:
        """Return the replies to one producer's requests."""
        return TopicReplies(self)

    def reply_sender(self) -> TopicReplySender:
        """Return a sender of replies."""
        return TopicReplySender(self)

    def members(self) -> LocalMembers:
        """Return the memberships of one consumer."""
        return LocalMembers(self.store)

    def bell(self) -> ArrivalBell:
        """Return a bell that senders to armed queues ring."""
        return self.store.arrival_bell()

    def topic_bell(self) -> Bell:
        """Return a bell that rings when a topic is made, and when a member joins or leaves a group."""
        return self.store.membership_bell()

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's offset in a queue; None if it never had the queue. Raises UnknownTopic."""
        store = self._usable()
        slot = store.groups.find(group, store.topics.slot(queue))
        return None if slot is None else slot.finished_to

    def commit_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Set a group's offset in a queue. Raises QueueOwned while a member of the group has it, StoreBusy."""
        store = self._usable()
        store.check_primary()
        slot = store.groups.find_or_add(group, store.topics.slot(queue), queue_offset)
        with slot.locked(store.config.lock_timeout_ms):
            owner = store.members().owner(slot)
            if owner is not None:
                raise QueueOwned(
                    f"group {group!r}: queue {queue.queue_id} of {queue.topic!r} is owned by member "
                    f"{owner.client_id!r} (process {owner.pid}), which keeps its offset: commit in another group, or "
                    "move this one with `rmq group seek`"
                )
            slot.seek(queue_offset)

    def begin_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set the start offsets of a new group, or return False if it has begun. Raises TableFull, StoreBusy."""
        store = self._usable()
        store.check_primary()
        begun = store.groups.begin(group, {store.topics.slot(queue): offset for queue, offset in offsets.items()})
        if begun:
            try:
                store.persist_offsets()
            except QueueError as error:  # after a power cut the group would begin again, and later
                _log.error("group %s: where it began is not on the disk yet, which is tried again: %s", group, error)
        return begun

    def consumers(self, group: str | None = None) -> list[MemberInfo]:
        """Return the living members of a group or of every group.

        Members for the topic of half messages are transaction producers.
        """
        members = [member for member in self.members().all() if member.topic != HALF_TOPIC]
        return [member for member in members if group in (None, group_and_member(member.group)[0])]

    def groups(self, group: str | None = None) -> list[Group]:
        """Return every group that has consumed or consumes, sorted by name. Words are read without a lock."""
        del group  # all are as quick as one
        self._usable()
        try:
            with Reading(str(self.store.root)) as reading:
                return groups_of(reading.observe(wall_ms=clock.wall_ms(), ages=0))
        except Unreadable as error:
            raise StoreUnusable(str(error)) from error

    def seek(self, offsets: Mapping[tuple[str, MessageQueue], int], *, at_ms: int | None = None) -> None:
        """Move groups in queues, by group and queue, on disk. Members lose the queues.

        Raises TableFull or StoreBusy after moving some of them, StoreFull after moving all, but not yet on disk.
        """
        del at_ms
        store = self._usable()
        store.check_primary()
        for (group, queue), offset in offsets.items():
            slot = store.groups.find_or_add(group, store.topics.slot(queue), offset)
            with slot.locked(store.config.lock_timeout_ms):
                slot.seek(offset)
        store.state.signal_membership()
        store.persist_offsets()

    def remove_group(self, group: str) -> None:
        """Remove a group, all its broadcast members, and the messages in its retry topic.

        A failed message that is still delayed goes to the next group of this name. Raises QueueOwned while a member
        runs, ReadOnlyReplica, StoreBusy, StoreFull.
        """
        store = self._usable()
        store.check_primary()
        names = {slot.group for slot in store.groups if group_and_member(slot.group)[0] == group}
        store.forget_groups(names | {group})
        store.topics.remove(RETRY_PREFIX + group)

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        """Pause or resume groups in queues, and wake the owners. Raises StoreBusy."""
        store = self._usable()
        for group, queue in group_queues:
            slot = store.groups.find(group, store.topics.slot(queue))
            if slot is not None:
                with slot.locked(store.config.lock_timeout_ms):
                    slot.store("paused", int(paused))
                if slot.load("owner"):
                    store.state.signal_arrival((slot.load("owner") - 1) % layout.ARRIVAL_LANES)

    def alone(self, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """Hold a named mutex between all processes until the block ends. Raises StoreBusy.

        Names share a fixed number of locks, so one name may have to wait for another.
        """
        return self._usable().lock.held(CRON_BYTES + zlib.crc32(name.encode()) % CRON_STRIPES, timeout_s)

    def shared(self) -> LocalBackend:
        """Return this backend for another user, whose ``close`` leaves the store open."""
        return LocalBackend(self.store, owns_store=False)

    def close(self) -> None:
        """Leave the store if this backend opened it. Closing twice does nothing. Raises as the store's ``close``."""
        if self._owns_store:
            self.store.close()

    def _usable(self) -> MessageStore:
        self.store.check_usable()
        return self.store


def store_of(backend: Backend, user: str) -> MessageStore:
    """Return the store of a local backend, for a user that reads its files. Raises NotOnCluster for another one."""
    if isinstance(backend, LocalBackend):
        return backend.store
    raise NotOnCluster(f"{user} needs a store of this host: give its directory, not {backend!r}")
