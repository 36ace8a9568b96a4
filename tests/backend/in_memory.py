"""In-memory backend: the same behaviour as a store of this host, without a directory, a kernel or a second process.

It shows that producers and consumers know nothing of where messages are kept but what the protocols say. What is kept
for a store alone, such as transactions and tables, it does not have.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from rmqclient.backend.backend import Backend
from rmqclient.backend.bells import Bell
from rmqclient.backend.futures import SendFuture
from rmqclient.backend.group_protocols import Move
from rmqclient.backend.limits import Limits
from rmqclient.backend.protocols import ProducerSettings, Span
from rmqclient.backend.pull_result import PullResult, PullStatus
from rmqclient.backend.reply_topic import TopicReplies, TopicReplySender
from rmqclient.backend.transactions import OpenTransaction
from rmqclient.backend.updates import MessageUpdates
from rmqclient.codecs import encoded
from rmqclient.errors import OffsetOutOfRange, QueueOwned, StoreBusy, StoreClosed
from rmqclient.filters.tag import TagFilter, parse_tags
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.names import group_and_member
from rmqclient.store import MemberInfo, MessageQueue
from rmqclient.store.observe.summary import Group, summaries
from tests.backend.memory_groups import MemoryGroups, MemoryMembers, as_seen
from tests.backend.memory_log import MemoryArrivalBell, MemoryLog, copy_of, now_ms, record_of
from tests.support.oracle.reference import DELAY_SECONDS, ReferenceRecord


def in_memory_backend(directory: Path = Path("/nowhere")) -> Backend:
    """Messages in the memory of this process, for as long as somebody refers to it; its user closes it."""
    memory = _Memory()
    topics, queues = _Topics(memory), _Queues(memory)
    return Backend(
        root=directory,
        namespace="memory",
        directory=directory,
        limits=Limits(),
        topics=topics,
        queues=queues,
        messages=_Messages(memory),
        groups=_Groups(memory),
        producers=_Producers(memory, topics, queues),
        open_transactions=_NoTransactions(),
        alone=memory.alone,
        check_usable=memory.check_usable,
        close=memory.close,
    )


class _Memory:
    def __init__(self) -> None:
        self.log = MemoryLog()
        self.groups = MemoryGroups(self.log)
        self._names: dict[str, threading.Lock] = {}
        self._is_closed = False

    def check_usable(self) -> None:
        if self._is_closed:
            raise StoreClosed("this backend was closed")

    @contextmanager
    def alone(self, name: str, timeout_s: float) -> Iterator[None]:
        lock = self._names.setdefault(name, threading.Lock())
        if not lock.acquire(timeout=timeout_s):
            raise StoreBusy(f"{name} is held")
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        self._is_closed = True
        self.log.close()


class _Topics:
    def __init__(self, memory: _Memory) -> None:
        self._memory = memory
        self._log = memory.log
        self.queues = self.read_queues = self.write_queues = memory.log.queues

    def names(self) -> list[str]:
        return sorted(self._log.topics)

    def create(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        return self._log.create_topic(topic, queue_count, cleanup_policy)

    def cleanup_policy(self, topic: str) -> str:
        return self._log.policies[topic]

    def bell(self) -> Bell:
        return MemoryMembers(self._memory.groups).bell


class _Queues:
    def __init__(self, memory: _Memory) -> None:
        self._log = memory.log
        self.message_at = memory.log.message_at

    def span(self, queue: MessageQueue) -> Span:
        return Span(0, len(self._log.messages(queue)))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return bisect_left(self._log.messages(queue), timestamp_ms, key=lambda message: message.store_timestamp)

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        low, high = self.span(queue)
        if not low <= offset <= high:
            return PullResult(PullStatus.OFFSET_ILLEGAL, min(max(offset, low), high), low, high)
        if offset == high:
            return PullResult(PullStatus.NO_NEW_MESSAGE, offset, low, high)
        messages = [self.message_at(queue, number) for number in range(offset, min(high, offset + limit))]
        found = tuple(message for message in messages if wanted.matches(message.tags))
        status = PullStatus.FOUND if found else PullStatus.NO_MATCHED_MESSAGE
        return PullResult(status, offset + len(messages), low, high, found)

    def bell(self) -> MemoryArrivalBell:
        return MemoryArrivalBell(self._log)

    def update_reader(self) -> MessageUpdates:
        return MessageUpdates(
            lambda queue, offset: self.read(queue, offset, 100, parse_tags("*")),
            lambda message: message.commit_log_offset,
            reads_in_order=True,
        )


class _Messages:
    def __init__(self, memory: _Memory) -> None:
        self._log = memory.log

    def by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        found = [
            message
            for queue in self._log.queues(topic)
            for message in self._log.messages(queue)
            if key in (message.message_id, *message.keys) and begin_ms <= message.store_timestamp <= end_ms
        ]
        return sorted(found, key=lambda message: -message.commit_log_offset)[:limit]

    def topics_with(self, key: str, topics: Sequence[str]) -> list[str]:
        return [topic for topic in topics if self.by_key(topic, key, 0, 2**63 - 1, 1)]

    def by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        topics = sorted(self._log.topics) if topic is None else [topic]
        return next((found for name in topics for found in self.by_key(name, message_id, 0, 2**63 - 1, 1)), None)

    def settle(self) -> None:
        pass

    def begin_ms(self) -> int | None:
        return None


class _Producers:
    def __init__(self, memory: _Memory, topics: _Topics, queues: _Queues) -> None:
        self._memory = memory
        self._topics = topics
        self._queues = queues

    def sender(self, settings: ProducerSettings) -> MemorySender:
        return MemorySender(self._memory, settings.make_topic)

    def transactions(self, settings: ProducerSettings) -> NoReturn:
        raise NotImplementedError("only a store has transactions")

    def replies(self) -> TopicReplies:
        return TopicReplies(self._topics, self._queues, self._memory.check_usable)

    def reply_sender(self) -> TopicReplySender:
        return TopicReplySender(self._topics, self)


class _NoTransactions:
    def all(self) -> Iterator[OpenTransaction]:
        return iter(())

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> NoReturn:
        raise NotImplementedError("only a store has transactions")


class _Groups:
    def __init__(self, memory: _Memory) -> None:
        self._log = memory.log
        self._groups = memory.groups

    def all(self) -> list[Group]:
        members = self.members()
        owners = {member.key: member for member in members}
        spans = {each.queue: Span(0, len(self._log.messages(each.queue))) for each in self._groups.all()}
        seen = [as_seen(each, owners.get(each.owner), spans[each.queue]) for each in self._groups.all()]
        return summaries(seen, members)

    def find(self, group: str) -> Group | None:
        return next((each for each in self.all() if each.group == group), None)

    def members(self, group: str | None = None) -> list[MemberInfo]:
        found = self._groups.members()
        return [member for member in found if group in (None, group_and_member(member.group)[0])]

    def memberships(self) -> MemoryMembers:
        return MemoryMembers(self._groups)

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        progress = self._groups.find(group, queue)
        return None if progress is None else progress.committed_offset

    def commit(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        if queue_offset > len(self._log.messages(queue)):
            raise OffsetOutOfRange(f"{queue} has no offset {queue_offset}")
        progress = self._groups.progress(group, queue, queue_offset)
        if self._groups.is_alive(progress.owner):
            raise QueueOwned(f"a member of {group!r} has {queue}")
        progress.seek(queue_offset)

    def begin(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        with self._log.lock:
            topics = {queue.topic for queue in offsets}
            if any(each.group == group and each.topic in topics for each in self._groups.members()):
                return False
            if any(self._groups.find(group, queue) for queue in offsets):
                return False
            for queue, offset in offsets.items():
                self._groups.progress(group, queue, offset)
            return True

    def remove(self, group: str) -> None:
        self._groups.forget(group)

    def seek(self, move: Move) -> None:
        with self._log.lock:
            for (group, queue), offset in move.offsets.items():
                self._groups.progress(group, queue, offset).seek(offset)
        self._log.signal_membership()

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        for group, queue in group_queues:
            self._groups.progress(group, queue).paused = paused
        for bell in list(self._log.arrival_bells):
            bell.ring()


class MemorySender:
    """Appends messages for one producer."""

    def __init__(self, memory: _Memory, make_topic: Callable[[str], list[MessageQueue]]) -> None:
        self.check_usable = memory.check_usable
        self._log = memory.log
        self._make_topic = make_topic
        self._once: dict[tuple[str, str], SendResult] = {}
        self.encoded = encoded

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        self.check_usable()
        queue = self._log.queue_for(self._queues(message.topic), message.topic, sharding_key)
        record = record_of(message, queue, sharding_key)
        return self._append_or_wait(record, delay_level, due_ms)

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        future = SendFuture()
        future.end(self.append(message, sharding_key, delay_level, due_ms))
        return future

    def append_batch(
        self, messages: Sequence[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        with self._log.lock:
            one_queue = sharding_key or "one queue"
            return [self.append(message, one_queue, delay_level, due_ms) for message in messages]

    def append_once(
        self,
        message: Message,
        key: str,
        within: timedelta | None,
        sharding_key: str | None,
        delay_level: int,
        due_ms: int,
    ) -> SendResult:
        assert within is None, "every send counts"
        with self._log.lock:
            if (message.topic, key) not in self._once:
                self._once[message.topic, key] = self.append(message, sharding_key, delay_level, due_ms)
            return self._once[message.topic, key]

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
        self.check_usable()
        record = copy_of(message, self._queues(queue.topic)[queue.queue_id], properties, reconsume_times)
        return self._append_or_wait(record, delay_level, due_ms)

    def cancel(self, message_id: str) -> bool:
        return self._log.cancel(message_id)

    def wait_until_flushed(self, commit_log_end: int | None = None) -> None:
        pass

    def append_inner_batch(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("only a store has batches that are one record")

    def append_half(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("only a store has transactions")

    def buffer(self, limit_bytes: int) -> NoReturn:
        raise NotImplementedError("only a store has write buffers")

    def close(self) -> None:
        pass

    def _append_or_wait(self, record: ReferenceRecord, delay_level: int, due_ms: int) -> SendResult:
        delay_s = DELAY_SECONDS[delay_level - 1] if delay_level else (due_ms - now_ms()) / 1000 if due_ms else 0.0
        return self._log.append_later(record, delay_s) if delay_s > 0 else self._log.append(record)

    def _queues(self, topic: str) -> list[MessageQueue]:
        return self._log.queues(topic) if topic in self._log.topics else self._make_topic(topic)
