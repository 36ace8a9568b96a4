"""Preparer: keeps the pages ahead of this process's appends populated.

The first touch of a page costs more than copying a record into it, and it happens under the append mutex. A thread of
the appending process pays that cost ahead of the writer, without the GIL (``Ahead`` in the kernel). It also releases
the pages behind the writer before the flush has to. Page tables belong to a process, so no other process can do this;
making the next *file* is the housekeeper's work.
"""

from __future__ import annotations

from rmqclient.store.errors import QueueError
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.kernel._kernel import Appender, Mapping
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.threads.guarded import GuardedThread

LEAST_AHEAD_BYTES = 1 << 20
MOST_AHEAD_BYTES = 16 << 20
"""The next flush would write more pages than these as zeros, and write-protect them again before their use."""


class Preparer:
    """The thread that populates pages. It starts with the appender of a process and ends with :meth:`close`."""

    def __init__(self, state: SharedState, log_files: FileQueue, appender: Appender) -> None:
        self._state = state
        self._log_files = log_files
        self._ahead = appender.ahead
        self._closed = False
        self._thread = GuardedThread(target=self._run, name="rmq-preparer")
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when the thread has ended."""
        self._closed = True
        self._ahead.stop()
        self._thread.join()

    def _run(self) -> None:
        populated_to = 0
        mapping: Mapping | None = None
        while not self._closed:
            start = max(populated_to, self._state.published_to)
            base = self._log_files.base_of(start)
            behind = mapping
            try:
                mapping = self._log_files.mapping(base)
                if behind is mapping:
                    behind = None
                populated_to = self._ahead.populate(mapping, base, start, LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES, behind)
            except (QueueError, OSError):
                # The file is missing yet, or memory is: the next append reports it. Or the page has a block that it
                # shares with a clone, and there is no room for another one: the next append asks for that itself.
                self._ahead.wait_for_append()
