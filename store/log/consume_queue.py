"""Consume queue: the positions of one queue's messages in the commit log.

A consume queue is an array. Entry ``n`` belongs to the message whose queue offset is ``n``. The array is derived from
the commit log, so it may be deleted and is rebuilt.

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

Invariants, checked by ``rmq store verify``:

4. ``size > 0`` for every entry from ``min_offset`` to ``max_offset``.
5. ``commit_log_offset`` grows strictly with the entry number.
6. The record it points to has this topic, queue id, queue offset and size, and its tag this hash.
7. From ``max_offset`` on a file holds zeros.

RocketMQ's own diagram calls the second field the body size. It is not: the broker passes the size of the whole record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqclient.store import layout
from rmqclient.store.files.file_queue import FileQueue, MappingCache, written_end
from rmqclient.store.kernel._kernel import Mapping
from rmqclient.store.message_queue import MessageQueue, is_name

DIRECTORY = "consumequeue"

ENTRY = layout.CONSUME_QUEUE_ENTRY
"""Bytes of one entry, for code that reads whole files."""
_NEAR = 256
"""When a search has narrowed to this many entries, it reads them all at once."""
_QUEUE_ID = re.compile("0|[1-9][0-9]{0,9}")


class Entry(NamedTuple):
    """One entry; all zero where nothing was written."""

    commit_log_offset: int
    size: int
    tags_code: int


PRE_BLANK = Entry(*layout.PRE_BLANK_ENTRY)
"""Fills a consume queue file below its first real entry."""


class ConsumeQueue:
    """The consume queue files of one message queue."""

    def __init__(self, files: FileQueue) -> None:
        self.files = files
        self.entries_per_file = files.file_bytes // ENTRY.size

    def first_entry_of(self, queue_offset: int) -> int:
        """Return the number of the first entry in the file that holds ``queue_offset``."""
        return queue_offset - queue_offset % self.entries_per_file

    def entry(self, queue_offset: int) -> Entry:
        """Return an entry. Raises FileNotFoundError when its file is missing, StoreCorrupt when it cannot be read."""
        first = self.first_entry_of(queue_offset)
        position = (queue_offset - first) * ENTRY.size
        return Entry(*ENTRY.unpack_from(self.files.read(first * ENTRY.size, position, ENTRY.size)))

    def entries(self, first: int, stop: int) -> list[Entry]:
        """Return the entries from ``first`` up to ``stop``, all of which stand in one file. Raises as :meth:`entry`."""
        return [Entry(*fields) for fields in ENTRY.iter_unpack(self.entry_bytes(first, stop))]

    def entry_or_none(self, queue_offset: int) -> Entry | None:
        """Return an entry; None if nothing was written there, or if its file is missing."""
        try:
            entry = self.entry(queue_offset)
        except FileNotFoundError:
            return None
        return entry if entry.size else None

    def write(self, queue_offset: int, entry: Entry) -> None:
        """Write an entry; make its file if it is missing."""
        mapping, first = self.file_for(queue_offset)
        ENTRY.pack_into(mapping, (queue_offset - first) * ENTRY.size, *entry)

    def file_for(self, queue_offset: int) -> tuple[Mapping, int]:
        """Return the file of an entry and the number of the file's first entry; make the file if it is missing.

        Blocks are reserved for this entry, and for some behind it: ``reserved`` of the mapping says how many.
        Entries below the first one of a queue become pre-blank. Raises StoreFull.
        """
        first = self.first_entry_of(queue_offset)
        base = first * ENTRY.size
        is_new = self.files.allocate(base)
        mapping = self.files.reserve(base, (queue_offset + 1 - first) * ENTRY.size)
        if is_new and self.files.bases()[0] == base:
            for number in range(queue_offset - first):
                ENTRY.pack_into(mapping, number * ENTRY.size, *layout.PRE_BLANK_ENTRY)
        return mapping, first

    def file_of(self, queue_offset: int) -> tuple[Mapping, int]:
        """Map the file of an entry, and return the number of the file's first entry. Raises FileNotFoundError."""
        first = self.first_entry_of(queue_offset)
        return self.files.mapping(first * ENTRY.size), first

    def end_below(self, commit_log_offset: int) -> int:
        """Return the queue offset after the last entry for a record below ``commit_log_offset``.

        Entries for such records stand without holes, so a binary search in the last file that has one finds it.
        """
        bases = self.files.bases()
        for base in reversed(bases):
            first = base // ENTRY.size
            stop = first - -written_end(self.files, base) // ENTRY.size
            end = self._search(
                first, stop, lambda entry: entry.size > 0 and entry.commit_log_offset < commit_log_offset
            )
            if end > first:
                return end
        return bases[0] // ENTRY.size if bases else 0

    def begin(self, min_commit_log_offset: int) -> int:
        """Return the queue offset of the oldest message still in the commit log.

        A pre-blank entry never counts as a message. (ConsumeQueue.correctMinOffset counts it when the commit log
        begins at 0.)
        """
        bases = self.files.bases()
        low = bases[0] // ENTRY.size if bases else 0
        if not bases or self._is_kept(low, min_commit_log_offset):
            return low
        return self.oldest(low, self.end_below(1 << 62), min_commit_log_offset)

    def oldest(self, low: int, high: int, min_commit_log_offset: int) -> int:
        """Return the first queue offset from ``low`` on whose record was not removed; ``high`` if all were."""
        while low < high:
            middle = (low + high) // 2
            if self._is_kept(middle, min_commit_log_offset):
                high = middle
            else:
                low = middle + 1
        return low

    def cut(self, queue_offset: int) -> bool:
        """Zero every entry at and above ``queue_offset``, durably; files wholly above it are removed.

        Returns whether there was anything to cut.
        """
        was_cut = False
        for base in self.files.bases():
            first = base // ENTRY.size
            if first > queue_offset or (first == queue_offset and first):
                self.files.remove(base)
                was_cut = True
            else:
                start = max(0, queue_offset - first) * ENTRY.size
                was_cut |= self.files.zero(base, start, self.files.file_bytes) > 0
        if was_cut:
            base = self.files.base_of(queue_offset * ENTRY.size)
            self.files.sync(base, base + self.files.file_bytes)
        return was_cut

    def _search(self, low: int, high: int, is_before: Callable[[Entry], bool]) -> int:
        """Return the first entry from ``low`` on for which ``is_before`` is false; the others come first."""
        near, content = 0, b""
        while low < high:
            if not content and high - low <= _NEAR and self.first_entry_of(low) == self.first_entry_of(high - 1):
                near, content = low, self.entry_bytes(low, high)
            middle = (low + high) // 2
            entry = Entry(*ENTRY.unpack_from(content, (middle - near) * ENTRY.size)) if content else self.entry(middle)
            if is_before(entry):
                low = middle + 1
            else:
                high = middle
        return low

    def entry_bytes(self, first: int, stop: int) -> bytes:
        """Return the bytes of entries that stand in one file. Raises as :meth:`entry`."""
        base = self.first_entry_of(first) * ENTRY.size
        return self.files.read(base, first * ENTRY.size - base, (stop - first) * ENTRY.size)

    def _is_kept(self, queue_offset: int, min_commit_log_offset: int) -> bool:
        try:
            entry = self.entry(queue_offset)
        except FileNotFoundError:
            return False
        return entry != PRE_BLANK and entry.commit_log_offset >= min_commit_log_offset


class ConsumeQueues:
    """Every consume queue of a store."""

    def __init__(self, root: Path, file_bytes: int, mappings: MappingCache) -> None:
        self.entries_per_file = file_bytes // ENTRY.size
        self._root = root
        self._file_bytes = file_bytes
        self._mappings = mappings
        self._queues: dict[MessageQueue, ConsumeQueue] = {}

    def __getitem__(self, queue: MessageQueue) -> ConsumeQueue:
        if queue not in self._queues:
            directory = self._root / DIRECTORY / queue.topic / str(queue.queue_id)
            files = FileQueue(directory, self._file_bytes, scratch=self._root, mappings=self._mappings, grow=True)
            self._queues[queue] = ConsumeQueue(files)
        return self._queues[queue]

    def on_disk(self) -> list[MessageQueue]:
        """Return the queues that have a directory, sorted; other directories are ignored."""
        found = []
        for topic in _directories(str(self._root / DIRECTORY)):
            if is_name(topic.name):
                queues = [queue.name for queue in _directories(topic.path)]
                found += [MessageQueue(topic.name, int(queue)) for queue in queues if _is_id(queue)]
        return sorted(found)


def _is_id(name: str) -> bool:
    return bool(_QUEUE_ID.fullmatch(name)) and int(name) < 2**31


def _directories(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []
