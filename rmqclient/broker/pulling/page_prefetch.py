"""Page prefetch: reads records from disk into memory on a thread, while the event loop continues.

A consumer that is far behind reads pages that the system may have dropped. Touching them on the loop would block all
clients while the disk is read. So such a pull waits until a thread has read them.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import LimitReached, StoreCorrupt
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.log.consume_queue import ENTRY, Entry

NEAR_BYTES: Final = 64 * 1024 * 1024
"""Bytes at the end of the log that are assumed to be in memory, because they were just written."""

AHEAD: Final = 512
"""Messages that one check covers if they lie close together: a consumer that catches up asks for them next."""

_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""Bytes of log within which these messages must lie; the system checks 1,000 pages in some 10 µs."""

_AHEAD_S: Final = 0.1
"""Seconds for which messages seen in memory are assumed to stay there."""

_PAGE: Final = mmap.PAGESIZE


class _Seen(NamedTuple):
    """A range of messages that was in memory."""

    first: int
    stop: int
    until: float
    """End of this assumption, of ``time.monotonic``."""


class PagePrefetch:
    """Finds pages that are not in memory, and reads them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._near: dict[MessageQueue, tuple[int, int]] = {}
        self._seen: dict[MessageQueue, _Seen] = {}

    def are_missing(self, queue: MessageQueue, offset: int, most: int) -> bool:
        """Return whether reading ``most`` messages from ``offset`` on would wait for the disk. Does not wait for it."""
        if self._is_near(queue, offset) or self._was_seen(queue, offset, most):
            return False
        try:
            return not self._sees_ahead(queue, offset) and self._is_one_missing(queue, offset, most)
        except (FileNotFoundError, StoreCorrupt, LimitReached):  # the read itself will report it
            return False

    def fetch(self, queue: MessageQueue, offset: int, most: int, most_bytes: int) -> None:
        """Read these messages into memory. For any thread."""
        files = self._store.log_files
        try:
            for entry in self._entries(queue, offset, most):
                base = files.base_of(entry.commit_log_offset)
                files.read(base, entry.commit_log_offset - base, min(entry.size, most_bytes))
                most_bytes -= entry.size
                if most_bytes <= 0:
                    return
        except (FileNotFoundError, StoreCorrupt):
            return

    def _was_seen(self, queue: MessageQueue, offset: int, most: int) -> bool:
        seen = self._seen.get(queue)
        if seen is None or not seen.first <= offset <= seen.stop - most:
            return False
        return time.monotonic() < seen.until

    def _sees_ahead(self, queue: MessageQueue, offset: int) -> bool:
        """Check the next messages as one range of the log, and note it if all of it is in memory."""
        entries, stop = self._store.consume_queues[queue], self._stop(queue, offset, AHEAD)
        if not self._has_entries(queue, offset, stop):
            return False
        first, last = entries.entry(offset), entries.entry(stop - 1)
        begin, end = first.commit_log_offset, last.commit_log_offset + last.size
        files = self._store.log_files
        if begin < 0 or not 0 < end - begin <= _AHEAD_BYTES or files.base_of(begin) != files.base_of(end - 1):
            return False
        if not _is_in_memory(files, begin, end):
            return False
        self._near[queue] = offset, begin
        self._seen[queue] = _Seen(offset, stop, time.monotonic() + _AHEAD_S)
        return True

    def _is_one_missing(self, queue: MessageQueue, offset: int, most: int) -> bool:
        """Check both ends of each record, except near the end of the log."""
        if not self._has_entries(queue, offset, self._stop(queue, offset, most)):
            return True
        entries, files = self._entries(queue, offset, most), self._store.log_files
        if entries:
            self._near[queue] = offset, entries[0].commit_log_offset
        return not self._is_near(queue, offset) and any(
            not _is_in_memory(files, begin, end) for begin, end in _stretches(entries, files.file_bytes)
        )

    def _has_entries(self, queue: MessageQueue, offset: int, stop: int) -> bool:
        """Return whether these entries, of one consume queue file, are in memory."""
        files = self._store.consume_queues[queue].files
        return _is_in_memory(files, offset * ENTRY.size, stop * ENTRY.size)

    def _is_near(self, queue: MessageQueue, offset: int) -> bool:
        """Return whether a message is known to be near the end of the log, after one that was checked."""
        known, begin = self._near.get(queue, (offset + 1, 0))
        return offset >= known and begin > self._store.state.published_to - NEAR_BYTES

    def _entries(self, queue: MessageQueue, offset: int, most: int) -> list[Entry]:
        found = self._store.consume_queues[queue].entries(offset, self._stop(queue, offset, most))
        return [entry for entry in found if entry.commit_log_offset >= 0 and entry.size > 0]

    def _stop(self, queue: MessageQueue, offset: int, most: int) -> int:
        """Return the end of ``most`` messages, limited to one consume queue file; ``offset`` without messages."""
        entries = self._store.consume_queues[queue]
        end_of_file = entries.first_entry_of(offset) + entries.entries_per_file
        return max(offset, min(offset + most, end_of_file, self._store.topics.max_offset(queue)))


def _is_in_memory(files: FileQueue, begin: int, end: int) -> bool:
    """Return whether bytes ``[begin, end)`` of files, as far as one file has them, can be read without the disk."""
    base = files.base_of(begin)
    return files.mapping(base).is_cached(begin - base, min(end - base, files.file_bytes))


def _stretches(entries: list[Entry], file_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the ranges of the log to check: at least both ends of each record.

    Records of one file with less than a page between them form one range: a system call costs more than a page.
    """
    begin = end = -1
    for entry in entries:
        first, last = entry.commit_log_offset, entry.commit_log_offset + entry.size - 1
        for position in (first, last):
            if not 0 <= position - end < _PAGE or position // file_bytes != begin // file_bytes:
                if begin >= 0:
                    yield begin, end + 1
                begin = position
            end = position
    if begin >= 0:
        yield begin, end + 1
