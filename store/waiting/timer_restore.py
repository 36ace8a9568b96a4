"""Which messages of the timer are done, for a new runtime file: from the old one, or else from the log.

Every end of a wait is a record behind the one that waited, with its queue offset in ``TIMER_QUEUE_OFFSET`` and its id
(:mod:`rmqclient.store.waiting.timer`). So the log alone says which messages are done, and what a power cut took back is
not. Where a record that waited was not removed, its end was not either, because that is younger.

So that not all of the log has to be read, the housekeeper writes ``<root>/timer.done`` from time to time. It is written
when all that it says is on the disk; the ends of waits behind ``scan_from`` are looked for in the log. One that is
damaged, or that says more than the log has, is removed, and the whole log is read::

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

import logging
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
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings import document
from rmqclient.store.settings.topic_table import TopicTable
from rmqclient.store.waiting.timer_bits import QUEUE, WORD, Done, done_in, put

_log = logging.getLogger(__name__)

TIMER_DONE_FILE = Path("timer.done")

_HEADER = layout.TIMER_SNAPSHOT
_MAGIC = b"RMQTIMER"
_CRC_AT = _HEADER.at["crc"]


class TimerSnapshot(NamedTuple):
    """What ``timer.done`` says."""

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
    """Read ``timer.done``; None when there is none, or it is damaged."""
    content = document.content(root / TIMER_DONE_FILE)
    if len(content) < _HEADER.size:
        return None
    fields, bits = _HEADER.read(content), content[_HEADER.size :]
    done = Done(fields["done_to"], fields["end"], bits)
    is_whole = fields["magic"] == _MAGIC and fields["crc"] == crc32(content[:_CRC_AT] + bits)
    if not is_whole or done.done_to % WORD or len(bits) != (done.end - done.done_to + WORD - 1) // WORD * 8:
        return None
    return TimerSnapshot(fields["scan_from"], fields["flushed_to"], done)


def done_of(leftover: SharedState, topics: TopicTable) -> Done | None:
    """Take over from the runtime file of this boot which messages are done; None when it does not tell."""
    try:
        return done_in(leftover, topics.max_offset(QUEUE))
    except UnknownTopic:
        return None


def restore(
    root: Path,
    state: SharedState,
    topics: TopicTable,
    log_files: FileQueue,
    consume_queues: ConsumeQueues,
    kept: tuple[int, int, bytes] | None,
) -> None:
    """Fill the bits of a new runtime file from ``kept``, or else from ``timer.done`` and the log."""
    try:
        known = range(topics.min_offset(QUEUE), topics.max_offset(QUEUE))
    except UnknownTopic:
        return
    if kept is not None and kept[1] <= known.stop:
        put(state, Done(*kept))
        return
    snapshot = read_snapshot(root)
    if snapshot is None or snapshot.flushed_to > state.published_to or snapshot.done.end > known.stop:
        (root / TIMER_DONE_FILE).unlink(missing_ok=True)  # it must not be believed when the log has grown
        snapshot = None
    read = _Ends(known, snapshot, log_files, consume_queues)
    read.read(max(state.min_offset, snapshot.scan_from if snapshot else 0), state.published_to)
    put(state, read.done())


class _Ends:
    """The ends of waits that a part of the log tells of."""

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
        """Return what is done, without the words at the begin that are full."""
        ring, full = layout.TIMER_BITS, len(self._bits) - len(self._bits.lstrip(b"\xff"))
        full = min(full - full % 8, (self._known.stop - self._low) // WORD * 8)
        behind = self._known.stop - ring - (self._low + 8 * full)
        if behind > 0:
            _log.error("%d messages of the timer are too far behind, and those of them that wait are lost", behind)
            full += -(-behind // WORD) * 8
        return Done(self._low + 8 * full, self._known.stop, bytes(self._bits[full:]))

    def read(self, start: int, end: int) -> None:
        """Note the ends of waits in the records from ``start`` up to ``end`` of the log; damage is stepped over."""
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
        """Tell whether a record that stands at ``end_offset`` can be the end of the wait of a message."""
        try:
            offset = self._consume_queues[QUEUE].entry(number).commit_log_offset
            base = self._log_files.base_of(offset)
            message = decode(self._log_files.mapping(base), offset - base, offset)
        except FileNotFoundError:
            return True
        if not isinstance(message, ReceivedMessage):
            return True  # damaged: there is nothing to be delivered
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
