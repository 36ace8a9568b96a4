"""Commit log: the one log of all messages, as ordered files of records.

``commitlog/<first byte, 20 digits>``, all files of one size, each filled from its start. A record that does not fit
with 8 bytes to spare goes to the next file; a blank record ends this one (CommitLog.DefaultAppendMessageCallback).

Invariants, checked by ``rmq store verify``:

1. From the first byte of the oldest file to ``published_to`` there are valid records and, at the end of each file but
   the last, one blank record; no other bytes between them.
2. A record's ``commit_log_offset`` is the byte at which it stands.
3. From ``published_to`` on there are only zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqclient.store import layout
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_queue import FileQueue, written_begin
from rmqclient.store.log.record import Blank, Corrupt, End, Outcome, ReceivedMessage, Record, Torn, decode

DIRECTORY = "commitlog"

PAGE_BYTES = 4096
_MOST_READ = 1 << 20
_ZEROS_OF_A_SIZE = 3
"""A record may begin with this many zeros, which can lie in a page that was never written."""
_MAGIC = layout.RECORD_MAGIC.to_bytes(4, "big", signed=True)

Step = tuple[int, Outcome]


class LogReader:
    """Reads the log without mappings, one step at a time, or further ahead while the steps are consecutive.

    For one thread. It keeps some bytes of the log. Bytes that are not a record are read again, because a record may
    have been written there since.
    """

    def __init__(self, files: FileQueue) -> None:
        self._files = files
        self._content = b""
        self._start = 0
        self._count = PAGE_BYTES

    def outcome(self, offset: int) -> Outcome:
        """Return the outcome at an offset of the log, which may be any number.

        Raises FileNotFoundError, and StoreCorrupt for a file of another size or a byte that cannot be read.
        """
        at = offset - self._start
        if 0 <= at < len(self._content):
            outcome = decode(self._content, at, offset)
            if isinstance(outcome, Record | Blank):
                return outcome
        follows = 0 <= at <= len(self._content)
        try:
            self._read(offset, min(2 * self._count, _MOST_READ) if follows else PAGE_BYTES)
        except StoreCorrupt:  # perhaps only further on
            self._read(offset, PAGE_BYTES - offset % PAGE_BYTES)
        outcome = decode(self._content, 0, offset)
        if isinstance(outcome, Torn):
            base = self._files.base_of(offset)
            size = int.from_bytes(self._files.read(base, offset - base, 4), "big")
            if size <= base + self._files.file_bytes - offset:
                self._read(offset, size)
                outcome = decode(self._content, 0, offset)
        return outcome

    def _read(self, offset: int, count: int) -> None:
        base = self._files.base_of(offset)
        self._content = self._files.read(base, offset - base, count)
        self._start, self._count = offset, count


def feed(files: FileQueue, start: int, end: int, take: Callable[[bytes, int, int], int]) -> int:
    """Hand the records of one file from ``start`` up to ``end`` to ``take``, part by part; return the offset reached.

    ``take(content, begin, stop)`` gets bytes of the log from ``begin`` on, takes the whole records in them that begin
    below ``stop``, and returns where it ended. Raises FileNotFoundError, and StoreCorrupt as a cold read.
    """
    base = files.base_of(start)
    following = base + files.file_bytes
    end, offset, count = min(end, following), start, min(_MOST_READ, max(end - start, PAGE_BYTES))
    while offset < end:
        content = files.read(base, offset - base, min(count, following - offset))
        reached = take(content, offset, min(end, offset + len(content)))
        if reached == offset:
            size = int.from_bytes(content[:4], "big")
            if not len(content) < size <= following - offset:
                break
            count = size
        offset = reached
    return offset


def walk(files: FileQueue, start: int, end: int | None = None) -> Iterator[Step]:
    """Yield (commit_log_offset, outcome) for each step from ``start`` up to ``end`` or the last file.

    The walk goes on over records and blank records. Any other outcome is the last step: the caller decides what it
    means. A missing file ends the walk with ``End``. Raises StoreCorrupt for a file of another size, or that cannot be
    read.
    """
    reader = LogReader(files)
    offset = start
    while end is None or offset < end:
        try:
            outcome = reader.outcome(offset)
        except FileNotFoundError:
            yield offset, End()
            return
        yield offset, outcome
        if isinstance(outcome, Record):
            offset += outcome.size
        elif isinstance(outcome, Blank):
            offset = files.base_of(offset) + files.file_bytes
        else:
            return


def next_record(files: FileQueue, start: int, end: int) -> int | None:
    """Find the first byte at or above ``start`` and below ``end`` where a valid record stands, after a damaged one.

    Every magic code is tried. A record also states its own position, so a copy of a record inside a body is not taken
    for a record.
    """
    reader = LogReader(files)
    for offset in _magic_codes(files, start, end):
        try:
            if isinstance(reader.outcome(offset), Record):
                return offset
        except (FileNotFoundError, StoreCorrupt):
            continue
    return None


def _magic_codes(files: FileQueue, start: int, end: int) -> Iterator[int]:
    """Yield where a record would begin, by its magic code; unreadable pages are skipped."""
    count, before = _MOST_READ, b""
    while start < end:
        base = files.base_of(start)
        position = start - base
        try:
            written = base + written_begin(files, base, position) - _ZEROS_OF_A_SIZE
            if written > start:
                start, before = written, b""
                continue
            content = before + files.read(base, position, count)
        except FileNotFoundError:  # Go to the next file that exists: a damaged word may ask for millions of files.
            start, before = min((there for there in files.bases() if there > base), default=end), b""
            continue
        except StoreCorrupt:
            rest_of_page = min(PAGE_BYTES - position % PAGE_BYTES, files.file_bytes - position)
            if count == rest_of_page:
                start, before = start + count, b""
            count = rest_of_page
            continue
        at = content.find(_MAGIC, 4)
        while at != -1 and start - len(before) + at - 4 < end:
            yield start - len(before) + at - 4
            at = content.find(_MAGIC, at + 1)
        start += len(content) - len(before)
        before = content[-7:] if start < base + files.file_bytes else b""
        count = _MOST_READ


def read(files: FileQueue, commit_log_offset: int) -> ReceivedMessage:
    """Return the record at ``commit_log_offset``. Raises StoreCorrupt with path and position."""
    base = files.base_of(commit_log_offset)
    position = commit_log_offset - base
    try:
        outcome = LogReader(files).outcome(commit_log_offset)
    except FileNotFoundError:
        raise StoreCorrupt(files.path(base), position, "the file is missing") from None
    if isinstance(outcome, Record):
        return outcome.message
    raise StoreCorrupt(files.path(base), position, describe(outcome))


def describe(outcome: Outcome) -> str:
    """Describe an outcome in words."""
    match outcome:
        case Record(message=message):
            return f"a record of {outcome.size} bytes in topic {message.topic}"
        case Blank(size=size):
            return f"a blank record of {size} bytes"
        case End():
            return "nothing was written here"
        case Torn():
            return "the file ends before the record does"
        case Corrupt(reason=reason):
            return reason


def zero(files: FileQueue, start: int, end: int) -> int:
    """Overwrite ``[start, end)`` with zeros where it is not zero; return how many bytes were not."""
    changed = 0
    while start < end:
        base = files.base_of(start)
        stop = min(end, base + files.file_bytes)
        try:
            changed += files.zero(base, start - base, stop - base)
        except FileNotFoundError:
            return changed
        start = stop
    return changed
