"""Rings: ``<root>/history.rings``, what each group did in each 10 seconds, minute and 15 minutes.

The file has 8 MiB, whatever the number of groups: two heads, then three rings (``HISTORY_RINGS`` of
:mod:`rmqclient.store.layout`). A ring is filled with records from its beginning to its end and then again, over the
oldest ones. A record has a row for each group that did something or waits for something, so the more groups are busy,
the less time a ring holds: with 100 groups of 10 messages a second each, day and night, an hour, a day and 30 days.

A record::

    byte  size  field   meaning
    ----  ----  ------  -------
       0     4  magic   RMQh
       4     4  size    bytes of the rows, which follow
       8     8  number  of the record in its ring, from 1 on
      16     8  began   ms since 1970, when the record before it ended
      24     8  ended   ms since 1970, when the counters were read
      32     8  first   number of the first record of the finer ring that it sums up; 0 in the finest ring
      40     8  last    number of the last one
      48     4  groups  rows
      52     4  crc     CRC-32 of the fields before and of the rows
    ----  ----
      56

The rows are compressed by zlib. First come columns, each with one byte that says how many bytes a number has, then a
number for each row: of the group (its difference to the row before), and each of :data:`COUNTS`. Then come for each
row the classes of ``waited`` and those of ``ran``, one byte each (:func:`code_of`).

A head::

    byte  size  field     meaning
    ----  ----  --------  -------
       0     8  magic     RMQHIST1
       8     8  sequence  the higher one of two valid heads counts
      16     4  size      bytes of the document, which follows
      20     4  crc       CRC-32 of the fields before and of the document
    ----  ----
      24

The document is JSON, compressed by zlib: a :class:`Head`. It has the counters up to which the records go, and says how
many records there are. So one write, that of a head, counts new records and moves the counters on. Heads are written in
turns. A process that is killed before leaves a head that knows nothing of the new records: readers step over them, and
the next housekeeper writes others in their place, from the counters of that head on. What is damaged fails its CRC and
is not there. Where neither head can be read, the next record begins an empty file.

Invariant, checked by ``rmq store verify``:

18. One of the two heads is whole, and so is each record that it counts, if its bytes were ever written.

Counts are exact. Of a histogram, the count of a class is exact below 8, and rounded to three binary digits above.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from rmqclient.store import layout
from rmqclient.store.closing import Closing
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.observe.config import opened

COUNTERS: Final = ("handled", "failed", "retried", "dead_lettered", "skipped", "lost")
"""What a row has of the counters of a group."""
COUNTS: Final = ("published", *COUNTERS, "lag", "oldest_s")
"""The numbers of a row, as they stand in the file."""
CLASSES: Final = len(layout.HANDLING_BOUNDS_MS) + 1
"""Of each histogram: those of :data:`rmqclient.store.layout.HANDLING_BOUNDS_MS`, and one for all above."""
SPANS_MS: Final = tuple(seconds * 1000 for seconds, _ in layout.HISTORY_RINGS)
"""Time of a record of each ring."""
SIZE: Final = 2 * layout.HISTORY_HEAD_BYTES + sum(size for _, size in layout.HISTORY_RINGS)
"""Bytes of the file."""

_HEAD, _RECORD = layout.HISTORY_HEAD, layout.HISTORY_RECORD
_HEAD_MAGIC, _RECORD_MAGIC = b"RMQHIST1", b"RMQh"
_RINGS_AT = tuple(
    2 * layout.HISTORY_HEAD_BYTES + sum(size for _, size in layout.HISTORY_RINGS[:level])
    for level in range(len(layout.HISTORY_RINGS))
)
_LARGEST_DOCUMENT = layout.HISTORY_HEAD_BYTES - _HEAD.size
_MOST_ROWS = 1 << 20
"""Bytes of decompressed rows: more is no record of ours."""
_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Row(NamedTuple):
    """What one group did in the time of a record, and how it stood at the end."""

    published: int = 0
    """Messages that were stored in its topics, those of its retry topic aside."""
    handled: int = 0
    """Messages that were finished by a handler that returned, or by a commit."""
    failed: int = 0
    """Attempts that failed."""
    retried: int = 0
    """Messages that were stored again for their next attempt."""
    dead_lettered: int = 0
    """Messages that became dead letters."""
    skipped: int = 0
    """Messages that the group does not want: tags, filters, damage."""
    lost: int = 0
    """Messages that retention removed before they were finished."""
    lag: int = 0
    """Messages not finished when the record ended; of a sum of records, the most."""
    oldest_s: int = 0
    """Seconds since the oldest of them was stored; of a sum of records, the most."""
    waited: tuple[int, ...] = (0,) * CLASSES
    """Histogram of the times from the store time to the call, one for each message of each call."""
    ran: tuple[int, ...] = (0,) * CLASSES
    """Histogram of the times of the calls, that returned or raised, one for each message."""

    def __add__(self, other: object) -> Row:
        """Return what was done in both times."""
        if not isinstance(other, Row):
            return NotImplemented
        return Row(
            self.published + other.published,
            self.handled + other.handled,
            self.failed + other.failed,
            self.retried + other.retried,
            self.dead_lettered + other.dead_lettered,
            self.skipped + other.skipped,
            self.lost + other.lost,
            max(self.lag, other.lag),
            max(self.oldest_s, other.oldest_s),
            tuple(map(int.__add__, self.waited, other.waited)),
            tuple(map(int.__add__, self.ran, other.ran)),
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing was done and nothing waits."""
        return not (any(self[: len(COUNTS)]) or any(self.waited) or any(self.ran))


class Record(NamedTuple):
    """A record of a ring; :meth:`rows` decodes it."""

    number: int
    began_ms: int
    ended_ms: int
    first: int
    last: int
    groups: int
    packed: bytes

    @classmethod
    def of(
        cls, number: int, began_ms: int, ended_ms: int, rows: Mapping[int, Row], first: int = 0, last: int = 0
    ) -> Record:
        """Return a record of these rows, by the number of the group."""
        return cls(number, began_ms, ended_ms, first, last, len(rows), _packed(rows))

    def rows(self) -> dict[int, Row]:
        """Return the rows, by the number of the group."""
        return _unpacked(self.packed, self.groups)

    def encoded(self) -> bytes:
        """Return the bytes of the file."""
        head = (_RECORD_MAGIC, len(self.packed), *self[:5], self.groups)
        crc = zlib.crc32(_RECORD.pack(*head, 0)[:-4] + self.packed)
        return bytes(_RECORD.pack(*head, crc)) + self.packed


def sum_of(records: Iterable[Record]) -> dict[int, Row]:
    """Return what each group did in all these records."""
    total: dict[int, Row] = {}
    for record in records:
        for group, row in record.rows().items():
            total[group] = total[group] + row if group in total else row
    return total


class Placed(NamedTuple):
    """Where a record stands in its ring, in bytes from the begin of the ring."""

    number: int
    begin: int
    end: int


@dataclass(slots=True)
class End:
    """Where a ring ends."""

    number: int = 1
    """Of the next record."""
    at: int = 0
    """Byte of the ring at which it will stand."""
    summed: int = 1
    """Number of the first record of the finer ring that no record here sums up yet."""


@dataclass(slots=True)
class Known:
    """A group that has rows in the rings, and up to where its counters are in them."""

    number: int
    seen: int
    """Sequence of the last head that saw the group in the store."""
    counts: list[int] = field(default_factory=lambda: [0] * len(COUNTERS))
    """:data:`COUNTERS` so far."""
    classes: list[int] = field(default_factory=lambda: [0] * (2 * CLASSES))
    """Of the histograms so far: waited, then ran."""


@dataclass(slots=True)
class Head:
    """What the records of all rings say together: up to when, and up to which counters."""

    sequence: int
    ended_ms: int
    epoch: int
    """Counting epoch of the counters."""
    next_group: int = 1
    """Number of the next group. A number is never given again."""
    is_short: bool = False
    """Whether groups were left out, for want of room."""
    rings: list[End] = field(default_factory=lambda: [End() for _ in layout.HISTORY_RINGS])
    groups: dict[str, Known] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    """Messages that were ever stored in each topic that a group consumes."""

    def encoded(self) -> bytes | None:
        """Return the bytes of the file; None if they are too many."""
        document = zlib.compress(json.dumps(asdict(self), separators=(",", ":")).encode(), 6)
        if len(document) > _LARGEST_DOCUMENT:
            return None
        head = _HEAD_MAGIC, self.sequence, len(document)
        crc = zlib.crc32(_HEAD.pack(*head, 0)[:-4] + document)
        return bytes(_HEAD.pack(*head, crc)) + document

    @classmethod
    def decoded(cls, content: bytes) -> Head | None:
        """Return the head that these bytes begin with; None if they are none, damaged, or of another version."""
        if len(content) < _HEAD.size:
            return None
        magic, _, size, crc = _HEAD.unpack_from(content)
        document = content[_HEAD.size : _HEAD.size + size]
        if magic != _HEAD_MAGIC or size > _LARGEST_DOCUMENT or len(document) != size:
            return None
        if zlib.crc32(content[: _HEAD.size - 4] + document) != crc:
            return None
        try:
            fields = json.loads(zlib.decompress(document))
            fields["rings"] = [End(**each) for each in fields["rings"]]
            fields["groups"] = {name: Known(**each) for name, each in fields["groups"].items()}
            head = cls(**fields)
        except (AttributeError, KeyError, TypeError, ValueError, zlib.error):
            return None
        return head if head._is_of_this_version() else None

    def _is_of_this_version(self) -> bool:
        sizes = {(len(each.counts), len(each.classes)) for each in self.groups.values()}
        return len(self.rings) == len(layout.HISTORY_RINGS) and sizes <= {(len(COUNTERS), 2 * CLASSES)}


class HistoryFile(Closing):
    """The file, for one thread. A writer holds the history byte of the lock file; a reader needs no lock.

    Opening it to read raises OSError, such as FileNotFoundError while there is no history.
    """

    def __init__(self, root: Path | str, *, writable: bool = False) -> None:
        path = f"{root}/{layout.HISTORY_FILE}"
        self._descriptor = open_for_owner(path, os.O_RDWR | os.O_CREAT) if writable else opened(path)

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def head(self) -> Head | None:
        """Return the head that counts; None if there is none yet, or both are damaged."""
        heads = (
            Head.decoded(os.pread(self._descriptor, layout.HISTORY_HEAD_BYTES, turn * layout.HISTORY_HEAD_BYTES))
            for turn in range(2)
        )
        return max((head for head in heads if head is not None), key=lambda head: head.sequence, default=None)

    def clear(self) -> None:
        """Remove all records, so that none of them has a number that a new head counts."""
        os.ftruncate(self._descriptor, 0)

    def records(self, head: Head, level: int, first: int = 1) -> list[Record]:
        """Return the records of a ring that the head counts and that are there, from ``first`` on, by number."""
        return [record for record, _ in self._found(head, level, first)]

    def placed(self, head: Head, level: int) -> list[Placed]:
        """Return where the records of a ring stand that the head counts and that are there, by number."""
        return [
            Placed(record.number, at, at + _RECORD.size + len(record.packed)) for record, at in self._found(head, level)
        ]

    def position(self, level: int, at: int) -> int:
        """Return the byte of the file at which a byte of a ring stands."""
        return _RINGS_AT[level] + at

    def has_bytes(self, level: int, begin: int, end: int) -> bool:
        """Tell whether other bytes than zeros stand in a ring between two bytes, over its end if need be."""
        content = os.pread(self._descriptor, layout.HISTORY_RINGS[level][1], _RINGS_AT[level])
        return any(content[begin:end] if begin <= end else content[begin:] + content[:end])

    def _found(self, head: Head, level: int, first: int = 1) -> list[tuple[Record, int]]:
        """Return the records of a ring that the head counts and that are there, each with its place, by number."""
        content = os.pread(self._descriptor, layout.HISTORY_RINGS[level][1], _RINGS_AT[level])
        found: dict[int, tuple[Record, int]] = {}
        at = content.find(_RECORD_MAGIC)
        while at >= 0 and at + _RECORD.size <= len(content):
            _, size, number, began_ms, ended_ms, of_finer, to_finer, groups, crc = _RECORD.unpack_from(content, at)
            end = at + _RECORD.size + size
            if first <= number < head.rings[level].number and end <= len(content):
                packed = content[at + _RECORD.size : end]
                if zlib.crc32(content[at : at + _RECORD.size - 4] + packed) == crc:
                    found[number] = Record(number, began_ms, ended_ms, of_finer, to_finer, groups, packed), at
            at = content.find(_RECORD_MAGIC, at + 1)
        return [found[number] for number in sorted(found)]

    def append(self, head: Head, level: int, record: Record) -> None:
        """Write a record behind the last one of a ring, and move the end on in ``head``, which is not written yet."""
        content, end, size = record.encoded(), head.rings[level], layout.HISTORY_RINGS[level][1]
        if end.at + len(content) > size:
            # A killed process may have left a record here that this head would count.
            self._write(_RINGS_AT[level] + end.at, bytes(min(_RECORD.size, size - end.at)))
            end.at = 0
        half = len(content) // 2
        self._write(_RINGS_AT[level] + end.at, content[:half])
        reach(CrashPoint.HISTORY_HALF_WRITTEN)
        self._write(_RINGS_AT[level] + end.at + half, content[half:])
        end.at += len(content)
        end.number += 1

    def write_head(self, head: Head) -> bool:
        """Write a head, which counts from then on; False if it is too large, and nothing was written."""
        content = head.encoded()
        if content is None:
            return False
        at, half = head.sequence % 2 * layout.HISTORY_HEAD_BYTES, len(content) // 2
        self._write(at, content[:half])
        reach(CrashPoint.HISTORY_HEAD_HALF_WRITTEN)
        self._write(at + half, content[half:])
        return True

    def _write(self, at: int, content: bytes) -> None:
        while content:
            written = os.pwrite(self._descriptor, content, at)
            at, content = at + written, content[written:]


def code_of(count: int) -> int:
    """Return the byte of a count of a histogram: itself below 8, else rounded to three binary digits."""
    if count < 8:
        return count
    shift = count.bit_length() - 3
    digits = (count + (1 << shift - 1)) >> shift
    return min(255, 4 * shift + digits)


def _count_of(code: int) -> int:
    return code if code < 8 else (code % 4 + 4) << (code // 4 - 1)


_COUNT_OF = tuple(map(_count_of, range(256)))


def codes_of(row: Row) -> bytes:
    """Return the histograms of a row as they stand in the file: a byte for each class, waited before ran."""
    return bytes(map(code_of, row.waited + row.ran))


def histograms_of(codes: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the histograms of these bytes: waited and ran."""
    classes = tuple(_COUNT_OF[code] for code in codes)
    return classes[:CLASSES], classes[CLASSES:]


def _packed(rows: Mapping[int, Row]) -> bytes:
    numbers = sorted(rows)
    differences = [number - before for number, before in zip(numbers, [0, *numbers], strict=False)]
    columns = [differences, *zip(*(rows[number][: len(COUNTS)] for number in numbers), strict=True)]
    classes = b"".join(codes_of(rows[number]) for number in numbers)
    return zlib.compress(b"".join(map(_column, columns)) + classes, 9)


def _column(numbers: Iterable[int]) -> bytes:
    column = tuple(numbers)
    largest = max(column, default=0)
    width = next(width for width in _WIDTHS if largest < 1 << 8 * width)
    return struct.pack(f">B{len(column)}{_WIDTHS[width]}", width, *column)


def _unpacked(packed: bytes, groups: int) -> dict[int, Row]:
    if not groups:
        return {}
    content = zlib.decompressobj().decompress(packed, _MOST_ROWS)
    at, columns = 0, list[tuple[int, ...]]()
    for _ in range(1 + len(COUNTS)):
        width = content[at]
        columns.append(struct.unpack_from(f">{groups}{_WIDTHS[width]}", content, at + 1))
        at += 1 + groups * width
    rows, number = dict[int, Row](), 0
    for difference, *counts in zip(*columns, strict=True):
        number += difference
        rows[number] = Row._make((*counts, *histograms_of(content[at : at + 2 * CLASSES])))
        at += 2 * CLASSES
    return rows
