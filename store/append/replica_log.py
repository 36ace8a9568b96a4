"""Replica log: the log of another store, appended byte by byte as it stands there.

Consume queues are built from the records, as recovery does it, and the index follows as behind every append. A step
goes through the stages of an append (:mod:`rmqclient.store.append.appending`):

=======================================  ==========================================================================
step                                     what a death leaves
=======================================  ==========================================================================
check every record: sizes, place, CRCs   nothing
write the consume queue entries          entries behind the end of their queues, which nobody reads; the same bytes
                                         come again, and write them again
copy, stage = copying                    bytes that the next one zeroes
publish log and queues, stage =          the next one publishes them
recorded
=======================================  ==========================================================================

Records are appended when they are whole. So a reader never sees half of one, wherever the bytes were cut on their way.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqclient.store import layout
from rmqclient.store.append.appending import repair
from rmqclient.store.append.replica_entries import ReplicaEntries
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import RecordsDamaged, store_errors
from rmqclient.store.kernel._kernel import Mapping, scope
from rmqclient.store.layout import COPYING, FOUND, IDLE, RECORDED
from rmqclient.store.log import commit_log
from rmqclient.store.log.dispatch import checker
from rmqclient.store.log.record import decode
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.shared_state import SharedState, queue_slot_at

_HEADER = layout.RUNTIME_HEADER.at
_WAITING_LANES = layout.QUEUE_SLOT.at["waiting_lanes"]
_SIZE_BYTES = 4


class ReplicaLog:
    """Appends to the log of a replica, for the one process that follows the primary.

    Raises ValueError for a store that is not a replica.
    """

    def __init__(self, parts: Parts) -> None:
        if not parts.state.is_replica:
            raise ValueError(f"{parts.root} is not a replica")
        self._parts = parts
        self._state = parts.state
        self._files = parts.log_files
        self._queues = parts.consume_queues
        self._topics = parts.topics
        self._entries = ReplicaEntries(parts)
        self._timeout_ms = parts.config.lock_timeout_ms

    @property
    def begin(self) -> int:
        """The first byte of the log."""
        return self._state.min_offset

    @property
    def end(self) -> int:
        """The end of the last whole record, where the next byte goes."""
        return self._state.published_to

    @property
    def is_empty(self) -> bool:
        """Whether the log has no byte yet, so that it may begin anywhere."""
        return self.end == self.begin

    def settle(self) -> None:
        """Finish or undo the step in which the last follower died. Raises StoreBusy, StoreCorrupt, LimitReached."""
        with store_errors("a step of the replica that was cut short cannot be repaired"), self._locked():
            repair(self._state, self._files, self._queues, self._topics)

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin at an offset, which must be the first byte of a file. Raises ValueError."""
        if not self.is_empty or offset % self._files.file_bytes:
            raise ValueError(
                f"the log cannot begin at {offset}: it has bytes {self.begin} to {self.end}, in files of "
                f"{self._files.file_bytes}"
            )
        state = self._state
        with self._locked(), state.locked(state.flush_mutex, self._timeout_ms):
            state.min_offset = state.flushed_to = state.indexed_to = offset
            state.append_from = state.written_to = state.published_to = offset

    def last_record(self) -> int:
        """Return where the last record with an entry begins; the end of the log when there is none.

        From there on the log is compared with that of the primary. Raises StoreCorrupt.
        """
        ends = zip(self._topics.all_queues(), self._topics.max_offsets(), strict=False)
        last = [entry for queue, end in ends if end and (entry := self._queues[queue].entry_or_none(end - 1))]
        return max((entry.commit_log_offset for entry in last if entry.commit_log_offset < self.end), default=self.end)

    def read(self, start: int, count: int) -> bytes:
        """Return bytes of the log, fewer at the end of a file. Raises FileNotFoundError, StoreCorrupt."""
        base = self._files.base_of(start)
        return self._files.read(base, start - base, min(count, base + self._files.file_bytes - start))

    def take(self, content: memoryview) -> int:
        """Append the whole records that ``content`` begins with; return how many bytes they have.

        ``content`` is the primary's log from :attr:`end` on. The rest comes again, with more behind it. Raises
        RecordsDamaged when it breaks the format; what stands before the damage is stored. Raises StoreFull,
        LimitReached, DiskFailed, TableFull, StoreBusy.
        """
        taken = 0
        while taken < len(content) and (step := self._step(content[taken:])):
            taken += step
        return taken

    def _step(self, content: memoryview) -> int:
        """Append records up to the end of the present file, or the blank record there; return how many bytes."""
        start = self.end
        left = self._files.base_of(start) + self._files.file_bytes - start
        part = content[:left]
        stop, found = checker(None).check(part, start, start, start + len(part))
        if stop > start:
            self._append(start, part[: stop - start])
        elif found == FOUND["BLANK"]:
            return self._end_file(start, part, left)
        elif found != FOUND["SHORT"] or int.from_bytes(part[:_SIZE_BYTES], "big") > left:
            raise RecordsDamaged(start, len(part), commit_log.describe(decode(part, 0, start)))
        return stop - start

    def _append(self, start: int, records: memoryview) -> None:
        end = start + len(records)
        log_file = self._log_file(start)
        begins, ends = self._entries.write(start, records)
        reach(CrashPoint.REPLICA_ENTRIES_WRITTEN)
        timestamp = self._entries.timestamp(start, records, ends)
        with self._locked():
            self._copy(start, records, log_file)
            for queue, queue_begin in begins.items():
                self._topics.raise_min_offset(queue, queue_begin)
            self._state.append_stage = RECORDED
            reach(CrashPoint.REPLICA_ANNOUNCED)
            self._state.published_to = end
            reach(CrashPoint.REPLICA_PUBLISHED)
            for queue, queue_end in ends.items():
                self._topics.advance_max_offset(queue, queue_end)
            if timestamp:
                self._state.last_store_timestamp = timestamp
            self._state.append_stage = IDLE
        _wake(self._state, self._topics, ends)

    def _end_file(self, start: int, part: memoryview, left: int) -> int:
        """Append the blank record and what stands behind it, and enter the next file; 0 until all of it has come."""
        claimed = int.from_bytes(part[:_SIZE_BYTES], "big")
        if claimed != left:
            raise RecordsDamaged(
                start,
                len(part),
                f"the file of the primary ends at {start + claimed}, the one here at {start + left}: "
                f"commit_log_file_bytes={self._files.file_bytes} here is not the mappedFileSizeCommitLog there",
            )
        if len(part) < left:
            return 0
        log_file = self._log_file(start)
        self._files.allocate(start + left)
        with self._locked():
            self._copy(start, part, log_file)
            self._state.published_to = start + left
            self._state.append_stage = IDLE
        self._state.words.signal(_HEADER["prepare_word"])
        _wake(self._state, self._topics, {})
        return left

    def _copy(self, start: int, part: memoryview, log_file: Mapping) -> None:
        """Say what is about to be written, and copy it; the caller holds the append mutex."""
        state, at = self._state, start - self._files.base_of(start)
        state.append_from, state.written_to, state.progress_at = start, start + len(part), 0
        state.append_stage = COPYING
        middle = len(part) // 2
        memoryview(log_file)[at : at + middle] = part[:middle]
        reach(CrashPoint.REPLICA_HALF_COPIED)
        memoryview(log_file)[at + middle : at + len(part)] = part[middle:]

    def _log_file(self, offset: int) -> Mapping:
        base = self._files.base_of(offset)
        self._files.allocate(base)
        return self._files.mapping(base)

    @scope
    def _locked(self) -> Iterator[None]:
        with self._state.locked(self._state.append_mutex, self._timeout_ms):
            self._state.check_open(self._parts.root)
            yield


def _wake(state: SharedState, topics: QueueTable, ends: dict[MessageQueue, int]) -> None:
    """Wake those that sleep until these queues, or the whole log, have more."""
    words = [_HEADER["following_lanes"]]
    words += [queue_slot_at(topics.slot(queue)) + _WAITING_LANES for queue in ends]
    lanes = 0
    for at in words:
        while (sleeping := state.words.load(at)) and not state.words.replace(at, sleeping, 0):
            pass
        lanes |= sleeping
    for lane in range(layout.ARRIVAL_LANES):
        if lanes >> lane & 1:
            state.signal_arrival(lane)
