"""Local backend: a store directory of this host.

A grant is the compiled :class:`rmqclient.store.QueueGrant` itself, and a sender exposes the bound methods of the
compiled appender, so there is no Python layer between a message and the kernel.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

from rmqclient.backend.backend import Backend, leave_open
from rmqclient.backend.limits import Limits
from rmqclient.backend.protocols import ProducerSettings, Span
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.reply_topic import TopicReplies, TopicReplySender
from rmqclient.backend.transactions import OpenTransaction
from rmqclient.errors import NotOnCluster
from rmqclient.filters.tag import TagFilter
from rmqclient.local.groups import LocalGroups
from rmqclient.local.open_transactions import decide, open_transactions
from rmqclient.local.reader import read
from rmqclient.local.sender import LocalSender, sender_of
from rmqclient.local.steps import LocalSteps
from rmqclient.local.transactions import LocalTransactions
from rmqclient.local.update_reader import LocalUpdateReader
from rmqclient.message import ReceivedMessage
from rmqclient.store import ArrivalBell, Bell, MessageQueue, MessageStore
from rmqclient.store.files.file_lock import CRON_BYTES, CRON_STRIPES


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
        groups=LocalGroups(store),
        producers=_Producers(store, topics, queues),
        open_transactions=_OpenTransactions(store),
        steps=LocalSteps(store),
        store=store,
        alone=partial(_alone, store),
        check_usable=store.check_usable,
        close=close,
    )


def store_of(backend: Backend, user: str) -> MessageStore:
    """Return the store of a local backend, for a user that reads its files. Raises NotOnCluster for another one."""
    if backend.store is None:
        raise NotOnCluster(f"{user} needs a store of this host: give its directory, not {backend!r}")
    return backend.store


def _alone(store: MessageStore, name: str, timeout_s: float) -> AbstractContextManager[None]:
    store.check_usable()
    return store.lock.held(CRON_BYTES + zlib.crc32(name.encode()) % CRON_STRIPES, timeout_s)


class _Part:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def _usable(self) -> MessageStore:
        self._store.check_usable()
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
        return LocalUpdateReader(self._store)


class _Messages(_Part):
    def by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        return self._store.messages.by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)

    def by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        return self._store.messages.by_id(message_id, topic)

    def settle(self) -> None:
        self._store.settle_appends()

    def begin_ms(self) -> int | None:
        begin = self._usable().state.min_offset
        return self._store.messages.read(begin).store_timestamp if begin > 0 else None


class _Producers(_Part):
    def __init__(self, store: MessageStore, topics: _Topics, queues: _Queues) -> None:
        super().__init__(store)
        self._topics = topics
        self._queues = queues

    def sender(self, settings: ProducerSettings) -> LocalSender:
        return sender_of(self._store, settings.make_topic, prepare=settings.prepare)

    def transactions(self, settings: ProducerSettings) -> LocalTransactions:
        return LocalTransactions(self._store, settings.group, durable=settings.durable)

    def replies(self) -> TopicReplies:
        return TopicReplies(self._topics, self._queues, self._store.check_usable)

    def reply_sender(self) -> TopicReplySender:
        return TopicReplySender(self._topics, self)


class _OpenTransactions(_Part):
    def all(self) -> Iterator[OpenTransaction]:
        return open_transactions(self._usable())

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> None:
        decide(self._usable(), transaction, commit=commit)
