"""Local backend: a store directory of this host.

A grant is the compiled :class:`rmqclient.store.QueueGrant` itself, and a sender exposes the bound methods of the
compiled appender, so there is no Python layer between a message and the kernel.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from rmqclient.backend.backend import Backend, leave_open
from rmqclient.backend.group_protocols import Move
from rmqclient.backend.limits import Limits
from rmqclient.backend.protocols import ProducerSettings, Span
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.reply_topic import TopicReplies, TopicReplySender
from rmqclient.errors import NotOnCluster
from rmqclient.filters.tag import TagFilter
from rmqclient.local.groups import LocalMembers
from rmqclient.local.open_transactions import LocalOpenTransactions
from rmqclient.local.reader import read
from rmqclient.local.sender import LocalSender
from rmqclient.local.transactions import LocalTransactions
from rmqclient.message import ReceivedMessage
from rmqclient.names import RETRY_PREFIX, group_and_member
from rmqclient.store import HALF_TOPIC, ArrivalBell, Bell, MemberInfo, MessageQueue, MessageStore, clock, layout
from rmqclient.store.errors import QueueError, QueueOwned, StoreUnusable
from rmqclient.store.files.file_lock import CRON_BYTES, CRON_STRIPES
from rmqclient.store.threads.logs import Log

if TYPE_CHECKING:  # a sender needs none of these
    from rmqclient.local.update_reader import LocalUpdateReader
    from rmqclient.store.observe.summary import Group

_log = Log(__name__)


def local_backend(store: MessageStore, close: Callable[[], None] = leave_open) -> Backend:
    """Return the backend of an open store. ``close`` is called by its user when it is done."""
    topics, queues = _Topics(store), _Queues(store)
    return Backend(
        root=store.root,
        namespace=store.root.name,
        directory=store.root,
        limits=Limits.of(store.config),
        topics=topics,
        queues=queues,
        messages=_Messages(store),
        groups=_Groups(store),
        producers=_Producers(store, topics, queues),
        open_transactions=LocalOpenTransactions(store),
        steps=_Steps(store),
        store=store,
        alone=partial(_alone, store),
        check_usable=store.life.check_usable,
        close=close,
    )


def store_of(backend: Backend, user: str) -> MessageStore:
    """Return the store of a local backend, for a user that reads its files. Raises NotOnCluster for another one."""
    if backend.store is None:
        raise NotOnCluster(f"{user} needs a store of this host: give its directory, not {backend!r}")
    return backend.store


def _alone(store: MessageStore, name: str, timeout_s: float) -> AbstractContextManager[None]:
    store.life.check_usable()
    return store.lock.held(CRON_BYTES + zlib.crc32(name.encode()) % CRON_STRIPES, timeout_s)


class _Part:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def _usable(self) -> MessageStore:
        self._store.life.check_usable()
        return self._store


class _Topics(_Part):
    def names(self) -> list[str]:
        topics = self._usable().topics
        known = topics.configs()
        return [name for name in topics.topics() if name in known or not known]

    def queues(self, topic: str) -> list[MessageQueue]:
        return self._usable().topics.queues(topic)

    def read_queues(self, topic: str) -> list[MessageQueue]:
        return self._usable().topics.read_queues(topic)

    def write_queues(self, topic: str) -> list[MessageQueue]:
        return self._usable().topics.write_queues(topic)

    def create(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        return self._usable().topics.create(topic, queue_count, cleanup_policy)

    def cleanup_policy(self, topic: str) -> str:
        return "compact" if self._usable().topics.is_compact(topic) else "delete"

    def bell(self) -> Bell:
        return self._store.membership_bell()


class _Queues(_Part):
    def span(self, queue: MessageQueue) -> Span:
        topics = self._usable().topics
        return Span(topics.min_offset(queue), topics.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return self._store.messages.offset_by_time(queue, timestamp_ms)

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        return self._store.messages.at(queue, queue_offset)

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        return read(self._usable(), queue, offset, limit, wanted)

    def bell(self) -> ArrivalBell:
        return self._store.arrival_bell()

    def update_reader(self) -> LocalUpdateReader:
        from rmqclient.local.update_reader import LocalUpdateReader  # noqa: PLC0415 - at the first table that is read

        return LocalUpdateReader(self._store)


class _Messages(_Part):
    def by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        return self._store.messages.by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)

    def topics_with(self, key: str, topics: Sequence[str]) -> list[str]:
        return self._store.messages.topics_with(key, topics)

    def by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        return self._store.messages.by_id(message_id, topic)

    def settle(self) -> None:
        self._store.appenders.settle()

    def begin_ms(self) -> int | None:
        begin = self._usable().state.min_offset
        return self._store.messages.read(begin).store_timestamp if begin > 0 else None


class _Groups(_Part):
    def all(self) -> list[Group]:
        from rmqclient.store.observe.reading import Reading  # noqa: PLC0415 - at the first look at groups
        from rmqclient.store.observe.shared_file import Unreadable  # noqa: PLC0415 - as above
        from rmqclient.store.observe.summary import groups_of  # noqa: PLC0415 - as above

        try:
            with Reading(str(self._usable().root)) as reading:  # by no lock
                return groups_of(reading.observe(wall_ms=clock.wall_ms(), ages=0))
        except Unreadable as error:
            raise StoreUnusable(str(error)) from error

    def find(self, group: str) -> Group | None:
        return next((each for each in self.all() if each.group == group), None)

    def members(self, group: str | None = None) -> list[MemberInfo]:
        members = self._store.members().roll.all()
        consumers = [member for member in members if member.topic != HALF_TOPIC]  # the others are producers
        return [member for member in consumers if group in (None, group_and_member(member.group)[0])]

    def memberships(self) -> LocalMembers:
        return LocalMembers(self._store)

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        store = self._usable()
        slot = store.groups.find(group, store.topics.slot(queue))
        return None if slot is None else slot.finished_to

    def commit(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        store = self._usable()
        store.life.check_primary()
        slot = store.groups.find_or_add(group, store.topics.slot(queue), queue_offset)
        with slot.locked(store.config.lock_timeout_ms):
            owner = store.members().roll.owner(slot)
            if owner is not None:
                raise QueueOwned(
                    f"group {group!r}: queue {queue.queue_id} of {queue.topic!r} is owned by member "
                    f"{owner.client_id!r} (process {owner.pid}), which keeps its offset: commit in another group, or "
                    "move this one with `rmq group seek`"
                )
            slot.seek(queue_offset)

    def begin(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        store = self._usable()
        store.life.check_primary()
        topics = {queue.topic for queue in offsets}
        if any(each.group == group and each.topic in topics for each in store.members().roll.all()):
            return False  # that member was first: what has come since then belongs to the group
        begun = store.groups.begin(group, {store.topics.slot(queue): offset for queue, offset in offsets.items()})
        if begun:
            try:
                store.offsets.persist()
            except QueueError as error:  # after a power cut the group would begin again, and later
                _log.error("group %s: where it began is not on the disk yet, which is tried again: %s", group, error)
        return begun

    def seek(self, move: Move) -> None:
        store = self._usable()
        store.life.check_primary()
        for (group, queue), offset in move.offsets.items():
            slot = store.groups.find_or_add(group, store.topics.slot(queue), offset)
            with slot.locked(store.config.lock_timeout_ms):
                slot.seek(offset)
        store.state.signal_membership()
        store.offsets.persist()

    def remove(self, group: str) -> None:
        store = self._usable()
        store.life.check_primary()
        names = {slot.group for slot in store.groups if group_and_member(slot.group)[0] == group}
        store.forget_groups(names | {group})
        store.topics.remove(RETRY_PREFIX + group)

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        store = self._usable()
        for group, queue in group_queues:
            slot = store.groups.find(group, store.topics.slot(queue))
            if slot is not None:
                with slot.locked(store.config.lock_timeout_ms):
                    slot.store("paused", int(paused))
                if slot.load("owner"):
                    store.state.signal_arrival((slot.load("owner") - 1) % layout.ARRIVAL_LANES)


class _Producers(_Part):
    def __init__(self, store: MessageStore, topics: _Topics, queues: _Queues) -> None:
        super().__init__(store)
        self._topics = topics
        self._queues = queues

    def sender(self, settings: ProducerSettings) -> LocalSender:
        return LocalSender(self._store, settings.make_topic, prepare=settings.prepare)

    def transactions(self, settings: ProducerSettings) -> LocalTransactions:
        return LocalTransactions(self._store, settings.group, settings.client_id, durable=settings.durable)

    def replies(self) -> TopicReplies:
        return TopicReplies(self._topics, self._queues, self._store.life.check_usable)

    def reply_sender(self) -> TopicReplySender:
        return TopicReplySender(self._topics, self)


class _Steps(_Part):
    @property
    def log_begin(self) -> int:
        return self._store.state.min_offset

    def has(self, topic: str) -> bool:
        return topic in self._store.topics

    def sender(self) -> LocalSender:
        return LocalSender(self._store, lambda topic: self._store.topics.create(topic, 1, None))
