"""Flush: how published bytes become durable.

The log is flushed by :mod:`rmqclient.store.upkeep.group_commit`, for senders that wait for it and by the housekeeper,
which also flushes the queues and writes the checkpoint. The housekeeper flushes the log every 500 ms if 4 pages are
dirty, and every 10 s however little is dirty (CommitLog.FlushRealTimeService). It flushes each consume queue every
second if 2 pages are dirty, and every 60 s however little is dirty (DefaultMessageStore.FlushConsumeQueueService).
"""

from __future__ import annotations

import errno

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import DiskFailed
from rmqclient.store.log.index_file import IndexFile, IndexFiles
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.native_threads import threading
from rmqclient.store.parts import Parts
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.checkpoint import Checkpoint, LowWater
from rmqclient.store.upkeep.group_commit import PAGE_BYTES, GroupCommit

LEAST_PAGES = 4
"""Dirty pages of the log for which a flush is worth a wait of the disk; fewer wait for the thorough flush.
[flushCommitLogLeastPages]"""
QUEUES_LEAST_PAGES = 2
"""The same for one consume queue, whose entries are a tenth of the bytes. [flushConsumeQueueLeastPages]"""
QUEUES_INTERVAL_MS = 1_000
"""Interval at which consume queues with so many dirty pages are flushed. It spreads the writes that the thorough flush
would do at once; no guarantee depends on it. [flushIntervalConsumeQueue]"""


class Flusher:
    """Flushes the files of one store, for one process."""

    def __init__(self, parts: Parts) -> None:
        self._root = parts.root
        self._check_in_place = parts.lock.check_in_place
        log = GroupCommit(parts)
        self.flush = log.flush
        self.wait_until_flushed = log.wait_until_flushed
        self._poison = log.poison
        self._state = parts.state
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._topics = parts.topics
        self._flushed_queues: list[int] = []  # max offset at the last flush, by slot
        self._dispatched = (0, 0)  # how far, and the sum of the queues' max offsets there
        self._recording = threading.Lock()

    def flush_timed(self) -> None:
        """Flush when enough pages of the log are dirty, and record it."""
        if self.flush(LEAST_PAGES):
            self.write_checkpoint()

    def flush_log(self) -> None:
        """Flush the log, however few pages are dirty, and record it."""
        self.flush()
        self.write_checkpoint()

    def flush_queues_timed(self) -> None:
        """Flush the consume queues with enough dirty pages."""
        self.flush_queues(QUEUES_LEAST_PAGES)

    def flush_thorough(self) -> None:
        """Flush everything, consume queues too, and record it."""
        self.flush()
        self.flush_queues()
        self.write_checkpoint()

    def flush_ends(self, queue_ends: dict[MessageQueue, int]) -> None:
        """Flush the files in which the log and these queues end, and their names, although nothing is new.

        Records that recovery has zeroed or removed there must not come back with the next power cut: a new record could
        end exactly where an old one begins. Raises StorePoisoned.
        """
        log_end = self._state.published_to
        try:
            if self._log_files.directory.exists():
                self._log_files.sync(log_end, log_end + 1)
            for queue, max_offset in queue_ends.items():
                entry_at = max_offset * layout.CONSUME_QUEUE_ENTRY.size
                self._consume_queues[queue].files.sync(entry_at, entry_at + 1)
        except OSError as error:
            self._poison(error)

    def flush_recovered(self, end: int) -> None:
        """Flush the log up to ``end``, while no other process has the store open; lost files are skipped.

        Raises StorePoisoned.
        """
        try:
            self._log_files.sync(self._state.flushed_to, end)
        except OSError as error:
            self._poison(error)
        reach(CrashPoint.FLUSH_SYNCED)
        self._state.flushed_to = end

    def flush_queues(self, least_pages: int = 0) -> None:
        """Flush the consume queue files with new entries, of queues with at least ``least_pages`` dirty pages.

        The next checkpoint says how far all queues are durable. Raises StorePoisoned.
        """
        queue_ends = sum(self._topics.max_offsets())
        dispatched_to = self._counted_to()
        ends = self._topics.max_offsets()  # read again: every entry for a record below dispatched_to must be flushed
        if not self._flushed_queues:
            self._flushed_queues = self._durable_queues()
        self._flushed_queues += [0] * (len(ends) - len(self._flushed_queues))
        flushed: list[bool] = []
        try:
            for slot, (start, end) in enumerate(zip(self._flushed_queues, ends, strict=False)):
                flushed.append(start == end or self._flush_queue(slot, start, end, least_pages))
        except OSError as error:
            self._poison(error)
        if all(flushed):
            self._dispatched = max(self._dispatched, (dispatched_to, queue_ends))

    def flush_index(self, files: IndexFiles, file: IndexFile) -> None:
        """Make an index file durable. Raises StorePoisoned: after a failed flush no later flush is believed."""
        try:
            files.sync(file)
        except OSError as error:
            self._poison(error)

    def write_checkpoint(self) -> None:
        """Record on disk how far everything is durable. Raises StorePoisoned, StoreReplaced."""
        self._check_in_place()
        with self._recording:  # two tasks of a housekeeper could make a missing file at the same time
            try:
                self._write_checkpoint()
            except DiskFailed as error:
                self._poison(OSError(errno.EIO, str(error)))

    def _write_checkpoint(self) -> None:
        _, low_water = checkpoint.read(self._root)
        sequence = low_water.sequence + 1 if low_water else 1
        timestamp = self._state.last_store_timestamp
        flushed_to = self._state.flushed_to
        # Another process may have flushed more queues. Queues can also be ahead of the log, which is flushed next.
        known = (low_water.dispatched_to, low_water.queue_ends) if low_water else (0, 0)
        is_newer = known[0] <= self._dispatched[0] <= flushed_to
        dispatched_to, queue_ends = self._dispatched if is_newer else known
        try:
            checkpoint.write(
                self._root,
                Checkpoint(timestamp, timestamp, self._state.index_timestamp, flushed_to),
                LowWater(sequence, flushed_to, dispatched_to, queue_ends),
            )
        except OSError as error:
            self._poison(error)

    def _counted_to(self) -> int:
        """Return a commit log offset below which every record is counted in the max offset of its queue.

        An append that is under way, or whose process died, may have advanced ``published_to`` and not yet the queue.
        """
        published_to = self._state.published_to
        return min(published_to, self._state.append_from) if self._state.append_stage else published_to

    def _durable_queues(self) -> list[int]:
        """Return all max offsets if the checkpoint says that all entries are on disk, as after a clean close."""
        ends = self._topics.max_offsets()
        published_to = self._state.published_to  # read after the offsets: no entry below them is for a record above it
        _, low_water = checkpoint.read(self._root)
        return ends if low_water is not None and low_water.dispatched_to == published_to else []

    def _flush_queue(self, slot: int, start: int, end: int, least_pages: int) -> bool:
        """Return whether everything below ``end`` is durable."""
        entry_size = layout.CONSUME_QUEUE_ENTRY.size
        files = self._consume_queues[self._topics.queue(slot)].files
        crossed = files.base_of(start * entry_size) != files.base_of(end * entry_size)
        if (end - start) * entry_size < least_pages * PAGE_BYTES and not crossed:
            return False
        files.sync(start * entry_size, end * entry_size)
        self._flushed_queues[slot] = end
        return True
