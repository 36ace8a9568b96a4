"""Dispatch: consume queues and the index are derived from the commit log.

While the store is open, the append itself writes the consume queue entries. Recovery dispatches the records whose
entries may be missing. Index entries follow behind the writers. The housekeeper adds them all the time, the last
process that closes the store adds the rest, and a query adds them up to the present, because it needs every published
record. Doing any of it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingLike
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import TypeAlias

from rmqclient.store import clock
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreCorrupt, store_errors
from rmqclient.store.files.file_lock import INDEX_BYTE, LockFile
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.kernel._kernel import Dispatcher, Mapping, index_records
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.log.index_file import IndexFile, IndexFiles
from rmqclient.store.log.record import Blank, ReceivedMessage, Record
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.shared_state import SharedState

_TRANSACTION_MASK = 0xC
_TRANSACTION_PREPARED = 0x4
_TRANSACTION_ROLLBACK = 0xC

_MOST_RECORDS_AHEAD = 500

_INDEX_STEP_BYTES = 16 << 20
"""Log bytes indexed under one hold of the lock, so that a query does not wait long for the housekeeper."""


# --- consume queues -------------------------------------------------------------------------------


_NONE_KNOWN: MappingLike[MessageQueue, int] = MappingProxyType({})


_QueueFiles: TypeAlias = Callable[[str, int, int, int, int, bool], tuple[Mapping, int] | int]
"""The form that :class:`rmqclient.store.kernel._kernel.Dispatcher` takes."""


@dataclass(slots=True)
class Dispatched:
    """The result of a dispatch."""

    records: int = 0
    entries_written: int = 0
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    """Queue offset after the last dispatched message, by queue."""
    doubtful: list[tuple[int, int]] = field(default_factory=list)
    """Begin and end of records whose queue offset is not covered by a CRC and was corrected."""


def dispatch(
    log_files: FileQueue,
    consume_queues: ConsumeQueues,
    ranges: list[tuple[int, int]],
    known: MappingLike[MessageQueue, int] = _NONE_KNOWN,
) -> Dispatched:
    """Write the consume queue entries of all records in ``ranges`` that are missing or wrong.

    A range begins at a record and holds only records and blank records that a scan has found valid. ``known`` gives the
    end of each queue below the ranges, as far as it is known.
    """
    dispatcher = Dispatcher(_queue_files(log_files, consume_queues, known), consume_queues.entries_per_file)
    for start, end in ranges:
        offset = start
        while offset < end:
            commit_log.feed(
                log_files, offset, end, lambda part, begin, stop: dispatcher.dispatch(part, begin, begin, stop)
            )
            offset = log_files.base_of(offset) + log_files.file_bytes
    ends = dict(known)
    for queue, end in ends_of(dispatcher).items():
        ends[queue] = max(end, ends.get(queue, 0))
    return Dispatched(dispatcher.records, dispatcher.entries_written, ends, dispatcher.doubtful)


def checker(consume_queues: ConsumeQueues | None) -> Dispatcher:
    """Return a dispatcher that checks records and, given queues, their entries. It writes nothing."""
    if consume_queues is None:
        return Dispatcher(None, 1)
    return Dispatcher(_files_there(consume_queues), consume_queues.entries_per_file)


def ends_of(dispatcher: Dispatcher) -> dict[MessageQueue, int]:
    """Return the queue offset after the last record of each queue."""
    return {MessageQueue(topic, queue_id): end for (topic, queue_id), end in dispatcher.ends.items()}


def _queue_files(
    log_files: FileQueue, consume_queues: ConsumeQueues, known: MappingLike[MessageQueue, int]
) -> _QueueFiles:
    """Return the callback that makes the file of an entry, or gives the queue offset that the record must have had."""

    def queue_file(
        topic: str, queue_id: int, queue_offset: int, commit_log_offset: int, end: int, is_checked: bool
    ) -> tuple[Mapping, int] | int:
        name = MessageQueue(topic, queue_id)
        queue = consume_queues[name]
        expected = 0 if is_checked else max(end, known.get(name, 0)) or queue.end_below(commit_log_offset)
        if not is_checked and queue_offset != expected:
            is_known = expected or queue.files.bases()
            jump = range(expected, expected + queue.entries_per_file) if is_known else None
            likely = _likely_offset(log_files, commit_log_offset, queue_offset, jump)
            if likely != queue_offset:
                return likely
        return queue.file_for(queue_offset)

    return queue_file


def _files_there(consume_queues: ConsumeQueues) -> _QueueFiles:
    """Return the callback that finds the file of an entry and never makes one."""

    def queue_file(topic: str, queue_id: int, queue_offset: int, *_: int) -> tuple[Mapping, int] | int:
        try:
            return consume_queues[MessageQueue(topic, queue_id)].file_of(queue_offset)
        except (FileNotFoundError, StoreCorrupt):
            return queue_offset

    return queue_file


def _likely_offset(log_files: FileQueue, commit_log_offset: int, queue_offset: int, jump: range | None) -> int:
    """Return the queue offset of a record whose CRC covers only the body and whose number is not the next one.

    A flipped bit in the number would leave a hole, or overwrite the entry of another message. A broker numbers the
    messages of a queue in log order, so the next two records of the queue are asked, and two of three decide. Without
    a majority the lowest possible number wins, because a flipped bit is more likely to be one of the many zero bits.
    The number may skip at most ``jump`` messages, as damaged records leave a gap; None allows any number, for a queue
    without entries.
    """
    first, *others = _records(log_files, commit_log_offset)
    guesses = [queue_offset]
    for other in others:
        if (other.topic, other.queue_id) == (first.topic, first.queue_id) and has_entry(other):
            guesses.append(other.queue_offset - len(guesses))
            if guesses[-1] >= 0 and guesses.count(guesses[-1]) == 2:
                return guesses[-1]
            if len(guesses) == 3:
                break
    possible = [guess for guess in guesses if guess >= (jump.start if jump else 0)]
    if jump is None:
        return min(possible)
    lowest = min(possible, default=jump.start)
    return lowest if lowest in jump else jump.start


def _records(log_files: FileQueue, commit_log_offset: int) -> list[ReceivedMessage]:
    """Return the record at an offset and the records after it."""
    steps = islice(commit_log.walk(log_files, commit_log_offset), _MOST_RECORDS_AHEAD)
    return [step.message for _, step in steps if isinstance(step, Record)]


def has_entry(message: ReceivedMessage) -> bool:
    """Return whether a record has a consume queue entry. Prepared and rolled back transactions have no entry.

    CommitLogDispatcherBuildConsumeQueue of DefaultMessageStore.
    """
    return message.sys_flag & _TRANSACTION_MASK not in (_TRANSACTION_PREPARED, _TRANSACTION_ROLLBACK)


# --- index ----------------------------------------------------------------------------------------


class IndexDispatch:
    """Adds the index entries of published records. One process at a time goes on where the last one stopped."""

    def __init__(
        self,
        state: SharedState,
        lock: LockFile,
        log_files: FileQueue,
        index_files: IndexFiles,
        flush: Callable[[IndexFiles, IndexFile], None],
        now_ms: Callable[[], int] = clock.wall_ms,
    ) -> None:
        self._state = state
        self._lock = lock
        self._log_files = log_files
        self._files = index_files
        self._flush = flush
        self._now_ms = now_ms

    def catch_up(self, *, timeout_s: float = 60.0) -> None:
        """Index every published record.

        Raises StoreFull, LimitReached, DiskFailed, and StoreBusy if another process holds the lock too long.
        """
        end = self._state.published_to
        with store_errors(f"{self._files.directory} cannot be written"):
            while self._state.indexed_to < end:
                with self._lock.held(INDEX_BYTE, timeout_s):
                    self._step(end)

    def _step(self, end: int) -> None:
        """Index a part of one commit log file."""
        start = max(self._state.indexed_to, self._state.min_offset)
        if start >= end:
            self._state.indexed_to = max(start, self._state.indexed_to)
            return
        following = self._log_files.base_of(start) + self._log_files.file_bytes
        stop = min(end, following, start + _INDEX_STEP_BYTES)
        try:
            reached = self._index(start, stop)
            reach(CrashPoint.INDEX_WRITTEN)
            self._state.indexed_to = reached if reached >= stop else self._behind(reached, end)
        except FileNotFoundError:
            self._state.indexed_to = following

    def _index(self, start: int, stop: int) -> int:
        """Index records up to ``stop`` or to the end of the records; return that offset."""
        file = self._files.to_fill(self._now_ms())
        start, done = self._resumed(start, stop)

        def take(content: bytes, begin: int, end: int) -> int:
            nonlocal file, done
            offset, is_full = begin, True
            while is_full:
                offset, done, is_full = index_records(
                    content, begin, offset, end, file.mapping, file.slots, file.entries, done
                )
                if is_full:
                    file = self._roll(file)
            return offset

        return commit_log.feed(self._log_files, start, stop, take)

    def _resumed(self, start: int, stop: int) -> tuple[int, int]:
        """Return where to go on, and how many keys of the record at that place are in the index already.

        A process may have died between adding the entries of a record and advancing ``indexed_to``.
        """
        for path in reversed(self._files.paths()):
            last = self._files.open(path).last_offset
            if last is not None:
                return (last, self._entries_of(last)) if start <= last < stop else (start, 0)
        return start, 0

    def _entries_of(self, commit_log_offset: int) -> int:
        found = 0
        for path in reversed(self._files.paths()):
            file = self._files.open(path)
            in_file = file.entries_of(commit_log_offset)
            found += in_file
            if in_file < file.header.next_number - 1:
                break
        return found

    def _roll(self, full: IndexFile) -> IndexFile:
        """Make the next file after the full one is on disk: recovery trusts every file that has a successor."""
        self._flush(self._files, full)
        self._state.index_timestamp = full.header.end_timestamp
        reach(CrashPoint.INDEX_FILE_FULL)
        return self._files.create(self._now_ms())

    def _behind(self, offset: int, end: int) -> int:
        """Return where to go on after a blank record or damage."""
        if isinstance(commit_log.LogReader(self._log_files).outcome(offset), Blank):
            return self._log_files.base_of(offset) + self._log_files.file_bytes
        return commit_log.next_record(self._log_files, offset + 1, end) or end
