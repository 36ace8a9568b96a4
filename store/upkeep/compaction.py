"""Compaction: the latest message of each key survives retention, in topics that were made for that.

The log is never changed. A *pass* over one queue of a compact topic reads the flushed records that are new since the
last pass, and writes a new compacted file (:mod:`rmqclient.store.files.compacted_file`). The new file holds, of the
records of the old file and the new records, the latest of each key (the first of ``KEYS``), byte for byte. Queue
offsets stay, so the file has gaps. Readers find messages below the begin of the log in the compacted file, and all
others in the log.

- A *tombstone*, a message with an empty body, deletes its key. The pass that first meets a tombstone writes down how
  long it stays, ``delete_retention_ms`` more, and a later pass leaves it out: readers that began before have that time.
- A record without a key, or a damaged record, is not taken over; the log has it as long as retention leaves it.
- A pass keeps one dictionary of the keys of the new records, 130 bytes a key of 20 bytes and up to 200 while the
  dictionary grows, and 32 bytes for each record that it writes. It ends when it has met a million keys
  (``MOST_KEYS``), and the next pass goes on there: some 200 MB at most, however many keys there are.

When. The housekeeper looks every 15 s (``CompactionConfig.interval_ms``) and compacts a queue when half of its messages
are new (``min_cleanable_dirty_ratio``) and there are a thousand of them. Retention, in any process, asks for a pass
before it removes a commit log file, and keeps every file with a record that some queue of a compact topic was not
compacted past (:meth:`Compaction.make_removable`). So if passes fail, such as on a full disk, files stay, whatever
their age and however full the disk is. Each attempt logs the reason, and senders are refused at ``disk_full_percent``
as usual. No value is given up for room.

One pass runs at a time, under ``COMPACTION_BYTE``. A pass reads by cold reads, a MiB at a time, in one of the
housekeeper's threads. The kernel looks at five million records a second of processor time and holds the GIL for a
millisecond.
"""

from __future__ import annotations

import time
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import QueueError, StoreBusy, StoreCorrupt
from rmqclient.store.files.compacted_file import (
    CompactedFile,
    CompactedQueue,
    compacted_queues,
    open_compacted,
    path_of,
)
from rmqclient.store.files.file_lock import COMPACTION_BYTE
from rmqclient.store.files.mapped_file import sync_directory
from rmqclient.store.kernel._kernel import ReceivedMessage
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.native_threads import threading
from rmqclient.store.parts import Parts
from rmqclient.store.threads.logs import Log
from rmqclient.store.upkeep.compaction_pass import Pass

_log = Log(__name__)

LEAST_NEW = 1_000
"""Fewer new messages are not worth a pass until retention asks for one."""

_LOCK_TIMEOUT_S = 1.0
_EVERYTHING = 1 << 62


class Compaction:
    """Compacts the queues of one store's compact topics, for one process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._root = parts.root
        self._state = parts.state
        self._topics = parts.topics
        self._consume_queues = parts.consume_queues
        self._lock = parts.lock
        self._config = parts.config.compaction
        self._closing = threading.Event()
        self._lows: dict[MessageQueue, tuple[int, int]] = {}
        self._durable: dict[MessageQueue, int] = {}

    # --- for readers ------------------------------------------------------------------------------

    def reader(self, queue: MessageQueue) -> CompactedQueue | None:
        """Return a reader of messages below the begin of the log, for one thread; None if the topic is not compact."""
        if not self._topics.is_compact(queue.topic):
            return None
        return CompactedQueue(self._root, queue, lambda: self.log_low(queue))

    def look(self, queue: MessageQueue, queue_offset: int) -> tuple[int, ReceivedMessage | None, int]:
        """Look once into the compacted file of a compact topic's queue; see :meth:`CompactedQueue.__call__`."""
        return CompactedQueue(self._root, queue, lambda: self.log_low(queue))(queue_offset)

    def oldest(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message that was not removed, and make it the queue's minimum.

        The message may stand in the log or in the compacted file.
        """
        if self._state.min_offset == 0:  # nothing was removed yet: a missing file was not removed by a process of ours
            return self._topics.min_offset(queue)
        low = self.oldest_in_log(queue)
        if low and self._topics.is_compact(queue.topic):
            file = open_compacted(self._root, queue)
            first = None if file is None else file.first_offset()
            low = low if first is None else min(first, low)
        self._topics.raise_min_offset(queue, low)
        return low

    def oldest_in_log(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message from the queue's minimum on that stands in the log."""
        return self._consume_queues[queue].oldest(
            self._topics.min_offset(queue), self._topics.max_offset(queue), self._state.min_offset
        )

    def log_low(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message that the log still has."""
        log_begin = self._state.min_offset
        known_begin, low = self._lows.get(queue, (-1, 0))
        if known_begin != log_begin:
            low = self._consume_queues[queue].oldest(low, self._topics.max_offset(queue), log_begin)
            self._lows[queue] = log_begin, low
        return low

    # --- when -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Compact each queue that has enough new messages; the housekeeper's task."""
        if not self._state.poisoned:
            for queue in self._topics.compact_queues():
                if self._is_due(queue):
                    self._try(queue)

    def make_removable(self, end: int) -> int:
        """Compact what stands below a commit log offset; return the offset below which no queue needs the log."""
        if not self._state.poisoned:
            for queue in self._topics.compact_queues():
                needed = -1
                while needed < (now := self._needed_from(queue)) < end and self._try(queue):
                    needed = now
        return min(map(self._needed_from, self._topics.compact_queues()), default=_EVERYTHING)

    def close(self) -> None:
        """End a pass that is under way, at its next step."""
        self._closing.set()

    def _is_due(self, queue: MessageQueue) -> bool:
        file = open_compacted(self._root, queue)
        done_to, count = (0, 0) if file is None else (file.compacted_to, file.count)
        new = self._topics.max_offset(queue) - max(done_to, self.log_low(queue))
        return new >= LEAST_NEW and new > self._config.min_cleanable_dirty_ratio * (new + count)

    def _try(self, queue: MessageQueue) -> bool:
        """Compact a queue; False if that failed, which is logged."""
        try:
            self.compact(queue)
        except StoreBusy as error:
            _log.info("queue %d of %s will be compacted next time: %s", queue.queue_id, queue.topic, error)
            return False
        except (QueueError, OSError) as error:
            _log.error(
                "queue %d of %s cannot be compacted, and no commit log file that it needs is removed: %s",
                queue.queue_id,
                queue.topic,
                error,
            )
            return False
        return True

    def _needed_from(self, queue: MessageQueue) -> int:
        """Return the commit log offset of the first record that no durable compacted file of the queue stands for."""
        try:
            start = max(self._compacted_to(queue), self.log_low(queue))
            if start == self._topics.max_offset(queue):
                return _EVERYTHING
            return self._consume_queues[queue].entry(start).commit_log_offset
        except (StoreCorrupt, FileNotFoundError) as error:
            _log.error("queue %d of %s: no commit log file is removed: %s", queue.queue_id, queue.topic, error)
            return 0

    def _compacted_to(self, queue: MessageQueue) -> int:
        file = open_compacted(self._root, queue)
        if file is None:
            return 0
        _check_end(self._root, queue, file.compacted_to, self._topics.max_offset(queue))
        if self._durable.get(queue, -1) < file.compacted_to:
            sync_directory(file.path.parent)  # the process that renamed it may have died before the name was durable
            self._durable[queue] = file.compacted_to
        return file.compacted_to

    # --- a pass -----------------------------------------------------------------------------------

    def compact(self, queue: MessageQueue) -> int:
        """Compact one queue now; return up to which queue offset. Raises StoreBusy, StoreFull, StoreCorrupt, ..."""
        with self._lock.held(COMPACTION_BYTE, _LOCK_TIMEOUT_S):
            began = time.monotonic()
            old = open_compacted(self._root, queue)
            start = self._start(queue, old)
            end = min(self._topics.max_offset(queue), self._consume_queues[queue].end_below(self._state.flushed_to))
            if end <= start:
                return start
            one = Pass(self._parts, queue, self._closing)
            end = one.note(start, end)
            kept = one.write(old, end)
            _log.info(
                "compacted queue %d of %s up to %d: %d new messages, %d are kept in all, %.1f s",
                *(queue.queue_id, queue.topic, end, end - start, kept, time.monotonic() - began),
            )
            return end

    def _start(self, queue: MessageQueue, old: CompactedFile | None) -> int:
        """Return the queue offset of the first message that the old file does not stand for."""
        done_to, low = 0 if old is None else old.compacted_to, self.log_low(queue)
        _check_end(self._root, queue, done_to, self._topics.max_offset(queue))
        if low > done_to:
            _log.error(
                "queue %d of %s: messages %d to %d were removed before they were compacted",
                *(queue.queue_id, queue.topic, done_to, low),
            )
        return max(done_to, low)


def lowered(root: Path, queues: dict[MessageQueue, tuple[int, int]]) -> dict[MessageQueue, tuple[int, int]]:
    """Return the (min, max) queue offsets of recovered queues, with those in their compacted files; for the opening.

    A queue that has no message in the log any more goes on behind its compacted file.
    """
    found = dict(queues)
    for queue in compacted_queues(root):
        try:
            file = open_compacted(root, queue)
        except StoreCorrupt as error:
            _log.error("%s: move it away to go on without it: the values that it held are then lost", error)
            continue
        if file is not None:
            low, high = queues.get(queue, (0, 0))
            if low == high:
                low = high = max(high, file.compacted_to)
            first = file.first_offset()
            found[queue] = low if first is None else min(first, low), high
    return found


def _check_end(root: Path, queue: MessageQueue, compacted_to: int, end: int) -> None:
    if compacted_to > end:
        raise StoreCorrupt(
            path_of(root, queue),
            layout.COMPACTED_HEADER.at["compacted_to"],
            f"it stands for messages up to {compacted_to}, and the queue ends at {end}: records that were flushed "
            "are lost",
        )
