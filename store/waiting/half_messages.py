"""Half messages: what the three topics of transactions say. This module only reads.

==============================  ===========================================================================
topic, one queue each           holds
==============================  ===========================================================================
RMQ_SYS_TRANS_HALF_TOPIC        messages that are sent and not yet committed. REAL_TOPIC and REAL_QID name
                                their queue, PGROUP the group of their producers,
                                TRANSACTION_CHECK_TIMES the checks so far. If a message was put back
                                because it asked for more time, TRAN_PREPARED_QUEUE_OFFSET is the queue
                                offset of the first one
RMQ_SYS_TRANS_OP_HALF_TOPIC     operations: ``TAGS=d``, and in the body the queue offset of the half message
                                that was committed or rolled back. RocketMQ 5.1 writes several offsets,
                                separated by commas
TRANS_CHECK_MAX_TIME_TOPIC      half messages that were given up after the last check
==============================  ===========================================================================

A check stores a half message again, behind all others: a *renewal*. All renewals of a transaction have the unique key,
the born time and the body of its first half message: :func:`identity`.

The sources are TransactionalMessageBridge, TransactionalMessageServiceImpl and TransactionalMessageUtil.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator

from rmqclient.store.errors import StoreCorrupt, UnknownTopic
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.kernel._kernel import GIVEN_UP_TOPIC, HALF_TOPIC, OPERATION_TOPIC, ReceivedMessage
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.queue_table import QueueTable

HALF_QUEUE = MessageQueue(HALF_TOPIC, 0)
OPERATION_QUEUE = MessageQueue(OPERATION_TOPIC, 0)
GIVEN_UP_QUEUE = MessageQueue(GIVEN_UP_TOPIC, 0)

_CHECKS = "TRANSACTION_CHECK_TIMES"
_FIRST = "TRAN_PREPARED_QUEUE_OFFSET"
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_NUMBER = re.compile("[0-9]{1,18}")
_COMMIT_TYPE, _TRANSACTION_BITS = 0x8, 0xC
_NEAR = 1_000
"""A broker appends the committed message and then the operation; at most this many messages of a queue come between."""

Identity = tuple[str, int, int]


def identity(message: ReceivedMessage) -> Identity:
    """Return what only a half message, its renewals and its committed message have in common."""
    return message.message_id, message.born_timestamp, zlib.crc32(message.stored_body)


def group_of(half: ReceivedMessage) -> str:
    """Return the group of the producers of a half message."""
    return half.properties.get("PGROUP", "")


def checks_of(half: ReceivedMessage) -> int:
    """Return how often the producers were asked about a half message."""
    return _number(half.properties.get(_CHECKS, "0")) or 0


def checked_once_more(half: ReceivedMessage) -> dict[str, str]:
    """Return the properties of the renewal for a check (needDiscard)."""
    return {**half.properties, _CHECKS: str(checks_of(half) + 1)}


def put_back(half: ReceivedMessage) -> dict[str, str]:
    """Return the properties of the renewal without a check (renewImmunityHalfMessageInner)."""
    return {**half.properties, _FIRST: half.properties.get(_FIRST, str(half.queue_offset))}


def immunity_ms(half: ReceivedMessage) -> int | None:
    """Return how many ms after its born time a half message may be checked; None if it does not say."""
    seconds = _number(half.properties.get(_IMMUNITY, ""))
    return None if seconds is None else seconds * 1_000


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def is_commit_of(message: ReceivedMessage, half: ReceivedMessage) -> bool:
    """Tell whether a message was committed from a half message or from an earlier renewal of it."""
    if message.sys_flag & _TRANSACTION_BITS != _COMMIT_TYPE:
        return False
    return message.prepared_transaction_offset == half.commit_log_offset or identity(message) == identity(half)


class Queues:
    """Reads messages by their place, and reports a damaged message as None instead of raising."""

    def __init__(self, topics: QueueTable, log_files: FileQueue, consume_queues: ConsumeQueues) -> None:
        self._topics = topics
        self._log_files = log_files
        self._consume_queues = consume_queues

    def known(self, queue: MessageQueue) -> range:
        """Return the queue offsets of a queue; an empty range if the queue does not exist."""
        try:
            return range(self._topics.min_offset(queue), self._topics.max_offset(queue))
        except UnknownTopic:
            return range(0)

    def message(self, queue: MessageQueue, number: int) -> ReceivedMessage | None:
        """Return a message; None if it is damaged or was removed."""
        try:
            entry = self._consume_queues[queue].entry(number)
            found = commit_log.read(self._log_files, entry.commit_log_offset)
        except (StoreCorrupt, FileNotFoundError):
            return None
        place = MessageQueue(found.topic, found.queue_id), found.queue_offset
        return found if place == (queue, number) else None

    def messages(self, queue: MessageQueue, numbers: range) -> Iterator[ReceivedMessage]:
        """Yield the messages at these offsets that are whole."""
        return (found for number in numbers if (found := self.message(queue, number)) is not None)

    def behind(self, queue: MessageQueue, commit_log_offset: int, end: int | None = None) -> range:
        """Return the queue offsets, up to ``end``, of messages that stand at or behind a commit log offset.

        The log has one order, whatever the clocks showed.
        """
        known = self.known(queue)
        start = max(known.start, self._consume_queues[queue].end_below(commit_log_offset)) if known else 0
        return range(start, known.stop if end is None else min(end, known.stop))

    def tagged(self, queue: MessageQueue, numbers: range, tags_codes: set[int]) -> Iterator[ReceivedMessage]:
        """Yield the messages whose consume queue entry has one of these tags codes."""
        for number in numbers:
            try:
                entry = self._consume_queues[queue].entry(number)
            except (StoreCorrupt, FileNotFoundError):
                continue
            if entry.tags_code in tags_codes and (found := self.message(queue, number)) is not None:
                yield found

    def was_committed(self, queue: MessageQueue, operation: ReceivedMessage, half: ReceivedMessage) -> bool:
        """Tell whether an operation was written for a half message that was committed to its queue."""
        end = self.behind(queue, operation.commit_log_offset).start
        near = range(max(self.known(queue).start, end - _NEAR), end)
        return any(is_commit_of(found, half) for found in self.tagged(queue, near, {half.tags_code}))


def decided_by(operation: ReceivedMessage) -> tuple[int, ...]:
    """Return the queue offsets of the half messages that an operation decides."""
    if operation.tags != "d":
        return ()
    texts = operation.stored_body.decode("ascii", "replace").split(",")
    return tuple(number for number in map(_number, texts) if number is not None)


class Operations:
    """Which half messages are decided. Each operation is read once."""

    def __init__(self, queues: Queues, start: int) -> None:
        self._queues = queues
        self._decided: dict[int, int] = {}
        self._read: deque[tuple[int, tuple[int, ...]]] = deque()
        self._next = start

    def __len__(self) -> int:
        return len(self._read)

    def read_to(self, end: int) -> None:
        """Read on, up to the operation ``end``. A damaged operation decides nothing."""
        for number in range(self._next, end):
            operation = self._queues.message(OPERATION_QUEUE, number)
            self.add(number, () if operation is None else decided_by(operation))

    def add(self, number: int, decided: tuple[int, ...]) -> None:
        """Add the next operation, whose content is known."""
        self._decided.update(dict.fromkeys(decided, number))
        self._read.append((number, decided))
        self._next = number + 1

    def of(self, half: ReceivedMessage) -> int | None:
        """Return the number of the operation that decides a half message, None while it is undecided."""
        first = _number(half.properties.get(_FIRST, ""))
        return self._decided.get(half.queue_offset, None if first is None else self._decided.get(first))

    def decides(self, half_offset: int) -> bool:
        """Tell whether there is an operation for the half message with this queue offset."""
        return half_offset in self._decided

    def forget_below(self, half_offset: int) -> int:
        """Forget operations whose half messages are all passed; return the number of the first remaining one."""
        while self._read and all(number < half_offset for number in self._read[0][1]):
            for number in self._read.popleft()[1]:
                self._decided.pop(number, None)
        return self._read[0][0] if self._read else self._next
