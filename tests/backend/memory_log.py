"""Memory log: topics, queues and messages of one process, and the bells that senders ring."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from rmqclient.backend.bells import ThreadBell
from rmqclient.codecs import encode_body
from rmqclient.errors import MessageExpired, UnknownTopic
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.store import MessageQueue, java_hash
from rmqclient.store.kernel._kernel import decode, sent_result
from tests.support.oracle.reference import ReferenceRecord, encode, format_properties


class MemoryArrivalBell(ThreadBell):
    """A bell that the senders to some queues ring."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__()
        self._log = log
        with log.lock:
            self.lane = len(log.arrival_bells)
            log.arrival_bells.append(self)

    def arm(self, *queues: MessageQueue) -> int:
        heard = self.heard()
        for queue in queues:
            self._log.messages(queue)
            self._log.arm(queue, self.lane)
        return heard


class MemoryLog:
    """What all handles of one in-memory backend share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.topics: dict[str, list[MessageQueue]] = {}
        self.policies: dict[str, str] = {}
        self.arrival_bells: list[MemoryArrivalBell] = []
        self.membership_bells: list[ThreadBell] = []
        self._messages: dict[MessageQueue, list[ReceivedMessage]] = {}
        self._armed: defaultdict[MessageQueue, set[int]] = defaultdict(set)
        self._turns: defaultdict[str, int] = defaultdict(int)
        self._end = 0
        self._waiting: dict[str, threading.Timer] = {}

    def create_topic(self, topic: str, queue_count: int, cleanup_policy: str | None) -> list[MessageQueue]:
        with self.lock:
            if topic not in self.topics:
                self.topics[topic] = [MessageQueue(topic, number) for number in range(queue_count)]
                self.policies[topic] = cleanup_policy or "delete"
                self._messages.update({queue: [] for queue in self.topics[topic]})
                self.signal_membership()
            return list(self.topics[topic])

    def queues(self, topic: str) -> list[MessageQueue]:
        if topic not in self.topics:
            raise UnknownTopic(f"no topic {topic!r}")
        return list(self.topics[topic])

    def messages(self, queue: MessageQueue) -> list[ReceivedMessage]:
        if queue not in self._messages:
            raise UnknownTopic(f"no queue {queue}")
        return self._messages[queue]

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        messages = self.messages(queue)
        if not 0 <= queue_offset < len(messages):
            raise MessageExpired(f"no message {queue_offset} in {queue}")
        return messages[queue_offset]

    def arm(self, queue: MessageQueue, lane: int) -> None:
        with self.lock:
            self._armed[queue].add(lane)

    def signal_membership(self) -> None:
        for bell in list(self.membership_bells):
            bell.ring()

    # --- appending ---------------------------------------------------------------------------------

    def queue_for(self, queues: list[MessageQueue], topic: str, sharding_key: str | None) -> MessageQueue:
        if sharding_key is not None:
            return queues[abs(java_hash(sharding_key)) % len(queues)]
        with self.lock:
            self._turns[topic] += 1
            return queues[self._turns[topic] % len(queues)]

    def append(self, record: ReferenceRecord) -> SendResult:
        """Give a record its place, and ring for its queue."""
        queue = MessageQueue(record.topic, record.queue_id)
        with self.lock:
            messages = self.messages(queue)
            message = received(record, queue, len(messages), self._end)
            self._end += message.size
            messages.append(message)
            lanes = self._armed.pop(queue, set())
        for lane in lanes:
            self.arrival_bells[lane].ring()
        return sent(message)

    def append_later(self, record: ReferenceRecord, delay_s: float) -> SendResult:
        """Append a record when its time has come, from a thread of its own."""
        result = sent(received(record, MessageQueue(record.topic, record.queue_id), 0, 0))
        timer = threading.Timer(delay_s, self._append_due, (result.message_id, record))
        timer.daemon = True
        with self.lock:
            self._waiting[result.message_id] = timer
        timer.start()
        return result

    def cancel(self, message_id: str) -> bool:
        with self.lock:
            timer = self._waiting.pop(message_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def close(self) -> None:
        for message_id in list(self._waiting):
            self.cancel(message_id)

    def _append_due(self, message_id: str, record: ReferenceRecord) -> None:
        with self.lock:
            if self._waiting.pop(message_id, None) is None:
                return
        self.append(record)


def record_of(message: Message, queue: MessageQueue, sharding_key: str | None) -> ReferenceRecord:
    """Return the record of a message that is sent."""
    properties = dict(message.properties or {})
    if message.keys:
        properties["KEYS"] = " ".join(message.keys)
    properties["UNIQ_KEY"] = uuid.uuid4().hex.upper()
    properties["WAIT"] = "true"
    if message.tags:
        properties["TAGS"] = message.tags
    if sharding_key is not None:
        properties["__SHARDINGKEY"] = sharding_key
    return ReferenceRecord(
        topic=queue.topic,
        queue_id=queue.queue_id,
        body=encode_body(message.body),
        properties=format_properties(properties),
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=now_ms(),
    )


def copy_of(
    message: ReceivedMessage, queue: MessageQueue, properties: Mapping[str, str], reconsume_times: int
) -> ReferenceRecord:
    """Return the record of a message that is appended again."""
    return ReferenceRecord(
        topic=queue.topic,
        queue_id=queue.queue_id,
        body=message.stored_body,
        properties=format_properties(properties),
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        reconsume_times=reconsume_times,
    )


def received(
    record: ReferenceRecord, queue: MessageQueue, queue_offset: int, commit_log_offset: int
) -> ReceivedMessage:
    """Return a record as a message, with the place that it gets."""
    placed = replace(record, queue_offset=queue_offset, commit_log_offset=commit_log_offset, store_timestamp=now_ms())
    message = decode(encode(placed), 0, commit_log_offset, queue)
    assert isinstance(message, ReceivedMessage)
    return message


def sent(message: ReceivedMessage) -> SendResult:
    """Return where a message stands."""
    end = message.commit_log_offset + message.size
    return sent_result(message.queue, message.queue_offset, message.commit_log_offset, end, message.message_id)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
