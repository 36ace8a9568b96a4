"""Consume queue: the positions of one queue's messages in the commit log.

A consume queue is an array. Entry ``n`` belongs to the message whose queue offset is ``n``. It is derived from the
commit log, so it may be deleted and is rebuilt.

On disk: ``consumequeue/<topic>/<queue id>/<first byte, 20 digits>``, entries back to back, big-endian::

    byte  size  field              meaning
    ----  ----  -----------------  -------
       0     8  commit_log_offset  first byte of the record in the commit log
       8     4  size               bytes of the whole record, header included
      12     8  tags_code          Java hash of the tag, or a delivery time in ms
    ----  ----
      20

An entry is written under the append mutex, before ``max_offset`` in the queue table is advanced over it; a reader
acquires ``max_offset`` first, so it sees all 20 bytes of every entry below.

Invariants, checked by ``python -m store verify``:

4. ``size > 0`` for every entry from ``min_offset`` to ``max_offset``.
5. ``commit_log_offset`` grows strictly with the entry number.
6. The record it points to has this topic, queue id, queue offset and size, and its tag this hash.
7. From ``max_offset`` on a file holds zeros.

RocketMQ's own diagram calls the second field the body size. It is not: the broker passes the size of the whole record.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from store import layout
from store._kernel import Mapping
from store.file_queue import FileQueue, MappingCache
from store.mapped_file import zero_view
from store.message_queue import MessageQueue

DIRECTORY = "consumequeue"

_ENTRY = layout.CONSUME_QUEUE_ENTRY


class Entry(NamedTuple):
    """One entry; all zero where nothing was written."""

    commit_log_offset: int
    size: int
    tags_code: int


class ConsumeQueue:
    """The consume queue files of one message queue."""

    def __init__(self, files: FileQueue) -> None:
        self.files = files
        self.entries_per_file = files.file_bytes // _ENTRY.size

    def first_entry_of(self, queue_offset: int) -> int:
        """Return the number of the first entry in the file that holds ``queue_offset``."""
        return queue_offset - queue_offset % self.entries_per_file

    def entry(self, queue_offset: int) -> Entry:
        """Return an entry. Raises FileNotFoundError when its file is missing."""
        first = self.first_entry_of(queue_offset)
        mapping = self.files.mapping(first * _ENTRY.size)
        return Entry(*_ENTRY.unpack_from(mapping, (queue_offset - first) * _ENTRY.size))

    def write(self, queue_offset: int, entry: Entry) -> None:
        """Write an entry, making its file when it is missing."""
        mapping, first = self.file_for(queue_offset)
        _ENTRY.pack_into(mapping, (queue_offset - first) * _ENTRY.size, *entry)

    def file_for(self, queue_offset: int) -> tuple[Mapping, int]:
        """Return the file that takes an entry and the number of its first one, making it when it is missing.

        Entries below the first one of a queue become pre-blank. Raises StoreFull.
        """
        first = self.first_entry_of(queue_offset)
        base = first * _ENTRY.size
        is_first_file = not self.files.bases()
        self.files.allocate(base)
        mapping = self.files.mapping(base)
        if is_first_file:
            for number in range(queue_offset - first):
                _ENTRY.pack_into(mapping, number * _ENTRY.size, *layout.PRE_BLANK_ENTRY)
        return mapping, first

    def end_below(self, commit_log_offset: int) -> int:
        """Return the queue offset after the last entry for a record below ``commit_log_offset``.

        Entries for such records stand without holes, so a binary search in the last file that has one finds it.
        """
        for base in reversed(self.files.bases()):
            first = base // _ENTRY.size
            low, high = 0, self.entries_per_file
            while low < high:
                middle = (low + high) // 2
                if self._is_below(first + middle, commit_log_offset):
                    low = middle + 1
                else:
                    high = middle
            if low:
                return first + low
        bases = self.files.bases()
        return bases[0] // _ENTRY.size if bases else 0

    def begin(self, min_commit_log_offset: int) -> int:
        """Return the queue offset of the oldest message still in the commit log.

        A pre-blank entry is none, whatever the commit log's minimum is (ConsumeQueue.correctMinOffset takes it for
        one when that is 0).
        """
        end = self.end_below(1 << 62)
        bases = self.files.bases()
        low = bases[0] // _ENTRY.size if bases else 0
        high = end
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry == Entry(*layout.PRE_BLANK_ENTRY) or entry.commit_log_offset < min_commit_log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def cut(self, queue_offset: int) -> None:
        """Zero every entry at and above ``queue_offset``; files wholly above it are removed."""
        for base in self.files.bases():
            first = base // _ENTRY.size
            if first > queue_offset or (first == queue_offset and first):
                self.files.remove(base)
            else:
                start = max(0, queue_offset - first) * _ENTRY.size
                zero_view(memoryview(self.files.mapping(base))[start:])

    def _is_below(self, queue_offset: int, commit_log_offset: int) -> bool:
        entry = self.entry(queue_offset)
        return entry.size > 0 and entry.commit_log_offset < commit_log_offset


class ConsumeQueues:
    """Every consume queue of a store."""

    def __init__(self, root: Path, file_bytes: int, mappings: MappingCache) -> None:
        self.entries_per_file = file_bytes // _ENTRY.size
        self._root = root
        self._file_bytes = file_bytes
        self._mappings = mappings
        self._queues: dict[MessageQueue, ConsumeQueue] = {}

    def __getitem__(self, queue: MessageQueue) -> ConsumeQueue:
        if queue not in self._queues:
            directory = self._root / DIRECTORY / queue.topic / str(queue.queue_id)
            files = FileQueue(directory, self._file_bytes, scratch=self._root, mappings=self._mappings)
            self._queues[queue] = ConsumeQueue(files)
        return self._queues[queue]

    def on_disk(self) -> list[MessageQueue]:
        """Return the queues that have a directory, sorted; entries that are no queue are passed over."""
        found = []
        for topic in _directories(self._root / DIRECTORY):
            found += [
                MessageQueue(topic.name, int(queue.name)) for queue in _directories(topic) if queue.name.isdigit()
            ]
        return sorted(found)


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
