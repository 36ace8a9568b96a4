"""A pass: one reading of the new records of one queue, and the compacted file that it writes.

It notes the latest record of each key, and then writes what stays of the old file, and these records behind it. See
:mod:`rmqclient.store.upkeep.compaction` for when, and for what keeps the log until then.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqclient.store import clock
from rmqclient.store.errors import StoreBusy, StoreCorrupt
from rmqclient.store.files.compacted_file import CompactedFile, CompactedWriter, keep_aside
from rmqclient.store.kernel._kernel import STOPPED, ReceivedMessage, key_and_body_size, note_latest
from rmqclient.store.log.commit_log import LogReader
from rmqclient.store.log.record import Record
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.native_threads import threading
from rmqclient.store.parts import Parts
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

MOST_KEYS = 1_000_000

_PART_BYTES = 1 << 20
_ENTRIES_AT_ONCE = 4_096
_RECORD = 0


class Pass:
    """One pass over one queue. Raises StoreBusy at its next step once ``closing`` is set."""

    def __init__(self, parts: Parts, queue: MessageQueue, closing: threading.Event) -> None:
        self._root = parts.root
        self._log_files = parts.log_files
        self._delete_retention_ms = parts.config.compaction.delete_retention_ms
        self._queue = queue
        self._consume_queue = parts.consume_queues[queue]
        self._closing = closing
        self._latest: dict[bytes, int] = {}
        """Key → commit log offset of its latest record."""

    def note(self, start: int, end: int) -> int:
        """Note where the latest record of each key stands; return the queue offset up to which that was done."""
        consume_queue, queue_id, topic = self._consume_queue, self._queue.queue_id, self._queue.topic.encode()
        part, base, without_key = b"", 0, 0
        at = start
        while at < end:
            self._check_open()
            stop = min(end, consume_queue.first_entry_of(at) + consume_queue.entries_per_file, at + _ENTRIES_AT_ONCE)
            entries, first = consume_queue.entry_bytes(at, stop), at
            while at < stop:
                number, found, no_key = note_latest(
                    self._latest, MOST_KEYS, entries, at - first, first, topic, queue_id, part, base
                )
                at, without_key = first + number, without_key + no_key
                if found == STOPPED["FULL"]:
                    return at
                if found == STOPPED["ELSEWHERE"]:
                    entry = consume_queue.entry(at)
                    part, base = self._part(entry.commit_log_offset, entry.size), entry.commit_log_offset
                    if len(part) >= entry.size:
                        continue
                if found != _RECORD:
                    _log.error(
                        "message %d of queue %d of %s is damaged: it is not compacted",
                        at,
                        self._queue.queue_id,
                        self._queue.topic,
                    )
                    at += 1
        if without_key:
            _log.warning(
                "%d messages of queue %d of %s have no key: they are not compacted, and go with their commit log files",
                *(without_key, self._queue.queue_id, self._queue.topic),
            )
        return end

    def _part(self, commit_log_offset: int, size: int) -> bytes:
        base = self._log_files.base_of(commit_log_offset)
        for count in (max(size, _PART_BYTES), size):  # a bad page may follow the record
            try:
                return self._log_files.read(base, commit_log_offset - base, count)
            except (StoreCorrupt, FileNotFoundError):
                continue
        return b""

    def write(self, old: CompactedFile | None, end: int) -> int:
        """Write the new compacted file; return how many messages it has."""
        now = now_ms()
        with CompactedWriter(self._root, self._queue) as writer:
            if old is not None:
                self._copy_old(old, now, writer)
            for message in self._new():
                _, body_size = key_and_body_size(message)
                writer.add(message, 0 if body_size else now + self._delete_retention_ms)
            self._check_open()
            writer.finish(end, now)
            return writer.count

    def _copy_old(self, old: CompactedFile, now: int, writer: CompactedWriter) -> None:
        damaged = 0
        for number, entry, message in old.messages():
            if number % _ENTRIES_AT_ONCE == 0:
                self._check_open()
            if entry is None or message is None:
                damaged += 1
            elif not (0 < entry.delete_at <= now) and key_and_body_size(message)[0] not in self._latest:
                writer.add(message, entry.delete_at)
        if damaged:
            _log.error("%s has %d damaged records: it is kept as %s", old.path, damaged, keep_aside(old))

    def _new(self) -> Iterator[ReceivedMessage]:
        records = LogReader(self._log_files)
        for number, commit_log_offset in enumerate(sorted(self._latest.values())):
            if number % _ENTRIES_AT_ONCE == 0:
                self._check_open()
            outcome = records.outcome(commit_log_offset)
            if not isinstance(outcome, Record):  # it was a record a moment ago
                base = self._log_files.base_of(commit_log_offset)
                raise StoreCorrupt(
                    self._log_files.path(base), commit_log_offset - base, "no record stands here any more"
                )
            yield outcome.message

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise StoreBusy("the store is being closed")


def now_ms() -> int:
    """Return the time of the wall clock in ms, which decides when tombstones go."""
    return clock.wall_ms()
