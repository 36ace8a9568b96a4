"""The final read: what stands in the log, the consume queues and the offsets file when everybody has left.

A reader of its own, written from the description of the format with ``struct``, ``zlib`` and numpy; it shares nothing
with the package :mod:`rmqclient.store`. :mod:`tests.support.oracle.reference` believes even less and is many times
slower: it reads one record in a thousand once more.

Positions inside of a record (all big-endian)::

    0 size   4 magic   8 body crc   12 queue id   20 queue offset   28 commit log offset   76 reconsume times
    84 body size   88 body   then topic (1 byte of size) and properties (2 bytes of size)
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.checker.plan import HEADER, Plan
from tests.support.oracle import reference

_FIXED = struct.Struct(">iiiiiqq")
_BODY_SIZE_AT = 84
_RECORD_MAGIC = 0xDAA320A7 - 2**32
_BLANK_MAGIC = 0xCBD43194 - 2**32
_CRC_SIZE = 20
_ENTRY = np.dtype([("commit_log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
_SAMPLED = 1_000
_MOST_EXAMPLES = 20


@dataclass(slots=True)
class Log:
    """Every record of the planned topics, in the order of the log: one value of each column for each."""

    subject: NDArray[np.int64]
    queue: NDArray[np.int64]
    """Number in the plan."""
    offset: NDArray[np.int64]
    key: NDArray[np.int64]
    damaged: list[str] = field(default_factory=list)
    """Records and bodies that are not what was sent."""
    misplaced: list[str] = field(default_factory=list)
    """Consume queue entries that do not belong to their records."""
    committed: dict[tuple[int, int], int] = field(default_factory=dict)
    """By group and queue number, as ``consumerOffset.json`` has it."""


def read_store(plan: Plan, root: Path) -> Log:
    """Read a store that nobody has open."""
    reader = _Reader(plan)
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            if not reader.read_file(int(path.name), content):
                break
    log = reader.log()
    _compare_entries(plan, root, log, reader)
    log.committed = _committed(plan, root)
    return log


class _Reader:
    """Goes through the log record by record, and keeps columns."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._numbers = {(topic.encode(), queue): number for (topic, queue), number in plan.queue_numbers.items()}
        self._columns = [array("q") for _ in range(6)]
        self._damaged: list[str] = []
        self._seen = 0

    def read_file(self, base: int, content: mmap.mmap) -> bool:
        """Read one file; return whether the log goes on in the next one."""
        position, end = 0, len(content)
        while position + 8 <= end:
            size, magic = struct.unpack_from(">ii", content, position)
            if magic == _BLANK_MAGIC:
                return bool(position + size == end)
            if (size, magic) == (0, 0):
                return False
            if magic != _RECORD_MAGIC or not 0 < size <= end - position:
                self._damaged.append(f"no record stands at {base + position}")
                return False
            self._read_record(base + position, content[position : position + size])
            position += size
        return True

    def _read_record(self, at: int, record: bytes) -> None:
        size, _, _, queue_id, _, queue_offset, stored_at = _FIXED.unpack_from(record)
        digits = f"{zlib.crc32(record[:-_CRC_SIZE]) & 0x7FFFFFFF:010d}"[::-1]
        if record[-_CRC_SIZE:] != b"__CRC32#\x01%s\x02" % digits.encode() or stored_at != at:
            self._damaged.append(f"the record at {at} is damaged")
            return
        self._seen += 1
        if self._seen % _SAMPLED == 0 and not isinstance(reference.decode(record, 0), reference.ReferenceRecord):
            self._damaged.append(f"the record at {at} is none for the reference")
        (body_size,) = struct.unpack_from(">i", record, _BODY_SIZE_AT)
        begin = _BODY_SIZE_AT + 4
        topic_at = begin + body_size
        topic = record[topic_at + 1 : topic_at + 1 + record[topic_at]]
        number = self._numbers.get((topic, queue_id))
        if number is None:
            return  # of another topic, such as one for delays
        body = record[begin:topic_at]
        subject, key = self._message(at, body, topic)
        for column, value in zip(self._columns, (subject, number, queue_offset, key, at, size), strict=True):
            column.append(value)

    def _message(self, at: int, body: bytes, topic: bytes) -> tuple[int, int]:
        try:
            subject, seed, size, key, _ = HEADER.unpack_from(body)
        except struct.error:
            subject, seed, size, key = -1, 0, 0, 0
        if subject < 0 or subject >= 1 << 63 or not self._plan.is_right(body, subject, seed, size):
            self._damaged.append(f"the body of the record at {at}, of {topic.decode()}, is not what was sent")
            return -1, 0
        return subject, key

    def log(self) -> Log:
        """Return what was read."""
        subject, queue, offset, key, _, _ = self.arrays
        return Log(subject, queue, offset, key, self._damaged[:_MOST_EXAMPLES])

    @property
    def arrays(self) -> list[NDArray[np.int64]]:
        """The columns: message, queue, queue offset, key, commit log offset, size."""
        return [np.frombuffer(column, np.int64) if column else np.empty(0, np.int64) for column in self._columns]


def _compare_entries(plan: Plan, root: Path, log: Log, reader: _Reader) -> None:
    """Compare the entries of each queue with its records, one to one."""
    _, queue, offset, _, at, size = reader.arrays
    for (topic, queue_id), number in plan.queue_numbers.items():
        directory = root / "consumequeue" / topic / str(queue_id)
        paths = sorted(directory.iterdir()) if directory.is_dir() else []
        entries = np.concatenate([np.fromfile(path, _ENTRY) for path in paths] or [np.empty(0, _ENTRY)])
        entries = entries[entries["size"] > 0]
        mine = queue == number
        places = offset[mine]
        if len(entries) != len(places) or not np.array_equal(places, np.arange(len(places))):
            log.misplaced.append(f"queue {queue_id} of {topic}: {len(entries)} entries for {len(places)} records")
            continue
        wrong = np.flatnonzero((entries["commit_log_offset"] != at[mine]) | (entries["size"] != size[mine]))
        log.misplaced += [f"queue {queue_id} of {topic}: entry {place} is wrong" for place in wrong[:_MOST_EXAMPLES]]


def _committed(plan: Plan, root: Path) -> dict[tuple[int, int], int]:
    path = root / "config" / "consumerOffset.json"
    table = json.loads(path.read_text(encoding="utf-8"))["offsetTable"] if path.exists() else {}
    found = {}
    for name, offsets in table.items():
        topic, _, group = name.rpartition("@")
        for queue_id, offset in offsets.items():
            number = plan.queue_numbers.get((topic, int(queue_id)))
            if number is not None and group.startswith("group"):
                found[int(group.removeprefix("group")), number] = int(offset)
    return found
