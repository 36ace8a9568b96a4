"""Batches: the messages in a view as Arrow record batches, without a Python object for a row.

The kernel writes the values of the wanted columns into buffers (store/kernel/arrow/columns.pxi), and Arrow takes these
as they are. There are two ways to go through messages:

- by the consume queue entries of one queue: every record is looked for where its entry says;
- along the commit log, which takes up the records of all wanted queues as they stand, and is the faster one where they
  are most of what stands there.

A message that cannot be delivered is told to ``on_lost`` in a sentence; when that returns, the messages behind follow.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from rmqclient.filters.tag import TagFilter
from rmqclient.spark.reading.columns import IN_ENTRIES, schema_of
from rmqclient.store import STOPPED, Collector, ColumnBuffer, Columns, MessageQueue
from rmqclient.store.bodies import DEFAULT_LIMIT
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.inspect.view import LogPart, View, entry_at, first_offset
from rmqclient.store.log.consume_queue import ENTRY
from rmqclient.store.log.record import reason

PART_BYTES = 8 << 20
"""So much of the log is asked for at once, where a view does not map whole files."""

_ENTRIES_AT_ONCE = 16_384
_EVERYTHING = TagFilter(frozenset())

_TYPES: dict[str, pa.DataType] = {
    field.name: field.type for field in to_arrow_schema(schema_of(properties=True, metadata=True), timezone="UTC")
}
"""What Spark gives for each column, and takes nothing else for it."""

_UNREADABLE = -1
"""In place of the commit log offset of an entry that cannot be read."""

_OUTSIDE = "its entry points outside of the commit log"
_REMOVED = "the file is not there any more"
_PASSED_OVER = "no valid record of it stands in the commit log"


class BatchReader:
    """Arrow record batches of the messages in a view.

    ``schema`` has any of the columns of :mod:`rmqclient.spark.reading.columns`, in any order, with the types that Spark
    gives them; every batch has exactly this schema. A batch ends with ``rows`` rows, or with the message with which it
    has more than ``size`` bytes of variable size. ``tags`` selects by tag. For one thread.

    Every record that is delivered was checked as deliveries are: its CRC, and that it is the message that its entry, or
    its place in the queue, asks for. ``on_lost`` gets a sentence with queue, queue offsets, commit log offset and
    reason for messages that are damaged or not there any more, and raises, or returns to go on behind them.

    Bodies are opened, up to ``max_opened_body_bytes``. One that cannot be is null with ``null_unreadable``; without,
    reading raises BodyUnreadable, with queue, queue offset, commit log offset and reason; and NotInstalled.

    Raises ValueError for a column that does not exist or has another type, and for limits that cannot be.
    """

    def __init__(
        self,
        view: View,
        schema: pa.Schema,
        *,
        rows: int = 10_000,
        size: int = 4 << 20,
        tags: TagFilter = _EVERYTHING,
        max_opened_body_bytes: int = DEFAULT_LIMIT,
        null_unreadable: bool = False,
        on_lost: Callable[[str], None],
    ) -> None:
        for field in schema:
            if _TYPES.get(field.name, field.type) != field.type:
                raise ValueError(f"column {field.name} is of type {_TYPES[field.name]}, and not {field.type}")
        self._view = view
        self._schema = schema
        self._names = tuple(schema.names)
        self._rows = rows
        self._size = size
        self._tags = tags
        self._max_opened_body_bytes = max_opened_body_bytes
        self._null_unreadable = null_unreadable
        self._on_lost = on_lost
        self._collector()  # which checks the rest

    def read_queue(self, queue: MessageQueue, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a queue from queue offset ``start`` up to ``stop``, by its entries.

        When entries tell all that is wanted, the commit log is not looked at.
        """
        collector = self._collector()
        with_records = bool(self._tags.tags) or not IN_ENTRIES.issuperset(self._names)
        read = _QueueRead(self._view, collector, queue, self._on_lost)
        yield from self._batches(collector, read.steps(start, stop, with_records=with_records))

    def read_log(self, start: int, stop: int, wanted: Mapping[MessageQueue, range]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of some queues whose records begin at or above ``start`` and below ``stop`` in the log.

        ``start`` is where a record begins. ``wanted`` says which queue offsets of each queue are asked for; records of
        others are stepped over unchecked. Messages without a consume queue entry, of transactions that are prepared or
        rolled back, are left out.

        No message is passed over silently: each queue's offsets must follow each other, and begin and end where its
        entries say, which costs a look at one or two entries of each wanted queue, and a binary search for a queue
        of which nothing was met. What is no record is stepped over with the help of the entries.
        """
        collector = self._collector()
        steps = _LogRead(self._view, collector, wanted, self._on_lost).steps(start, stop)
        yield from self._batches(collector, steps)

    def _collector(self) -> Collector:
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
    """One way through the entries of a queue. Its steps end where the columns hold a batch."""

    def __init__(self, view: View, collector: Collector, queue: MessageQueue, on_lost: Callable[[str], None]) -> None:
        self._view = view
        self._collector = collector
        self._queue = queue
        self._topic = queue.topic.encode()
        self._on_lost = on_lost
        self._part: LogPart | None = None
        self._losing: tuple[range, int, str] | None = None
        """What was lost last and is not told yet: it may be more. Queue offsets, commit log offset, reason."""

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
        """Yield (queue offset of the first, entries) for those that there are."""
        while start < stop:
            try:
                entries = self._view.entries(self._queue, start, min(stop, start + _ENTRIES_AT_ONCE))
                why = "the file of its entry ends before it"
            except FileNotFoundError:
                entries, why = b"", "the file of its entry is not there any more"
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
    """Return the number of the first entry behind ``at`` whose record does not stand in that file."""
    for number, (offset, _, _) in enumerate(ENTRY.iter_unpack(entries[(at + 1) * ENTRY.size :]), at + 1):
        if offset not in file:
            return number
    return len(entries) // ENTRY.size


# --- along the log --------------------------------------------------------------------------------


class _LogRead:
    """One way along the log. Its steps end where the columns hold a batch."""

    def __init__(
        self, view: View, collector: Collector, wanted: Mapping[MessageQueue, range], on_lost: Callable[[str], None]
    ) -> None:
        self._view = view
        self._collector = collector
        self._wanted = [(queue, offsets) for queue, offsets in wanted.items() if offsets]
        self._on_lost = on_lost
        self._start = 0
        self._damage: tuple[int, str] | None = None
        """Commit log offset of the last bytes that were no record, and why."""

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
        """Go through one part; return where in the log that ended, and why."""
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
        """Tell of the messages that are missing before a record; False when this is not the message that it says."""
        queue, _ = self._wanted[number]
        if self._offset_of(queue, met) not in (offset, _UNREADABLE):
            return False
        missing = range(self._collector.next_of(number), met)
        self._lost(queue, range(self._first_here(queue, missing), met))
        self._collector.go_on(number, met)
        return True

    def _next(self, bad: int, least: int, stop: int, why: str) -> int:
        """Return where the next record of a wanted queue stands, at ``least`` or above; ``stop`` when none does."""
        self._damage = bad, why
        found = stop
        for number, (queue, offsets) in enumerate(self._wanted):
            known = range(self._collector.next_of(number), offsets.stop)
            following = self._first_at(queue, known, least)
            if following < known.stop:
                found = min(found, self._offset_of(queue, following))
        return found

    def _compare_end(self, number: int, stop: int) -> None:
        """Tell of messages of a queue that should have been met and were not."""
        queue, offsets = self._wanted[number]
        begin = self._first_here(queue, range(self._collector.next_of(number), offsets.stop))
        if begin < offsets.stop and self._offset_of(queue, begin) < stop:
            self._lost(queue, range(begin, self._first_at(queue, range(begin, offsets.stop), stop)))

    def _first_here(self, queue: MessageQueue, known: range) -> int:
        """Return the first of ``known`` that stands behind the begin of this reading.

        Entries that are gone do not say where their messages stood. If something is missing here, it may be those.
        """
        begin = known.start
        if self._damage is not None:
            begin = first_offset(known, lambda offset: self._offset_of(queue, offset) != _UNREADABLE)
            self._lost(queue, range(known.start, begin))
        return self._first_at(queue, range(begin, known.stop), self._start)

    def _first_at(self, queue: MessageQueue, known: range, commit_log_offset: int) -> int:
        """Return the first of ``known`` whose record stands at an offset or above it, or their end."""
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
    return "another message stands there" if found == STOPPED["OTHER"] else reason(found)


def _sentence(queue: MessageQueue, offsets: range, commit_log_offset: int, why: str) -> str:
    numbers = f"offset {offsets.start}" if len(offsets) == 1 else f"offsets {offsets.start} to {offsets.stop - 1}"
    place = "" if commit_log_offset == _UNREADABLE else f", at {commit_log_offset} of the commit log"
    return f"{queue.topic}, queue {queue.queue_id}, {numbers}{place}: cannot be read: {why}"


def record_batch(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows that were added to some columns, and leave these empty."""
    rows, buffers = columns.take()
    if not schema.names:  # a batch without a column has its number of rows from an array without a field
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
    arrays = [_array(field.type, rows, *buffers[field.name]) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(kind: pa.DataType, rows: int, nulls: int, buffers: list[ColumnBuffer | None]) -> pa.Array:
    parts: list[Any] = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    if not pa.types.is_map(kind):
        return pa.Array.from_buffers(kind, rows, parts, nulls)
    bitmap, offsets, name_offsets, names, value_offsets, values = parts
    pairs = len(name_offsets) // 4 - 1
    children = [
        pa.Array.from_buffers(kind.key_type, pairs, [None, name_offsets, names]),
        pa.Array.from_buffers(kind.item_type, pairs, [None, value_offsets, values]),
    ]
    entries = pa.StructArray.from_buffers(
        pa.struct([kind.key_field, kind.item_field]), pairs, [None], children=children
    )
    return pa.Array.from_buffers(kind, rows, [bitmap, offsets], children=[entries])
