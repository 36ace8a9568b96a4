"""Found: a store as the checks of :mod:`rmqclient.store.inspect.verify` see it, and the problems that they report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.files.compacted_file import directory_of
from rmqclient.store.inspect.reading import Log, StoreReader, entries_below, entries_of
from rmqclient.store.log.consume_queue import ConsumeQueue
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.shared_state import SharedState, queue_slot_at

LOOKS = 5
"""How often a check reads words that other processes may be changing before it reports a problem."""

_ENTRY = layout.CONSUME_QUEUE_ENTRY

Flagged = Iterator[tuple[int, str]]
"""Queue offsets of faulty entries, each with its fault in words."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One place where an invariant does not hold."""

    invariant: int
    path: Path
    position: int
    """Byte in the file."""
    reason: str

    def __str__(self) -> str:
        return f"{self.invariant}  {self.path}, byte {self.position}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Found:
    """A store as the checks see it."""

    reader: StoreReader
    log: Log
    entries: dict[MessageQueue, range]
    """Queue offsets whose entries must be there."""
    slots: dict[MessageQueue, int]
    """The slot of each queue in the queue table; empty without a runtime file."""

    def queues(self) -> Iterator[tuple[MessageQueue, ConsumeQueue, range]]:
        """Yield every queue with its files and the queue offsets whose entries must be there."""
        for queue, expected in self.entries.items():
            yield queue, self.reader.consume_queues[queue], expected

    def unmatched(self, queue: MessageQueue, expected: range, *, overlap: int = 0) -> Iterator[range]:
        """Yield the parts of ``expected`` that the walk over the log has not seen to be right.

        With an overlap they take in so many entries beside them that it has.
        """
        matched = self.log.matched.get(queue, range(0))
        start, stop = max(expected.start, matched.start), min(expected.stop, matched.stop)
        if start >= stop:
            yield expected
            return
        if expected.start < start:
            yield range(expected.start, min(start + overlap, stop))
        if stop < expected.stop:
            yield range(max(stop - overlap, start), expected.stop)


def look(reader: StoreReader) -> Found:
    """Walk over the log and determine which entries must be there."""
    log, state = reader.read_log(), reader.state
    if state is not None:
        slots = {_queue_of(state, slot): slot for slot in range(state.queue_count)}
        return Found(
            reader, log, {queue: _kept(reader, queue, bounds_of(state, slots[queue])) for queue in slots}, slots
        )
    queues = sorted({*reader.consume_queues.on_disk(), *log.numbers})
    return Found(reader, log, {queue: _expected(reader, log, queue) for queue in queues}, {})


def entry_problems(invariant: int, queue: ConsumeQueue, flagged: Iterable[tuple[int, str]]) -> Iterator[Problem]:
    """Join consecutive entries that have the same fault into one problem."""
    runs = groupby(enumerate(flagged), key=lambda item: (item[1][1], item[1][0] - item[0]))
    for (words, _), run in runs:
        numbers = [number for _, (number, _) in run]
        first = queue.first_entry_of(numbers[0])
        path, position = queue.files.path(first * _ENTRY.size), (numbers[0] - first) * _ENTRY.size
        yield Problem(invariant, path, position, f"{numbers_of(range(numbers[0], numbers[-1] + 1))}: {words}")


def numbers_of(numbers: range) -> str:
    """Return in words which entries these are."""
    return f"entry {numbers[0]}" if len(numbers) == 1 else f"entries {numbers[0]} to {numbers[-1]}"


def bounds_of(state: SharedState, slot: int) -> range:
    """Return the queue offsets from the oldest message up to the next one to be stored."""
    at, fields = queue_slot_at(slot), layout.QUEUE_SLOT.at
    return range(state.words.load(at + fields["min_offset"]), state.words.load(at + fields["max_offset"]))


def _expected(reader: StoreReader, log: Log, queue: MessageQueue) -> range:
    """Return the entries a queue must have without a runtime file: those of all its records and all between them."""
    on_disk = entries_below(reader.consume_queues[queue], reader.begin, log.end)
    in_log = log.numbers.get(queue, on_disk)
    return range(min(in_log.start, on_disk.start), max(in_log.stop, on_disk.stop)) if on_disk else in_log


def _kept(reader: StoreReader, queue: MessageQueue, bounds: range) -> range:
    """Leave out entries whose records retention has removed: it raises the log's minimum before the queue's.

    In a compact topic the entry at the queue's minimum may be in the compacted file.
    """
    entries = reader.consume_queues[queue]
    if directory_of(reader.root, queue.topic).is_dir():
        return range(entries.oldest(bounds.start, bounds.stop, reader.begin), bounds.stop)
    for _, entry in entries_of(entries, bounds[:1]):
        if 0 <= entry.commit_log_offset < reader.begin:
            return range(entries.oldest(bounds.start, bounds.stop, reader.begin), bounds.stop)
    return bounds


def _queue_of(state: SharedState, slot: int) -> MessageQueue:
    at, fields = queue_slot_at(slot), layout.QUEUE_SLOT.at
    topic = state.text(at + fields["topic"], state.words.load32(at + fields["topic_size"]))
    return MessageQueue(topic, state.words.load32(at + fields["queue_id"]))
