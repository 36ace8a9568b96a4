"""Waiting: the messages that wait for a delay level or for their time, as an onlooker counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqclient.store import layout
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.observe.observation import Queue, Waits
from rmqclient.store.observe.records import Records
from rmqclient.store.observe.shared_file import SharedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_RETRIES_READ = 10_000
"""Waiting messages that are read in one look, at most, to learn for which groups they are."""

_TIMER_QUEUE = MessageQueue("rmq_sys_wheel_timer", 0)
_ALL_DONE = (1 << 64) - 1


class Waiting:
    """What waits in one store, for one thread."""

    def __init__(self, shared: SharedFile, records: Records) -> None:
        self._shared = shared
        self._records = records

    def look(self, queues: list[Queue]) -> Waits:
        """Return how much waits, until when, and for which groups."""
        levels = {
            each.queue: (max(self._next_of_level(each.queue.queue_id), each.min_offset), each.max_offset)
            for each in queues
            if each.queue.topic == _SCHEDULE_TOPIC and each.queue.queue_id < layout.SCHEDULE_SLOTS
        }
        in_timer = next((each.max_offset for each in queues if each.queue == _TIMER_QUEUE), 0)
        undone = self._undone(in_timer)
        count = sum(64 - word.bit_count() for _, word in undone) + sum(max(0, end - at) for at, end in levels.values())
        due_ms = [self._shared.word("timer_next_due")] if self._shared.word("timer_next_due") else []
        for queue, (first, end) in levels.items():
            due_ms += [entry[2] for entry in self._records.entries(queue, first, min(first + 1, end))]
        step = -(-count // _RETRIES_READ) or 1
        entries = list(self._entries_of(undone[::step]))
        for queue, (first, end) in levels.items():
            entries += self._records.entries(queue, first, end, step)
        retries: dict[str, int] = {}
        for group in self._records.retry_groups(entries):
            if group:
                retries[group] = retries.get(group, 0) + step
        return Waits(
            waiting=count,
            enqueued=in_timer + sum(end for _, end in levels.values()),
            next_due_ms=min(due_ms, default=None),
            retries=retries,
        )

    def _next_of_level(self, queue_id: int) -> int:
        return self._shared.words[(layout.SCHEDULE_TABLE_AT + queue_id * layout.SCHEDULE_SLOT.size) // 8]

    def _undone(self, end: int) -> list[tuple[int, int]]:
        """Return where messages of the timer wait: queue offsets, and bits of which of the next 64 do not."""
        done_to = self._shared.words[(layout.TIMER_AT + layout.TIMER_HEADER.at["done_to"]) // 8]
        if end <= done_to:
            return []
        bits, ring = (layout.TIMER_AT + layout.TIMER_HEADER.size) // 8, layout.TIMER_BITS // 64
        first, count = done_to // 64 % ring, min(-(-(end - done_to) // 64), ring)
        words = self._shared.words[bits + first : bits + min(first + count, ring)].tolist()
        words += self._shared.words[bits : bits + count - len(words)].tolist()
        if end % 64:
            words[-1] |= _ALL_DONE << end % 64 & _ALL_DONE
        return [(done_to + 64 * number, word) for number, word in enumerate(words) if word != _ALL_DONE]

    def _entries_of(self, undone: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
        for begin, word in undone:
            last = begin + (~word & _ALL_DONE).bit_length()
            entries = self._records.entries(_TIMER_QUEUE, begin, last)
            if len(entries) == last - begin:  # else a file was removed meanwhile
                yield from (entry for bit, entry in enumerate(entries) if not word >> bit & 1)
