"""Which messages of the timer are done, for a new runtime file: from the old file, or from the log.

Every end of a wait is a record behind the one that waited, with its queue offset in ``TIMER_QUEUE_OFFSET`` and its id
(:mod:`rmqclient.store.waiting.timer`). So the log alone says which messages are done, and an end that a power cut took
back does not count. While a waiting record is there, its end is there, too, because the end is younger.

To save reading the whole log, the housekeeper writes ``<root>/timer.done`` from time to time, once everything in it is
on the disk. Only the ends of waits behind ``scan_from`` are then looked for in the log. If ``timer.done`` is damaged,
or says more than the log has, it is removed and the whole log is read::

    byte  size  field       meaning
    ----  ----  ----------  -------
       0     8  magic       RMQTIMER
       8     8  scan_from   commit log offset; every end of a wait below it is in the bits
      16     8  flushed_to  commit log offset; no bit is set by a record at or above it
      24     8  done_to     queue offset in the timer, below which all are done
      32     8  end         queue offset behind the last message
      40     4  crc         CRC-32 of the fields before and of the bits
    ----  ----
      44

Then the bits of the messages from ``done_to`` up to ``end``, lowest first, in whole words of 64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import StoreCorrupt, UnknownTopic
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.kernel._kernel import ReceivedMessage, crc32, decode, wait_ends
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.log.record import Blank
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings import document
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.timer_bits import QUEUE, WORD, Done, TimerBits, done_in, put

_log = Log(__name__)

TIMER_DONE_FILE = Path("timer.done")

_HEADER = layout.TIMER_SNAPSHOT
_MAGIC = b"RMQTIMER"
_CRC_AT = _HEADER.at["crc"]
_LOG_GROWN_BYTES = 256 << 20
"""How much of the log is read again after a power cut, at most, if no wait ended meanwhile."""


class TimerSnapshot(NamedTuple):
    """The content of ``timer.done``."""

    scan_from: int
    flushed_to: int
    done: Done


def write_snapshot(root: Path, snapshot: TimerSnapshot) -> None:
    """Write ``timer.done``. Raises StoreFull."""
    done = snapshot.done
    fields = (_MAGIC, snapshot.scan_from, snapshot.flushed_to, done.done_to, done.end)
    checked = _HEADER.pack(*fields, 0)[:_CRC_AT] + done.bits
    content = _HEADER.pack(*fields, crc32(checked)) + done.bits
    document.replace_file(root / TIMER_DONE_FILE, content, CrashPoint.TIMER_DONE_TEMPORARY)


def read_snapshot(root: Path) -> TimerSnapshot | None:
    """Read ``timer.done``; None if it is missing or damaged."""
    content = document.content(root / TIMER_DONE_FILE)
    if len(content) < _HEADER.size:
        return None
    fields, bits = _HEADER.read(content), content[_HEADER.size :]
    done = Done(fields["done_to"], fields["end"], bits)
    is_whole = fields["magic"] == _MAGIC and fields["crc"] == crc32(content[:_CRC_AT] + bits)
    if not is_whole or done.done_to % WORD or len(bits) != (done.end - done.done_to + WORD - 1) // WORD * 8:
        return None
    return TimerSnapshot(fields["scan_from"], fields["flushed_to"], done)


class TimerRecord:
    """Writes ``timer.done`` of one open store, if it says something new."""

    def __init__(self, parts: Parts, bits: TimerBits, wait_until_flushed: Callable[[int], None]) -> None:
        self._root = parts.root
        self._lock = parts.lock
        self._state = parts.state
        self._topics = parts.topics
        self._bits = bits
        self._wait_until_flushed = wait_until_flushed
        self._written: TimerSnapshot | None = None

    def persist(self) -> None:
        """Flush the log, then write ``timer.done``.

        Raises StoreFull, StorePoisoned, NotFlushed, StoreReplaced.
        """
        try:
            end = self._topics.max_offset(QUEUE)
        except UnknownTopic:
            return
        scan_from = self._bits.counted_to()
        done = done_in(self._state, end)
        if done is None or not self._is_news(scan_from, done):
            return
        flushed_to = self._state.published_to
        self._wait_until_flushed(flushed_to)
        self._lock.check_in_place()
        self._written = TimerSnapshot(scan_from, flushed_to, done)
        write_snapshot(self._root, self._written)

    def _is_news(self, scan_from: int, done: Done) -> bool:
        written = self._written = self._written or read_snapshot(self._root)
        return written is None or written.done != done or scan_from - written.scan_from > _LOG_GROWN_BYTES


def done_of(leftover: SharedState, topics: QueueTable) -> Done | None:
    """Return which messages are done, from the runtime file of this boot; None if it is damaged or has no timer."""
    try:
        return done_in(leftover, topics.max_offset(QUEUE))
    except UnknownTopic:
        return None


def restore(
    root: Path,
    state: SharedState,
    topics: QueueTable,
    log_files: FileQueue,
    consume_queues: ConsumeQueues,
    kept: tuple[int, int, bytes] | None,
) -> None:
    """Fill the bits of a new runtime file from ``kept``, or if it is None from ``timer.done`` and the log."""
    try:
        known = range(topics.min_offset(QUEUE), topics.max_offset(QUEUE))
    except UnknownTopic:
        return
    if kept is not None and kept[1] <= known.stop:
        put(state, Done(*kept))
        return
    snapshot = read_snapshot(root)
    if snapshot is None or snapshot.flushed_to > state.published_to or snapshot.done.end > known.stop:
        (root / TIMER_DONE_FILE).unlink(missing_ok=True)  # it must not be believed once the log has grown
        snapshot = None
    read = _Ends(known, snapshot, log_files, consume_queues)
    read.read(max(state.min_offset, snapshot.scan_from if snapshot else 0), state.published_to)
    put(state, read.done())


class _Ends:
    """The ends of waits that stand in a part of the log."""

    def __init__(
        self, known: range, snapshot: TimerSnapshot | None, log_files: FileQueue, consume_queues: ConsumeQueues
    ) -> None:
        self._known = known
        self._log_files = log_files
        self._consume_queues = consume_queues
        low, bits = known.start - known.start % WORD, b""
        if snapshot is not None:
            low, bits = snapshot.done.done_to, snapshot.done.bits
        self._low = low
        self._bits = bytearray(bits.ljust((known.stop - low + WORD - 1) // WORD * 8, b"\0"))
        for number in range(low, min(known.start, low + WORD)):
            self._set(number)

    def done(self) -> Done:
        """Return which messages are done, without the full words at the begin."""
        ring, full = layout.TIMER_BITS, len(self._bits) - len(self._bits.lstrip(b"\xff"))
        full = min(full - full % 8, (self._known.stop - self._low) // WORD * 8)
        behind = self._known.stop - ring - (self._low + 8 * full)
        if behind > 0:
            _log.error("%d messages of the timer are too far behind, and those of them that wait are lost", behind)
            full += -(-behind // WORD) * 8
        return Done(self._low + 8 * full, self._known.stop, bytes(self._bits[full:]))

    def read(self, start: int, end: int) -> None:
        """Note the ends of waits in the records from ``start`` to ``end`` of the log; damage is stepped over."""
        offset: int | None = start
        while offset is not None and offset < end:
            file_end = self._log_files.base_of(offset) + self._log_files.file_bytes
            try:
                reached = commit_log.feed(self._log_files, offset, end, self._take)
            except (FileNotFoundError, StoreCorrupt):
                reached = offset
            if reached >= min(end, file_end):
                offset = reached
            elif self._is_blank(reached):
                offset = file_end
            else:
                offset = commit_log.next_record(self._log_files, reached + 1, end)

    def _take(self, content: bytes, begin: int, stop: int) -> int:
        reached, found = wait_ends(content, begin, stop)
        for offset, text, key, own in found:
            if own in self._known:
                self._set(own)
            number = int(text) if text.isdigit() and len(text) < 20 else -1
            if number in self._known and number >= self._low and self._is_of(number, offset, key):
                self._set(number)
        return reached

    def _is_of(self, number: int, end_offset: int, key: bytes | None) -> bool:
        """Tell whether the record at ``end_offset`` can be the end of the wait of a message."""
        try:
            offset = self._consume_queues[QUEUE].entry(number).commit_log_offset
            base = self._log_files.base_of(offset)
            message = decode(self._log_files.mapping(base), offset - base, offset)
        except FileNotFoundError:
            return True
        if not isinstance(message, ReceivedMessage):
            return True  # damaged: it cannot be delivered
        own = message.some_properties((b"UNIQ_KEY",)).get("UNIQ_KEY", message.offset_message_id)
        return offset < end_offset and (key is None or key == own.encode())

    def _is_blank(self, offset: int) -> bool:
        try:
            return isinstance(commit_log.LogReader(self._log_files).outcome(offset), Blank)
        except (FileNotFoundError, StoreCorrupt):
            return False

    def _set(self, number: int) -> None:
        if number >= self._low:
            self._bits[number - self._low >> 3] |= 1 << (number - self._low & 7)
