"""The consume queues of an archive: the entries of the archived messages, and no others.

A file whose entries all count is uploaded once. The last file of a queue is uploaded with the entries that count,
filled with zeros, and uploaded again when there are more. Archived entries are never replaced: in the store, recovery
may have rewritten them since, as blank entries where retention has removed the messages.
"""

from __future__ import annotations

import zlib
from contextlib import suppress

import msgspec

from rmqclient.archive.manifest import ArchivedQueue, QueueFile, file_name, queue_file_name
from rmqclient.archive.uploads import Uploads
from rmqclient.store import MessageQueue
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.log.consume_queue import ENTRY, PRE_BLANK, ConsumeQueue, ConsumeQueues


class QueueArchiver:
    """Uploads consume queue files of one store. ``may_be_there``: a killed run may have uploaded files."""

    def __init__(self, queues: ConsumeQueues, uploads: Uploads, *, may_be_there: bool) -> None:
        self.sealed_files = 0
        self._consume_queues = queues
        self._uploads = uploads
        self._may_be_there = may_be_there
        self._entries_per_file = queues.entries_per_file

    def archive(
        self, queue: MessageQueue, known: ArchivedQueue | None, log_begin: int, log_end: int
    ) -> ArchivedQueue | None:
        """Upload the queue's entries for records between two commit log offsets; return what is archived afterwards.

        ``known`` is what was archived before. Returns None if there are no entries. Raises StoreCorrupt if an entry is
        missing.
        """
        entries = self._consume_queues[queue]
        bounds = _bounds(entries, log_begin, log_end)
        if known is not None:
            bounds = range(known.min_offset, max(known.max_offset, bounds.stop))
        files = {file.first: file for file in known.files} if known is not None else {}
        for base in entries.files.bases() if bounds else ():
            first = base // ENTRY.size
            count = min(bounds.stop - first, self._entries_per_file)
            before = files.get(first)
            if count > (before.entries if before is not None else 0):
                with suppress(FileNotFoundError):  # retention removed the file, after the records of all its entries
                    content = self._entries(queue, entries, range(first, first + count), before)
                    _check(entries, first, content, before.entries if before is not None else bounds.start - first)
                    files[first] = self._put(queue, first, content)
        if not files:
            return None
        last = files[max(files)]
        stop = min(bounds.stop, last.first + last.entries)
        in_order = [files[first] for first in sorted(files)]
        return ArchivedQueue(queue.topic, queue.queue_id, min(bounds.start, stop), stop, in_order)

    def trim(self, queue: ArchivedQueue) -> None:
        """Write the last file anew if entries that do not count were uploaded behind those that do.

        Leaves a file alone whose counted entries are not those that were archived. Raises ArchiveError.
        """
        for last in queue.files[-1:]:
            name = queue_file_name(queue.queue, last.first)
            content = self._archived(name)
            counted = self._padded(content[: last.entries * ENTRY.size])
            if content != counted and zlib.crc32(counted) == last.crc32:
                self._uploads.storage.write(name, [counted])

    def begun_at(self, queue: ArchivedQueue, log_begin: int) -> ArchivedQueue:
        """Return a queue without the messages below a commit log offset."""
        bounds = _bounds(self._consume_queues[queue.queue], log_begin, 1 << 62)
        return msgspec.structs.replace(queue, min_offset=min(max(queue.min_offset, bounds.start), queue.max_offset))

    def _entries(self, queue: MessageQueue, entries: ConsumeQueue, numbers: range, known: QueueFile | None) -> bytes:
        """Return the first entries of a file; the archived ones are read from the archive."""
        content = entries.files.read(numbers.start * ENTRY.size, 0, len(numbers) * ENTRY.size)
        archived = known.entries * ENTRY.size if known is not None else 0
        if known is None or zlib.crc32(self._padded(content[:archived])) == known.crc32:
            return content
        before = self._archived(queue_file_name(queue, numbers.start))[:archived]
        return before + content[len(before) :]

    def _archived(self, name: str) -> bytes:
        """Return the content of a file in the archive; nothing if it is not there."""
        try:
            file = self._uploads.storage.open(name)
        except FileNotFoundError:
            return b""
        content = file.read(0, file.size)
        file.close()
        return content

    def _put(self, queue: MessageQueue, first: int, entries: bytes) -> QueueFile:
        count, content = len(entries) // ENTRY.size, self._padded(entries)
        found = self._uploads.found
        name = queue_file_name(queue, first)
        crc = self._uploads.put(name, len(content), lambda: [content], may_be_there=self._may_be_there)
        self.sealed_files += count == self._entries_per_file and found == self._uploads.found
        return QueueFile(file_name(first * ENTRY.size), count, crc)

    def _padded(self, content: bytes) -> bytes:
        return content + bytes(self._entries_per_file * ENTRY.size - len(content))


def _bounds(entries: ConsumeQueue, log_begin: int, log_end: int) -> range:
    """Return the queue offsets of the messages between two commit log offsets."""
    while True:
        with suppress(FileNotFoundError):  # removed after the directory was listed
            stop = entries.end_below(log_end)
            return range(min(entries.begin(log_begin), stop), stop)


def _check(entries: ConsumeQueue, first: int, content: bytes, start: int) -> None:
    """Raise StoreCorrupt if an entry from ``start`` on is missing, as after a power cut; recovery restores it."""
    before = -1
    for number in range(max(0, start), len(content) // ENTRY.size):
        entry = ENTRY.unpack_from(content, number * ENTRY.size)
        if entry == PRE_BLANK:
            continue
        if entry[1] <= 0 or entry[0] <= before:
            raise StoreCorrupt(
                entries.files.path(first * ENTRY.size),
                number * ENTRY.size,
                f"entry {first + number} is missing or out of order: open the store to recover it, then archive again",
            )
        before = entry[0]
