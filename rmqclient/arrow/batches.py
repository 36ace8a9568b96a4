"""Batches: the messages in a view as Arrow record batches, without a Python object for each row.

There are two ways to go through messages:

- By the consume queue entries of one queue: each record is read at the position that its entry gives.
- Along the commit log: the records of all wanted queues are taken in the order of the log. This is faster if most
  records there are wanted.

``on_lost`` is called with a sentence about each message that cannot be delivered. If ``on_lost`` returns, reading
continues with the next message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping

import pyarrow as pa

from rmqclient.arrow.columns import IN_ENTRIES, check_types
from rmqclient.arrow.record_batches import loss_in_words, record_batch
from rmqclient.filters.tag import TagFilter
from rmqclient.store import STOPPED, Collector, Columns, MessageQueue
from rmqclient.store.bodies import DEFAULT_LIMIT
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.inspect.view import LogPart, View, entry_at, first_offset
from rmqclient.store.log.consume_queue import ENTRY
from rmqclient.store.log.record import reason

PART_BYTES = 8 << 20
"""Bytes of the log per request, if a view does not map whole files."""

_ENTRIES_AT_ONCE = 16_384
EVERYTHING = TagFilter(frozenset())

_UNREADABLE = -1
"""Replaces the commit log offset of an entry that cannot be read."""

_OUTSIDE = "its entry points outside the commit log"
_REMOVED = "the file no longer exists"
_PASSED_OVER = "the commit log has no valid record of it"


class BatchReader:
    """Arrow record batches of the messages in a view.

    ``schema`` has any of the stored columns of :mod:`rmqclient.arrow.columns`, in any order; every batch has exactly
    this schema. A batch is complete when it has ``rows`` rows, or more than ``size`` bytes in columns of variable size.
    ``tags`` selects by tag. For use by one thread.

    Every record is checked before it is delivered: its CRC, and that it is the message that its entry, or its place in
    the queue, asks for. If messages are damaged or gone, ``on_lost`` gets a sentence with queue, queue offsets, commit
    log offset and reason. ``on_lost`` raises to stop, or returns to skip these messages.

    Compressed bodies are decompressed, up to ``max_opened_body_bytes``. If a body cannot be decompressed, its value is
    null with ``null_unreadable``; otherwise reading raises BodyUnreadable, with queue, queue offset, commit log offset
    and reason. Reading raises NotInstalled if the library for a compression is not installed.

    Raises ValueError for a column that does not exist or has another type, and for limits out of range.
    """

    def __init__(
        self,
        view: View,
        schema: pa.Schema,
        *,
        rows: int = 10_000,
        size: int = 4 << 20,
        tags: TagFilter = EVERYTHING,
        max_opened_body_bytes: int = DEFAULT_LIMIT,
        null_unreadable: bool = False,
        on_lost: Callable[[str], None],
    ) -> None:
        check_types(schema)
        self._view = view
        self._schema = schema
        self._names = tuple(schema.names)
        self._rows = rows
        self._size = size
        self._tags = tags
        self._max_opened_body_bytes = max_opened_body_bytes
        self._null_unreadable = null_unreadable
        self._on_lost = on_lost
        self.collector()  # checks the other arguments

    def read_queue(self, queue: MessageQueue, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a queue from queue offset ``start`` up to ``stop``, by its entries.

        If the entries alone answer all wanted columns, the commit log is not read.
        """
        collector = self.collector()
        with_records = bool(self._tags.tags) or not IN_ENTRIES.issuperset(self._names)
        read = _QueueRead(self._view, collector, queue, self._on_lost)
        yield from self._batches(collector, read.steps(start, stop, with_records=with_records))

    def read_log(self, start: int, stop: int, wanted: Mapping[MessageQueue, range]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of some queues whose records begin at or above ``start`` and below ``stop`` in the log.

        A record must begin at ``start``. ``wanted`` gives the wanted queue offsets of each queue; other records are
        skipped unchecked. Messages without a consume queue entry, those of prepared or rolled back transactions, are
        left out.

        No message is skipped silently: the offsets of each queue must follow each other, and must begin and end where
        its entries say. This check reads one or two entries of each wanted queue, and takes a binary search for a queue
        without any message in the range. After bytes that are not a record, entries give the next position.
        """
        collector = self.collector()
        steps = _LogRead(self._view, collector, wanted, self._on_lost).steps(start, stop)
        yield from self._batches(collector, steps)

    def collector(self) -> Collector:
        """Return what gathers the rows of one read."""
        columns = Columns(
            self._names,
            rows=self._rows,
            size=self._size,
            max_opened_body_bytes=self._max_opened_body_bytes,
            null_unreadable=self._null_unreadable,
        )
        return Collector(columns, tags=self._tags.tags)

    def _batches(self, collector: Collector, steps: Iterator[None]) -> Iterator[pa.RecordBatch]:
        for _ in steps:
            yield record_batch(collector.columns, self._schema)
        if collector.columns.rows:
            yield record_batch(collector.columns, self._schema)


# --- by entries -----------------------------------------------------------------------------------


class _QueueRead:
    """Reads a queue by its entries. A step ends when the columns hold a batch."""

    def __init__(self, view: View, collector: Collector, queue: MessageQueue, on_lost: Callable[[str], None]) -> None:
        self._view = view
        self._collector = collector
        self._queue = queue
        self._topic = queue.topic.encode()
        self._on_lost = on_lost
        self._part: LogPart | None = None
        self._losing: tuple[range, int, str] | None = None
        """The last loss, not reported yet because it may grow: queue offsets, commit log offset, reason."""

    def steps(self, start: int, stop: int, *, with_records: bool) -> Iterator[None]:
        yield from self._by_records(start, stop) if with_records else self._by_entries(start, stop)
        self._tell()

    def _by_entries(self, start: int, stop: int) -> Iterator[None]:
        for first, entries in self._entries(start, stop):
            at, count = 0, len(entries) // ENTRY.size
            while at < count:
                at, found = self._collector.add_entries(entries, at, first, self._topic, self._queue.queue_id)
                if found == STOPPED["FULL"]:
                    self._tell()
                    yield
                elif at < count:
                    at = self._lost(entries, first, at, at + 1, reason(found))

    def _by_records(self, start: int, stop: int) -> Iterator[None]:
        for first, entries in self._entries(start, stop):
            at, count = 0, len(entries) // ENTRY.size
            while at < count:
                at, found = self._add(entries, at, first)
                if found == STOPPED["FULL"]:
                    self._tell()
                    yield
                elif found == STOPPED["ELSEWHERE"]:
                    at = self._find(entries, first, at)
                elif at < count:
                    at = self._lost(entries, first, at, at + 1, _reason(found))

    def _entries(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Yield (queue offset of the first entry, entries) for the entries that exist."""
        while start < stop:
            try:
                entries = self._view.entries(self._queue, start, min(stop, start + _ENTRIES_AT_ONCE))
                why = "the file of its entry ends before it"
            except FileNotFoundError:
                entries, why = b"", "the file of its entry no longer exists"
            except StoreCorrupt as error:
                entries, why = b"", f"its entry cannot be read: {error}"
            if len(entries) >= ENTRY.size:
                yield start, entries
                start += len(entries) // ENTRY.size
            else:
                per_file = self._view.entries_per_file
                following = min(stop, start - start % per_file + per_file)
                self._lose(range(start, following), _UNREADABLE, why)
                start = following

    def _add(self, entries: bytes, at: int, first: int) -> tuple[int, int]:
        if self._part is None:
            return at, STOPPED["ELSEWHERE"]
        content, base, _ = self._part
        return self._collector.add_queue(entries, at, first, self._topic, self._queue.queue_id, content, base)

    def _find(self, entries: bytes, first: int, at: int) -> int:
        """Get the part of the log that holds the record of an entry; return the number of the entry to go on with."""
        offset, size, _ = ENTRY.unpack_from(entries, at * ENTRY.size)
        base = offset - offset % self._view.log_file_bytes
        file = range(base, base + self._view.log_file_bytes)
        self._part = None
        if offset + size > file.stop:
            return self._lost(entries, first, at, at + 1, _OUTSIDE)
        try:
            part = self._view.log(offset, max(size, PART_BYTES))
        except FileNotFoundError:
            return self._lost(entries, first, at, _behind_file(entries, at, file), _REMOVED)
        except StoreCorrupt as error:
            return self._lost(entries, first, at, _behind_file(entries, at, file), str(error))
        if part.base + len(part.content) < offset + size:
            return self._lost(entries, first, at, at + 1, reason(STOPPED["SHORT"]))
        self._part = part
        return at

    def _lost(self, entries: bytes, first: int, at: int, stop: int, why: str) -> int:
        (offset,) = ENTRY.unpack_from(entries, at * ENTRY.size)[:1]
        self._lose(range(first + at, first + stop), offset, why)
        return stop

    def _lose(self, offsets: range, commit_log_offset: int, why: str) -> None:
        if self._losing is not None and (self._losing[0].stop, self._losing[2]) == (offsets.start, why):
            begin, commit_log_offset, _ = self._losing
            offsets = range(begin.start, offsets.stop)
        else:
            self._tell()
        self._losing = offsets, commit_log_offset, why

    def _tell(self) -> None:
        if self._losing is not None:
            offsets, commit_log_offset, why = self._losing
            self._losing = None
            self._on_lost(_sentence(self._queue, offsets, commit_log_offset, why))


def _behind_file(entries: bytes, at: int, file: range) -> int:
    """Return the number of the first entry after ``at`` whose record is not in that file."""
    for number, (offset, _, _) in enumerate(ENTRY.iter_unpack(entries[(at + 1) * ENTRY.size :]), at + 1):
        if offset not in file:
            return number
    return len(entries) // ENTRY.size


# --- along the log --------------------------------------------------------------------------------


class _LogRead:
    """Reads along the log. A step ends when the columns hold a batch."""

    def __init__(
        self, view: View, collector: Collector, wanted: Mapping[MessageQueue, range], on_lost: Callable[[str], None]
    ) -> None:
        self._view = view
        self._collector = collector
        self._wanted = [(queue, offsets) for queue, offsets in wanted.items() if offsets]
        self._on_lost = on_lost
        self._start = 0
        self._damage: tuple[int, str] | None = None
        """Commit log offset of the last bytes that could not be read as a record, and the reason."""

    def steps(self, start: int, stop: int) -> Iterator[None]:
        self._collector.want(
            [(queue.topic.encode(), queue.queue_id, offsets.start, offsets.stop) for queue, offsets in self._wanted]
        )
        self._start = offset = start
        size = PART_BYTES
        while offset < stop:
            file_end = offset - offset % self._view.log_file_bytes + self._view.log_file_bytes
            try:
                part = self._view.log(offset, size)
            except FileNotFoundError:
                offset = self._next(offset, file_end, stop, _REMOVED)
                continue
            except StoreCorrupt as error:
                offset = self._next(offset, file_end, stop, str(error))
                continue
            before = offset
            offset, found = yield from self._steps_in(part, offset, stop)
            asks_again = found == STOPPED["SHORT"] and part.base + len(part.content) < part.file_end
            if asks_again and (offset > before or size < part.file_end - offset):
                size = PART_BYTES if offset > before else 2 * size
                continue
            size = PART_BYTES
            if found != STOPPED["END"]:
                offset = self._next(offset, offset + 1, stop, _reason(found))
        for number in range(len(self._wanted)):
            self._compare_end(number, stop)

    def _steps_in(self, part: LogPart, offset: int, stop: int) -> Generator[None, None, tuple[int, int]]:
        """Go through one part; return the commit log offset at which that ended, and the reason."""
        content, base, file_end = part
        while True:
            offset, found, number, met = self._collector.add_log(content, base, file_end, offset, stop)
            if found == STOPPED["FULL"]:
                yield
            elif found != STOPPED["GAP"]:
                return offset, found
            elif not self._bridge(number, met, offset):
                return offset, STOPPED["OTHER"]

    def _bridge(self, number: int, met: int, offset: int) -> bool:
        """Report the messages missing before a record. Returns False if no entry confirms the record's queue offset."""
        queue, _ = self._wanted[number]
        if self._offset_of(queue, met) not in (offset, _UNREADABLE):
            return False
        missing = range(self._collector.next_of(number), met)
        self._lost(queue, range(self._first_here(queue, missing), met))
        self._collector.go_on(number, met)
        return True

    def _next(self, bad: int, least: int, stop: int, why: str) -> int:
        """Return the offset of the next record of a wanted queue, at ``least`` or above, or else ``stop``."""
        self._damage = bad, why
        found = stop
        for number, (queue, offsets) in enumerate(self._wanted):
            known = range(self._collector.next_of(number), offsets.stop)
            following = self._first_at(queue, known, least)
            if following < known.stop:
                found = min(found, self._offset_of(queue, following))
        return found

    def _compare_end(self, number: int, stop: int) -> None:
        """Report the messages of a queue that should have been found and were not."""
        queue, offsets = self._wanted[number]
        begin = self._first_here(queue, range(self._collector.next_of(number), offsets.stop))
        if begin < offsets.stop and self._offset_of(queue, begin) < stop:
            self._lost(queue, range(begin, self._first_at(queue, range(begin, offsets.stop), stop)))

    def _first_here(self, queue: MessageQueue, known: range) -> int:
        """Return the first queue offset of ``known`` whose record is at or above the start of this reading.

        Entries that are gone do not tell where their records were. After damage, their messages may be missing from
        this range, so they are reported as lost.
        """
        begin = known.start
        if self._damage is not None:
            begin = first_offset(known, lambda offset: self._offset_of(queue, offset) != _UNREADABLE)
            self._lost(queue, range(known.start, begin))
        return self._first_at(queue, range(begin, known.stop), self._start)

    def _first_at(self, queue: MessageQueue, known: range, commit_log_offset: int) -> int:
        """Return the first queue offset of ``known`` whose record is at an offset or above it, else the end of it."""
        if not known or self._offset_of(queue, known[-1]) < commit_log_offset:
            return known.stop
        if self._offset_of(queue, known[0]) >= commit_log_offset:
            return known.start
        return first_offset(known, lambda offset: self._offset_of(queue, offset) >= commit_log_offset)

    def _offset_of(self, queue: MessageQueue, queue_offset: int) -> int:
        try:
            return entry_at(self._view, queue, queue_offset).commit_log_offset
        except (FileNotFoundError, StoreCorrupt):
            return _UNREADABLE

    def _lost(self, queue: MessageQueue, offsets: range) -> None:
        if offsets:
            offset = self._offset_of(queue, offsets.start)
            bad, why = self._damage or (offset, _PASSED_OVER)
            why = why if bad == offset else f"at {bad} {why}"
            self._on_lost(_sentence(queue, offsets, offset, why))


# --- both -----------------------------------------------------------------------------------------


def _reason(found: int) -> str:
    return "another message is at this place" if found == STOPPED["OTHER"] else reason(found)


def _sentence(queue: MessageQueue, offsets: range, commit_log_offset: int, why: str) -> str:
    at = None if commit_log_offset == _UNREADABLE else commit_log_offset
    return loss_in_words(queue, offsets, at, why)
