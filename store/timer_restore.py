"""Which messages of the timer are done, for a new runtime file: from the old one, or else from the log.

Every end of a wait is a record behind the one that waited, with its queue offset in ``TIMER_QUEUE_OFFSET`` and its id
(:mod:`store.timer`). So the log alone says which messages are done, and what a power cut took back is not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from store import commit_log, layout
from store._kernel import ReceivedMessage
from store.consume_queue import ConsumeQueues
from store.errors import StoreCorrupt, UnknownTopic
from store.file_queue import FileQueue
from store.record import Blank, Record
from store.shared_state import SharedState
from store.timer import QUEUE
from store.topic_table import TopicTable

_log = logging.getLogger(__name__)

_AT = layout.TIMER_AT
_BITS_AT = _AT + layout.TIMER_HEADER.size

Done = tuple[int, int, bytes]
"""Below the first one all are done; up to the second one the bits say so, from the first one on."""


def done_of(leftover: SharedState, topics: TopicTable) -> Done | None:
    """Take over from the runtime file of this boot which messages are done; None when none ever waited."""
    try:
        high = topics.max_offset(QUEUE)
    except UnknownTopic:
        return None
    fields = layout.TIMER_HEADER.at
    words = leftover.words
    done_to = max(words.load(_AT + fields["done_to"]), words.load(_AT + fields["clearing_to"]))
    ring = layout.TIMER_BITS
    if done_to % 64 or not high - ring <= done_to <= high + 63:
        return None  # a damaged word
    return (
        done_to,
        high,
        b"".join(bytes(memoryview(leftover.mapping)[at : at + count]) for at, count in _places(done_to, high, ring)),
    )


def restore(
    state: SharedState,
    topics: TopicTable,
    log_files: FileQueue,
    consume_queues: ConsumeQueues,
    kept: Done | None,
) -> None:
    """Fill the bits of a new runtime file from ``kept``, or else from the log."""
    try:
        low, high = topics.min_offset(QUEUE), topics.max_offset(QUEUE)
    except UnknownTopic:
        return
    if kept is None or kept[1] > high:
        kept = _from_log(state, low, high, log_files, consume_queues)
    done_to, _, bits = kept
    for at, count in _places(done_to, high, layout.TIMER_BITS):
        state.put_bytes(at, bits[:count])
        bits = bits[count:]
    for field in ("done_to", "clearing_to"):
        state.words.store(_AT + layout.TIMER_HEADER.at[field], done_to)


def _places(start: int, stop: int, ring: int) -> Iterator[tuple[int, int]]:
    """Yield byte and number of bytes of the bits of some messages, in whole words."""
    stop += -stop % 64
    while start < stop:
        end = min(stop, start - start % ring + ring)
        yield _BITS_AT + start % ring // 8, (end - start) // 8
        start = end


def _from_log(state: SharedState, low: int, high: int, log_files: FileQueue, consume_queues: ConsumeQueues) -> Done:
    """Look for the record that ended each wait."""
    begin = low - low % 64
    done = bytearray((high - begin + 63) // 64 * 8)
    for number in range(begin, low):
        done[number - begin >> 3] |= 1 << (number & 7)
    if low < high:
        entries = consume_queues[QUEUE]
        for end in _ends(log_files, state.min_offset, state.published_to):
            text = end.properties["TIMER_QUEUE_OFFSET"]
            number = int(text) if text.isdecimal() and len(text) < 20 else -1
            if low <= number < high and _is_of(end, _message(log_files, entries.entry(number).commit_log_offset)):
                done[number - begin >> 3] |= 1 << (number & 7)
    full = len(done) - len(done.lstrip(b"\xff"))
    full -= full % 8
    return begin + 8 * full, high, bytes(done[full:])


def _ends(log_files: FileQueue, start: int, end: int) -> Iterator[ReceivedMessage]:
    """Yield the records that say of a message of the timer that it is done."""
    reader = commit_log.LogReader(log_files)
    offset: int | None = start
    while offset is not None and offset < end:
        try:
            outcome = reader.outcome(offset)
        except (FileNotFoundError, StoreCorrupt):
            outcome = None
        if isinstance(outcome, Record):
            if "TIMER_QUEUE_OFFSET" in outcome.message.some_properties((b"TIMER_QUEUE_OFFSET",)):
                yield outcome.message
            offset += outcome.size
        elif isinstance(outcome, Blank):
            offset = log_files.base_of(offset) + log_files.file_bytes
        else:
            offset = commit_log.next_record(log_files, offset + 1, end)


def _message(log_files: FileQueue, commit_log_offset: int) -> ReceivedMessage | None:
    try:
        return commit_log.read(log_files, commit_log_offset)
    except StoreCorrupt:
        return None


def _is_of(end: ReceivedMessage, message: ReceivedMessage | None) -> bool:
    if message is None:
        return True  # nothing can be delivered of it
    key = end.properties.get("TIMER_DEL_UNIQKEY", end.message_id)
    is_later = end.commit_log_offset > message.commit_log_offset
    return is_later and (key == message.message_id or "UNIQ_KEY" not in message.properties)
