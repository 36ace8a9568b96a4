"""Retention: which files are removed, and how, while other processes read and write.

:mod:`rmqclient.store.upkeep.retention_rules` says which commit log files go. The removal goes in steps. Two processes
may take the same step at once, and a kill may leave it half done:

==============================  ==============================================================================
step                            what a reader finds from then on
==============================  ==============================================================================
``min_offset`` of the log up    records below it count as removed, although they can still be read
commit log file removed         mappings of it are detached by each process's releaser
``min_offset`` of queues up     consumers that are behind go on there
consume queue files removed     the last one of a queue stays: it says where the queue's numbers go on
index files removed             the newest one stays; a query that has one open finds nothing in it
==============================  ==============================================================================

The newest file stays, and so does every file that is not both published and durable to its end. A file with a record
that a compact topic still needs (:mod:`rmqclient.store.upkeep.compaction`) stays, too: retention first asks for passes,
and files that they do not reach wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_lock import INDEX_BYTE
from rmqclient.store.files.mapped_file import sync_directory
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.marks import Marks
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.native_threads import sleep
from rmqclient.store.parts import Parts
from rmqclient.store.settings.disk import Disk
from rmqclient.store.threads.logs import Log
from rmqclient.store.upkeep.compaction import Compaction
from rmqclient.store.upkeep.retention_rules import Candidates, Clock

_log = Log(__name__)

FIRST_RUN_AFTER_MS = 60_000
PAUSE_S = 0.1
"""Pause between two files, because removing a file keeps the disk busy. [deleteCommitLogFilesInterval]"""

_INDEX_LOCK_TIMEOUT_S = 1.0


class Retention:
    """Removes the old files of one store, for one process."""

    def __init__(
        self,
        parts: Parts,
        index_files: IndexFiles,
        disk: Disk,
        compaction: Compaction,
        marks: Marks,
        *,
        clock: Clock | None = None,
        pause: Callable[[float], object] = sleep,
        before_removal: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._state = parts.state
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self.index_files = index_files
        self._topics = parts.topics
        self._lock = parts.lock
        self._config = parts.config.retention
        self._compaction = compaction
        self._marks = marks
        self._candidates = Candidates(parts, disk, clock or Clock())
        self._pause = pause
        self._before_removal = before_removal
        self._cleaned_to = -1

    def run(self) -> None:
        """Remove files that are due; the housekeeper's task. A store whose disk failed is left as it is."""
        if not self._state.poisoned:
            self.clean()

    def clean(self, *, requested: bool = False, reserved_hours: int | None = None) -> list[int]:
        """Remove at most ten commit log files that are due, and files that only they needed; return where they began.

        ``requested`` means that a person asked: old files go at any hour, by the clock as it stands.
        ``reserved_hours`` replaces ``file_reserved_hours``. Raises StoreBusy, and what a pass of compaction raises.
        """
        self._finish_removal()
        config = self._config if reserved_hours is None else replace(self._config, file_reserved_hours=reserved_hours)
        removed: list[int] = []
        try:
            for base in self._compacted(self._candidates.due(config, requested=requested)):
                if removed:
                    self._pause(PAUSE_S)
                self._remove_log_file(base)
                removed.append(base)
        finally:  # also of those before one that cannot be removed
            if removed:
                self._tell(removed, requested)
        self._clean_behind()
        return removed

    def _tell(self, removed: list[int], requested: bool) -> None:
        _log.info("removed %d commit log files, from %d on", len(removed), removed[0])
        files = "1 file" if len(removed) == 1 else f"{len(removed)} files"
        words = f"{files} of the log, from {removed[0]:,} on"
        self._marks.write("retention", "store", words, author=None if requested else "")

    def _compacted(self, bases: list[int]) -> list[int]:
        """Return those of the files that no compact topic needs any more, after the passes that free them."""
        if not bases:
            return bases
        size = self._log_files.file_bytes
        needed_from = self._compaction.make_removable(bases[-1] + size)
        kept = [base for base in bases if base + size > needed_from]
        if kept:
            _log.warning("%d commit log files from %d on wait for the compaction of a topic", len(kept), kept[0])
        return [base for base in bases if base not in kept]

    def _finish_removal(self) -> None:
        """Remove the files that a process killed during a removal has left below the minimum."""
        for base in self._log_files.bases():
            if base + self._log_files.file_bytes <= self._state.min_offset:
                self._unlink(base)

    def _remove_log_file(self, base: int) -> None:
        self._before_removal(base + self._log_files.file_bytes)
        self._state.raise_min_offset(base + self._log_files.file_bytes)
        reach(CrashPoint.RETENTION_ADVANCED)
        self._unlink(base)
        reach(CrashPoint.RETENTION_FILE_REMOVED)

    def _unlink(self, base: int) -> None:
        self._log_files.remove(base)
        sync_directory(self._log_files.directory)  # a power cut must not leave a hole before the oldest file
        self._signal()

    def _clean_behind(self) -> None:
        """Remove the queue files and index files of records that were removed."""
        log_begin = self._state.min_offset
        if log_begin != self._cleaned_to:
            cleaned = [self._try_clean_queue(queue) for queue in self._topics.all_queues()]
            self._clean_index(log_begin)
            self._signal()
            if all(cleaned):
                self._cleaned_to = log_begin

    def _try_clean_queue(self, queue: MessageQueue) -> bool:
        """Remove the files that a queue needs no more; False if that failed, which is logged and holds up no other."""
        try:
            self._clean_queue(queue)
        except (StoreCorrupt, OSError) as error:
            _log.error("queue %d of %s keeps its old files: %s", queue.queue_id, queue.topic, error)
            return False
        return True

    def _clean_queue(self, queue: MessageQueue) -> None:
        self._compaction.oldest(queue)  # raises the minimum of the queue
        low = self._compaction.oldest_in_log(queue)
        reach(CrashPoint.RETENTION_QUEUE_ADVANCED)
        files = self._consume_queues[queue].files
        for base in files.bases()[:-1]:
            if base + files.file_bytes <= low * layout.CONSUME_QUEUE_ENTRY.size:
                files.remove(base)
                reach(CrashPoint.RETENTION_QUEUE_FILE_REMOVED)

    def _clean_index(self, log_begin: int) -> None:
        with self._lock.held(INDEX_BYTE, _INDEX_LOCK_TIMEOUT_S):
            for path in self.index_files.paths()[:-1]:
                if self._index_end(path) >= log_begin:
                    break
                self.index_files.remove(path)
                reach(CrashPoint.RETENTION_INDEX_FILE_REMOVED)

    def _index_end(self, path: Path) -> int:
        """Return the commit log offset of the last record in an index file; a damaged file stays."""
        try:
            return self.index_files.open(path).header.end_offset
        except StoreCorrupt:
            return self._state.published_to

    def _signal(self) -> None:
        self._state.words.signal(layout.RUNTIME_HEADER.at["removed_word"])
