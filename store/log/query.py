"""Queries: messages by id, by key and by time.

An index file says where a key may be. The message itself shows whether it has the key, and its CRC whether it is whole.
A damaged index can therefore miss a message but never return a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rmqclient.store.bodies import DEFAULT_LIMIT
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueue
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.log.inner_batch import opened
from rmqclient.store.log.record import ReceivedMessage

END_OF_TIME = 2**63 - 1

_OFFSET_ID_DIGITS = (32, 56)  # with an IPv4 or an IPv6 address


def by_offset_id(log_files: FileQueue, published: range, message_id: str) -> ReceivedMessage | None:
    """Return the message whose ``offset_message_id`` this is, or None (MessageDecoder.decodeMessageId)."""
    if len(message_id) not in _OFFSET_ID_DIGITS:
        return None
    try:
        offset = int(message_id[-16:], 16)
    except ValueError:
        return None
    message = _message(log_files, published, offset)
    return message if message is not None and message.offset_message_id == message_id.upper() else None


def by_unique_key(
    log_files: FileQueue,
    index_files: IndexFiles,
    published: range,
    topics: Iterable[str],
    unique_key: str,
    limit: int = DEFAULT_LIMIT,
) -> ReceivedMessage | None:
    """Return the newest message of these topics that has a unique key, even inside a batch, or None.

    ``limit`` is how many bytes a compressed batch may open to.
    """
    for topic in topics:
        for offset in index_files.candidates(topic, unique_key, 0, END_OF_TIME):
            for message in _messages(log_files, published, offset, topic, limit):
                if message.message_id == unique_key:
                    return message
    return None


def by_key(
    log_files: FileQueue,
    index_files: IndexFiles,
    published: range,
    topic: str,
    key: str,
    stored: tuple[int, int],
    limit: int = DEFAULT_LIMIT,
) -> Iterator[ReceivedMessage]:
    """Yield the messages of a topic that have a key or unique key and were stored in a period, the newest first.

    Only the messages of a batch that have the key are returned; ``limit`` is how many bytes a compressed batch may open
    to.
    """
    begin_ms, end_ms = stored
    last = -1
    for offset in index_files.candidates(topic, key, begin_ms, end_ms):
        if offset == last:  # a key that stands twice in one message
            continue
        last = offset
        for message in reversed(_messages(log_files, published, offset, topic, limit)):
            has_key = key in message.keys or key == message.message_id
            if has_key and begin_ms <= message.store_timestamp <= end_ms:
                yield message


def offset_by_time(log_files: FileQueue, queue: ConsumeQueue, known: range, timestamp_ms: int) -> int:
    """Return the first of the ``known`` queue offsets whose message was stored at a time or later, or their end.

    The search begins at the newest entry, goes back in growing steps, and then by halves, so a time near the end
    touches few old pages (Kafka's OffsetIndex searches its warm section first). For a time between two messages
    RocketMQ 4.9 returns the nearer one; this is the lower boundary of RocketMQ 5 (BoundaryType.LOWER).
    """
    low, high = known.start, known.stop
    step = 1
    while low < high:
        probe = max(low, high - step)
        if _stored_before(log_files, queue, probe, known.stop, timestamp_ms):
            low = probe + 1
            break
        high = probe
        step *= 2
    while low < high:
        middle = (low + high) // 2
        if _stored_before(log_files, queue, middle, known.stop, timestamp_ms):
            low = middle + 1
        else:
            high = middle
    return low


def _stored_before(log_files: FileQueue, queue: ConsumeQueue, queue_offset: int, end: int, timestamp_ms: int) -> bool:
    """Return whether a message, or the next whole one, was stored before a time."""
    for offset in range(queue_offset, end):
        try:
            stored = commit_log.read(log_files, queue.entry(offset).commit_log_offset).store_timestamp
        except (StoreCorrupt, FileNotFoundError):
            continue
        return stored < timestamp_ms
    return False


def _messages(
    log_files: FileQueue, published: range, commit_log_offset: int, topic: str, limit: int
) -> Sequence[ReceivedMessage]:
    """Return the messages of a record; an empty list if the record is damaged or of another topic."""
    message = _message(log_files, published, commit_log_offset)
    return () if message is None or message.topic != topic else opened(message.limited_to(limit))


def _message(log_files: FileQueue, published: range, commit_log_offset: int) -> ReceivedMessage | None:
    if commit_log_offset not in published:
        return None
    try:
        return commit_log.read(log_files, commit_log_offset)
    except StoreCorrupt:
        return None
