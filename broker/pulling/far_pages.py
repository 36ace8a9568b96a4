"""Far pages: records that the host has to fetch from its disk first, while the event loop goes on.

A consumer that is far behind reads pages that the kernel of the host may have dropped. Touching them on the loop would
hold up all other clients for as long as the disk takes. So their pull waits until a thread has read them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Final

from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.log.consume_queue import ENTRY, Entry

NEAR_BYTES: Final = 64 * 1024 * 1024
"""So much at the end of the log is taken to be in memory: it was just written."""

_PAGE: Final = mmap.PAGESIZE


class FarPages:
    """Looks for pages that are not in memory, and fetches them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._near: dict[MessageQueue, tuple[int, int]] = {}

    def are_missing(self, queue: MessageQueue, offset: int, most: int) -> bool:
        """Tell whether reading so many messages from ``offset`` on would wait for the disk. Does not wait for it."""
        if self._is_near(queue, offset):
            return False
        files = self._store.consume_queues[queue].files
        position = offset * ENTRY.size
        base = files.base_of(position)
        try:
            if not files.is_cached(base, position - base, ENTRY.size):
                return True
            entries = self._entries(queue, offset, most)
            if entries:
                self._near[queue] = offset, entries[0].commit_log_offset
            return not self._is_near(queue, offset) and any(
                not self._is_cached(begin, end) for begin, end in _stretches(entries, self._store.log_files.file_bytes)
            )
        except (FileNotFoundError, StoreCorrupt):  # the look itself says what is wrong
            return False

    def _is_near(self, queue: MessageQueue, offset: int) -> bool:
        """Tell whether a message is known to stand near the end of the log: behind one that was looked at."""
        known, begin = self._near.get(queue, (offset + 1, 0))
        return offset >= known and begin > self._store.state.published_to - NEAR_BYTES

    def fetch(self, queue: MessageQueue, offset: int, most: int, most_bytes: int) -> None:
        """Read these messages, so that they are in memory afterwards. For any thread."""
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

    def _entries(self, queue: MessageQueue, offset: int, most: int) -> list[Entry]:
        entries = self._store.consume_queues[queue]
        end = min(offset + most, entries.first_entry_of(offset) + entries.entries_per_file)
        found = entries.entries(offset, min(end, self._store.topics.max_offset(queue)))
        return [entry for entry in found if entry.commit_log_offset >= 0 and entry.size > 0]

    def _is_cached(self, begin: int, end: int) -> bool:
        files = self._store.log_files
        base = files.base_of(begin)
        return files.is_cached(base, begin - base, end - begin)


def _stretches(entries: list[Entry], file_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of what is to be looked at in the log: at least the ends of each record.

    Records of one file with less than a page between them are looked at as one: a look costs more than a page.
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
