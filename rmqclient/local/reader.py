"""Local reader: reads the queues of a store of this host, by queue offset and by tag."""

from __future__ import annotations

from rmqclient.backend.pull_result import PullResult, PullStatus
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import MessageExpired, StoreCorrupt
from rmqclient.store.log.inner_batch import opened
from rmqclient.store.threads.logs import Log

_SCANNED_ENTRIES = 800
"""Entries that one look skips, at most, or ``limit`` if that is more. [maxFilterMessageCount, 16,000 bytes]"""

_log = Log(__name__)


def read(store: MessageStore, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
    """Return up to ``limit`` messages from ``offset`` on with a wanted tag.

    The messages of a compressed batch come together, so there can be more than ``limit``. Damaged records are logged
    and skipped. Raises UnknownTopic.
    """
    low, high = store.topics.min_offset(queue), store.topics.max_offset(queue)
    if not low <= offset <= high:
        return PullResult(PullStatus.OFFSET_ILLEGAL, min(max(offset, low), high), low, high)
    if offset == high:
        return PullResult(PullStatus.NO_NEW_MESSAGE, offset, low, high)
    codes = set(map(_low_bits, wanted.tags_codes))
    found: list[ReceivedMessage] = []
    position, left = _read_compacted(store, queue, offset, wanted, limit, found)
    stop = min(high, position + left)
    while position < stop and len(found) < limit:
        try:
            message = _message_at(store, queue, position, codes)
        except MessageExpired:  # removed meanwhile
            if found:
                break
            oldest = max(position + 1, store.messages.oldest(queue))
            return PullResult(PullStatus.OFFSET_ILLEGAL, min(oldest, high), store.topics.min_offset(queue), high)
        if message is not None:
            found += [each for each in opened(message) if wanted.matches(each.tags)]
        position += 1
    status = PullStatus.FOUND if found else PullStatus.NO_MATCHED_MESSAGE
    return PullResult(status, position, low, high, tuple(found))


def _read_compacted(
    store: MessageStore,
    queue: MessageQueue,
    offset: int,
    wanted: TagFilter,
    limit: int,
    found: list[ReceivedMessage],
) -> tuple[int, int]:
    """Add matching messages of the queue's compacted file, if it has one; return the next offset and the end."""
    left = max(_SCANNED_ENTRIES, limit)
    compacted = store.compaction.reader(queue)
    while compacted is not None and left and len(found) < limit:
        offset, message, _ = compacted(offset)
        if message is None:
            break
        if wanted.matches(message.tags):
            found.append(message)
        offset, left = offset + 1, left - 1
    return offset, left


def _message_at(store: MessageStore, queue: MessageQueue, offset: int, codes: set[int]) -> ReceivedMessage | None:
    """Return a message; None if the hash of its tags is not in ``codes``, or its record is damaged."""
    if codes:
        entry = store.consume_queues[queue].entry_or_none(offset)
        if entry is not None and _low_bits(entry.tags_code) not in codes:
            return None
    try:
        return store.messages.at(queue, offset)
    except StoreCorrupt as error:
        _log.error("message %d of %s is damaged; it was stepped over: %s", offset, queue, error)
        return None


def _low_bits(code: int) -> int:
    """Return the low 32 bits of a tags code, which RocketMQ compares (DefaultMessageFilter.isMatchedByConsumeQueue)."""
    return code & 0xFFFF_FFFF
