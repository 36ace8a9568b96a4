"""Timer entries: the messages of the timer and their due times, read from the log and its consume queue."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from rmqclient.store import layout
from rmqclient.store.kernel._kernel import ReceivedMessage, TimerHeap, decode
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.timer_bits import QUEUE, TimerBits

_log = Log(__name__)

_OFFSET = struct.Struct(">q")
"""Of the record, the first field of an entry."""
_READ_AT_ONCE = 1 << 13
"""Entries, a multiple of 64."""
_DUE, _ENDS = b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY"
_MOST_DIGITS = 18
"""Of a time in ms."""


class TimerEntries:
    """The entries of the timer's queue, for one process."""

    def __init__(self, parts: Parts, bits: TimerBits, oldest: Callable[[MessageQueue], int]) -> None:
        self._state = parts.state
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._bits = bits
        self._oldest = oldest

    def message(self, number: int) -> ReceivedMessage | None:
        """Return a message of the timer; None if it is damaged or was removed."""
        try:
            entries, first = self._consume_queues[QUEUE].file_of(number)
            (offset,) = _OFFSET.unpack_from(entries, (number - first) * layout.CONSUME_QUEUE_ENTRY.size)
            base = self._log_files.base_of(offset)
            found = decode(self._log_files.mapping(base), offset - base, offset)
        except FileNotFoundError:
            return None
        if not isinstance(found, ReceivedMessage):
            return None
        place = MessageQueue(found.topic, found.queue_id), found.queue_offset
        return found if place == (QUEUE, number) else None

    def fill(self, heap: TimerHeap, start: int, end: int) -> list[int]:
        """Enter the due times of a part of the entries into ``heap``; return the queue offsets that have none."""
        stop = min(end, self.part_end(start))
        if self._bits.are_done(start, stop):
            return []
        try:
            entries = self._consume_queues[QUEUE].entry_bytes(start, stop)
        except FileNotFoundError:
            if start >= self._oldest(QUEUE):
                _log.error("entries %d to %d of the timer are missing until the store is opened anew", start, stop)
            return []
        return heap.fill(entries, start, self._state.mapping, layout.TIMER_AT, self._bits.ring)

    def part_end(self, start: int) -> int:
        """Return the end of a part of the entries that lies in one file and in one turn of the ring."""
        first = self._consume_queues[QUEUE].first_entry_of(start)
        file_end = first + self._consume_queues[QUEUE].entries_per_file
        turn_end = start - start % self._bits.ring + self._bits.ring
        return min(file_end, turn_end, start - start % _READ_AT_ONCE + _READ_AT_ONCE)

    def waiting(self, numbers: range) -> Iterator[int]:
        """Yield those of some queue offsets whose messages wait."""
        start = numbers.start
        while start < numbers.stop:
            stop = min(numbers.stop, self.part_end(start))
            if not self._bits.are_done(start, stop):
                yield from (number for number in range(start, stop) if not self._bits.is_done(number))
            start = stop


def due_ms_of(message: ReceivedMessage) -> int:
    """Return when a message of the timer is due, 0 for an operation and for a message that does not say it."""
    if message.tags_code > layout.MOST_TAGS_CODE:
        return message.tags_code
    found = message.some_properties((_DUE, _ENDS))
    text = found.get(_DUE.decode(), "")
    is_time = _ENDS.decode() not in found and text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_time else 0
