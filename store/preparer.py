"""Preparer: keeps the pages ahead of this process's appends populated.

The first touch of a page costs more than copying a record into it, and it happens under the append mutex. A thread of
the appending process takes that cost ahead of the writer, with the GIL released. Page tables belong to a process, so
no other process can do it for this one; making the next *file* is the housekeeper's work.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from store._kernel import Appender
from store.errors import StoreCorrupt
from store.file_queue import FileQueue
from store.shared_state import SharedState

LEAST_AHEAD_BYTES = 1 << 20
MOST_AHEAD_BYTES = 16 << 20
"""More would be written to the disk as zeros by the next flush, and be write-protected again before its use."""
_IDLE_MS = 1_000


class Preparer:
    """The thread. It starts with the first append of a process and ends with :meth:`close`."""

    def __init__(self, state: SharedState, log_files: FileQueue, appender: Appender) -> None:
        self._state = state
        self._log_files = log_files
        self._appender = appender
        self._closed = False
        self._seen = self._populated_to = self._wake_at = state.published_to
        self._thread = threading.Thread(target=self._run, name="rmq-preparer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when the thread has ended."""
        self._closed = True
        while self._thread.is_alive():  # it may have looked at _closed, and not sleep yet
            self._appender.wake_ahead()
            self._thread.join(0.01)

    def step(self) -> None:
        """Populate pages from the writer to as far ahead as it went since the last step, doubled."""
        published_to = self._state.published_to
        went = published_to - self._seen
        self._seen = published_to
        ahead = min(max(LEAST_AHEAD_BYTES, 2 * went), MOST_AHEAD_BYTES)
        self._wake_at = published_to + ahead // 2
        start = max(self._populated_to, published_to)
        end = published_to + ahead
        while start < end:
            start = self._populated_to = self._populate(start, end)

    def _populate(self, start: int, end: int) -> int:
        """Populate up to the end of one file; return how far it is done."""
        base = self._log_files.base_of(start)
        stop = min(end, base + self._log_files.file_bytes)
        with suppress(FileNotFoundError, StoreCorrupt):  # not made yet: the writer will make it, and touch its pages
            self._appender.populate_ahead(self._log_files.mapping(base), base, start, stop)
        return stop

    def _run(self) -> None:
        while not self._closed:
            self.step()
            if not self._closed:
                self._appender.wait_ahead(self._wake_at, _IDLE_MS)
