"""Flush: how published bytes become durable, and how senders wait for it.

ASYNC: the housekeeper flushes the log every 500 ms if 4 pages are dirty, and every 10 s however little is dirty
(CommitLog.FlushRealTimeService). It flushes each consume queue every second if 2 pages are dirty, and every 60 s
however little is dirty (DefaultMessageStore.FlushConsumeQueueService).

SYNC: group commit between processes. A sender that finds the flush mutex free becomes the leader and flushes everything
that is published, its own message and those of all other senders. The other senders sleep on a futex until
``flushed_to`` has passed their message.

A first write to a block that was only reserved changes the extents of the file, and its ``fdatasync`` waits for the
journal of the file system, which takes longer than the write. So when few bytes are flushed at a time, a flush writes
the next pages, too, while they are still zeros (``zeroed_to``), and the flushes after it write into blocks that are the
file's already.

The first error poisons the store for every process: after a failed ``fdatasync`` the kernel may have dropped the dirty
pages, and it reports the next ``fdatasync`` as a success.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import suppress

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import (
    DiskFailed,
    LimitReached,
    NotFlushed,
    QueueError,
    StorePoisoned,
    StoreUnusable,
    as_store_error,
)
from rmqclient.store.files.mapped_file import sync_directory
from rmqclient.store.log.index_file import IndexFile, IndexFiles
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.checkpoint import Checkpoint, LowWater

PAGE_BYTES = 4096
LEAST_PAGES = 4
"""Dirty pages of the log for which a flush is worth a wait of the disk; fewer wait for the thorough flush.
[flushCommitLogLeastPages]"""
QUEUES_LEAST_PAGES = 2
"""The same for one consume queue, whose entries are a tenth of the bytes. [flushConsumeQueueLeastPages]"""
QUEUES_INTERVAL_MS = 1_000
"""Interval at which consume queues with so many dirty pages are flushed. It spreads the writes that the thorough flush
would do at once; no guarantee depends on it. [flushIntervalConsumeQueue]"""

ZEROED_BYTES = 256 << 10
"""Bytes behind the log that one flush writes as zeros, for those after it."""
_SMALL_FLUSH_BYTES = 64 << 10
"""A flush of more pays for the journal once for many messages."""

_FLUSHED_TO = layout.RUNTIME_HEADER.at["flushed_to"]
_FLUSH_WORD = layout.RUNTIME_HEADER.at["flush_word"]
_FLUSH_WAITERS = layout.RUNTIME_HEADER.at["flush_waiters"]
_FOLLOWER_SLEEP_MS = 20
_LEADER_STANDS_AFTER_S = 2.0
"""A leader that has not flushed for so long may stand still, and others flush beside it. If it was the housekeeper, its
successor begins to count after up to two and a half seconds, and flushes go on within five all the same."""


class Flusher:
    """Flushes the files of one store, for one process."""

    def __init__(self, parts: Parts) -> None:
        self._root = parts.root
        self._check_in_place = parts.lock.check_in_place
        self._state = parts.state
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._topics = parts.topics
        self._lock_timeout_ms = parts.config.lock_timeout_ms
        self._named_to = 0  # files below it have durable names
        self._flushed_queues: list[int] = []  # max offset at the last flush, by slot
        self._dispatched = (0, 0)  # how far, and the sum of the queues' max offsets there
        self._had_followers = False
        self._recording = threading.Lock()
        self._leader = (0, 0, 0.0)  # thread, flushed_to, and since when both are seen together
        self._beside_leader = threading.Lock()

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

    def wait_until_flushed(self, end: int) -> None:
        """Return when every byte below ``end`` is durable.

        Raises StorePoisoned. Raises NotFlushed after the time limit, or if this process has no descriptor for a flush.
        """
        words = self._state.words
        deadline = time.monotonic() + self._lock_timeout_ms / 1000
        nobody_rang = False
        while self._state.flushed_to < end:
            seen = words.load32(_FLUSH_WORD)
            if self._state.poisoned:
                self._raise_poisoned()
            if self._try_to_lead(from_dead=nobody_rang) or self._state.flushed_to >= end:
                continue
            words.store32(_FLUSH_WAITERS, 1)
            nobody_rang = not words.wait(_FLUSH_WORD, seen, _FOLLOWER_SLEEP_MS)
            if time.monotonic() > deadline:
                raise NotFlushed(
                    f"waited {self._lock_timeout_ms} ms for a flush by process {self._state.flush_mutex.process}; "
                    "the message is stored and not yet durable"
                )

    def flush(self, least_pages: int = 0) -> bool:
        """Flush everything published, if at least ``least_pages`` are dirty or a file was finished.

        Returns False if too little was dirty, or another process is flushing. Raises StorePoisoned.
        """
        dirty = self._state.published_to - self._state.flushed_to
        crossed = self._log_files.base_of(self._state.published_to) != self._log_files.base_of(self._state.flushed_to)
        if dirty == 0 or (dirty < least_pages * PAGE_BYTES and not crossed):
            return False
        return self._try_flush()

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

    def _try_to_lead(self, *, from_dead: bool) -> bool:
        try:
            return self._try_flush(zeroes=True, from_dead=from_dead)
        except (LimitReached, DiskFailed, StoreUnusable) as error:
            raise NotFlushed(f"{error}; the message is stored and not yet durable") from error

    def _try_flush(self, *, zeroes: bool = False, from_dead: bool = True) -> bool:
        """Become the leader and flush, unless another process is the leader.

        ``zeroes``: others will soon wait for flushes, too. ``from_dead``: look whether the leader lives.
        """
        leads = False
        try:
            with self._state.flush_mutex.tried(from_dead=from_dead) as leads:
                if leads:
                    self._flush_published(zeroes=zeroes)
        finally:
            if leads:
                self._wake_followers()
        return leads or self._flush_beside(zeroes=zeroes)

    def _flush_beside(self, *, zeroes: bool) -> bool:
        """Flush beside a leader that stands still: two flushes at once cost time, and a send must not wait for it."""
        if not self._leader_stands() or not self._beside_leader.acquire(blocking=False):
            return False
        try:
            self._flush_published(zeroes=zeroes)
            thread, _, since = self._leader
            self._leader = thread, self._state.flushed_to, since  # it still stands: the next flush need not wait
        finally:
            self._beside_leader.release()
            self._wake_followers()
        return True

    def _leader_stands(self) -> bool:
        thread, flushed_to, since = self._leader
        now = time.monotonic()
        if (thread, flushed_to) != (self._state.flush_mutex.owner, self._state.flushed_to):
            self._leader = self._state.flush_mutex.owner, self._state.flushed_to, now
            return False
        return now - since > _LEADER_STANDS_AFTER_S

    def _flush_published(self, *, zeroes: bool) -> None:
        if self._state.poisoned:
            self._raise_poisoned()
        if self._had_followers:
            os.sched_yield()  # the followers just woken publish their next messages first, so this flush covers them
        start, end = self._state.flushed_to, self._state.published_to
        if zeroes and end > self._state.zeroed_to and end - start < _SMALL_FLUSH_BYTES:
            self._zero_behind(end)
        try:
            self._sync(start, end)
        except OSError as error:
            self._poison(error)
        reach(CrashPoint.FLUSH_SYNCED)
        self._state.raise_word(_FLUSHED_TO, end)

    def _zero_behind(self, end: int) -> None:
        """Let the flush that follows write the pages behind ``end``, too; where this fails, flushes take longer."""
        base = self._log_files.base_of(end)
        begin = -(-(end - base) // PAGE_BYTES) * PAGE_BYTES
        stop = min(begin + ZEROED_BYTES, self._log_files.file_bytes)
        if 0 < begin < stop:  # at 0 the file may be missing
            with suppress(QueueError, OSError):
                self._log_files.mapping(base).populate(begin, stop)
            self._state.zeroed_to = base + stop

    def _sync(self, start: int, end: int) -> None:
        base = self._log_files.base_of(start)
        while base < end:
            self._log_files.sync_file(base)
            base += self._log_files.file_bytes
        if end > self._named_to:
            sync_directory(self._log_files.directory)
            self._named_to = self._log_files.base_of(end) + self._log_files.file_bytes

    def _wake_followers(self) -> None:
        words = self._state.words
        if words.load32(_FLUSH_WAITERS):
            words.store32(_FLUSH_WAITERS, 0)
            words.signal(_FLUSH_WORD)
            self._had_followers = True
        else:
            self._had_followers = False

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

    def _poison(self, error: OSError) -> None:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # the flush has not begun, so none failed
            raise as_store_error(error, f"flushing {self._root} cannot begin") from error
        self._check_in_place()  # a file that is not there because the directory is another one is no failed disk
        self._state.poisoned = error.errno or errno.EIO
        self._wake_followers()
        raise StorePoisoned(
            f"flushing {self._root} failed: {error}; no append is believed any more: look at the disk, then "
            "restart every process that uses the store"
        ) from error

    def _raise_poisoned(self) -> None:
        raise StorePoisoned(
            f"a flush of {self._root} failed with errno {self._state.poisoned} in some process: look at the disk, then "
            "restart every process that uses the store"
        )
