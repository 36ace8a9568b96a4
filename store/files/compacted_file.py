"""Compacted file: the latest message of each key of one queue, up to a queue offset.

``compaction/<topic>/<queue id>/compacted``, one file for each queue of a compact topic, big-endian::

    byte  size  field         meaning
    ----  ----  ------------  -------
       0     8  magic         RMQCOMP1
       8     8  compacted_to  queue offset below which the file stands for all messages
      16     8  entries_at    position of the first entry, behind the last record
      24     8  count         records, and entries
      32     8  made_at       ms, when it was made
      40     4  crc           CRC-32 of the fields before
    ----  ----
      44

Then the records as they stood in the commit log, back to back, by queue offset; then one entry for each; then the
header again, in case the first copy cannot be read::

    byte  size  field         meaning
    ----  ----  ------------  -------
       0     8  queue_offset  number of the message within its queue
       8     8  position      first byte of its record in this file
      16     8  delete_at     ms, from when on a tombstone goes; 0 for a message with a body
      24     4  size          bytes of the record
      28     4  crc           CRC-32 of the fields before
    ----  ----
      32

A file is never changed. Its successor is written beside it (``compacted.tmp``), flushed, and renamed over it, and then
the directory is flushed: a crash leaves the old file or the new one. A reader that has the old one open goes on reading
it.

Invariants, checked by ``rmq store verify``:

14. One of the two headers is whole, the entries are whole, their queue offsets grow and stay below ``compacted_to``,
    which is not above the queue's max offset.
15. Each entry points to a whole record of this queue with this queue offset.
16. No key has two records.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreCorrupt, store_errors
from rmqclient.store.files.mapped_file import FileIdentity, is_at, make_directory, open_plain, sync_directory
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.kernel._kernel import ReceivedMessage, decode
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

DIRECTORY = "compaction"
FILE_NAME = "compacted"

_HEADER = layout.COMPACTED_HEADER
_ENTRY = layout.COMPACTED_ENTRY
_COMMIT_LOG_OFFSET = layout.RECORD_HEADER.at["commit_log_offset"]
_ENTRIES_AT_ONCE = 256
_RECORDS_AT_ONCE = 1 << 18
_FEW_RECORDS = 64
"""A crash point is passed after this many records."""


class CompactedEntry(NamedTuple):
    """Where one record stands."""

    queue_offset: int
    position: int
    delete_at: int
    """When a tombstone may be removed, in ms since the epoch; 0 for a message with a body."""
    size: int


def directory_of(root: Path, topic: str) -> Path:
    """Return the directory whose existence says that a topic is compact."""
    return root / DIRECTORY / topic


def path_of(root: Path, queue: MessageQueue) -> Path:
    """Return the path of a queue's compacted file."""
    return directory_of(root, queue.topic) / str(queue.queue_id) / FILE_NAME


class CompactedFile:
    """One compacted file, open for reading, for one thread.

    Raises FileNotFoundError, StoreCorrupt when neither header is whole, LimitReached, DiskFailed, StoreUnusable.
    """

    def __init__(self, path: Path, queue: MessageQueue) -> None:
        self._descriptor = -1
        self.path = path
        self.queue = queue
        self._descriptor = open_plain(path, os.O_RDONLY)
        status = os.fstat(self._descriptor)
        self.identity: FileIdentity = (status.st_dev, status.st_ino)
        fields = self._header(0, status.st_size) or self._header(status.st_size - _HEADER.size, status.st_size)
        if fields is None:
            raise StoreCorrupt(path, 0, "both of its headers are damaged")
        self.compacted_to: int = fields["compacted_to"]
        self.count: int = fields["count"]
        self.entries_at: int = fields["entries_at"]
        self._entries: tuple[int, bytes] = (0, b"")
        self._records: tuple[int, bytes] = (0, b"")

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    @property
    def is_current(self) -> bool:
        """Whether the file at its path is still this one."""
        return is_at(str(self.path), self.identity)

    def entry(self, number: int) -> CompactedEntry | None:
        """Return an entry, or None if it is damaged."""
        start, content = self._entries
        at = (number - start) * _ENTRY.size
        if not 0 <= at < len(content):
            start = number - number % _ENTRIES_AT_ONCE
            count = min(_ENTRIES_AT_ONCE, self.count - start)
            content = self._read(self.entries_at + start * _ENTRY.size, count * _ENTRY.size)
            self._entries = start, content
            at = (number - start) * _ENTRY.size
        if at + _ENTRY.size > len(content):
            return None
        *fields, crc = _ENTRY.unpack_from(content, at)
        if crc != zlib.crc32(content[at : at + _ENTRY.at["crc"]]):
            return None
        return CompactedEntry(*fields)

    def position(self, number: int) -> int:
        """Return the byte at which an entry stands."""
        return self.entries_at + number * _ENTRY.size

    def first_at(self, queue_offset: int) -> int:
        """Return the number of the first entry with this queue offset or a later one; the count if there is none.

        A damaged entry counts with the next whole one.
        """
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            whole = next(filter(None, map(self.entry, range(middle, high))), None)
            if whole is None or whole.queue_offset >= queue_offset:
                high = middle
            else:
                low = middle + 1
        return low

    def record(self, entry: CompactedEntry) -> ReceivedMessage | None:
        """Return the message of an entry, or None if it is damaged."""
        start, content = self._records
        at = entry.position - start
        if at < 0 or at + entry.size > len(content):
            start, at = entry.position, 0
            wanted = min(max(entry.size, _RECORDS_AT_ONCE), self.entries_at - entry.position)
            content = self._read(start, wanted)
            self._records = start, content
        if entry.size < layout.RECORD_FIXED_SIZE or at + entry.size > len(content):
            return None
        commit_log_offset = int.from_bytes(content[at + _COMMIT_LOG_OFFSET :][:8], "big", signed=True)
        found = decode(content, at, commit_log_offset, self.queue)
        if not isinstance(found, ReceivedMessage):
            return None
        place = MessageQueue(found.topic, found.queue_id), found.queue_offset, found.size
        return found if place == (self.queue, entry.queue_offset, entry.size) else None

    def messages(self, start: int = 0) -> Iterator[tuple[int, CompactedEntry | None, ReceivedMessage | None]]:
        """Yield number, entry and message of each entry from ``start`` on; None stands for a damaged part."""
        for number in range(start, self.count):
            entry = self.entry(number)
            yield number, entry, None if entry is None else self.record(entry)

    def first_offset(self) -> int | None:
        """Return the lowest queue offset, or None if there is no message."""
        return next((entry.queue_offset for entry in map(self.entry, range(self.count)) if entry is not None), None)

    def _header(self, at: int, size: int) -> dict[str, int] | None:
        content = self._read(at, _HEADER.size) if at >= 0 else b""
        if len(content) < _HEADER.size or not content.startswith(layout.COMPACTED_MAGIC):
            return None
        fields = _HEADER.read(content)
        is_whole = fields["crc"] == zlib.crc32(content[: _HEADER.at["crc"]])
        fits = fields["entries_at"] + fields["count"] * _ENTRY.size + _HEADER.size == size
        return fields if is_whole and fits else None

    def _read(self, position: int, count: int) -> bytes:
        """Return bytes; fewer if the disk cannot read them all."""
        try:
            return os.pread(self._descriptor, count, position)
        except OSError as error:
            _log.error("%s, byte %d: cannot be read: %s", self.path, position, error.strerror)
            return b""


def open_compacted(root: Path, queue: MessageQueue) -> CompactedFile | None:
    """Open the compacted file of a queue; None if the queue has no such file. Raises as :class:`CompactedFile`."""
    try:
        return CompactedFile(path_of(root, queue), queue)
    except FileNotFoundError:
        return None


def compacted_queues(root: Path) -> Iterator[MessageQueue]:
    """Yield the queues that have a directory for their compacted file."""
    for path in sorted((root / DIRECTORY).glob("*/*")):
        if path.name.isdecimal():
            yield MessageQueue(path.parent.name, int(path.name))


class CompactedWriter:
    """Writes the next compacted file of a queue. A context manager: an unfinished file is removed.

    Raises StoreFull, LimitReached, DiskFailed.
    """

    def __init__(self, root: Path, queue: MessageQueue) -> None:
        self.path = path_of(root, queue)
        self.count = 0
        self._entries = bytearray()
        self._temporary = self.path.with_name(f"{FILE_NAME}.tmp")
        with store_errors(f"{self.path} cannot be made"):
            make_durable_directory(self.path.parent, root)
            self._temporary.unlink(missing_ok=True)
            self._file = open(self._temporary, "xb", buffering=1 << 18, opener=open_for_owner)  # noqa: SIM115 - see __exit__
            self._file.write(bytes(_HEADER.size))
        self._position = _HEADER.size

    def add(self, message: ReceivedMessage, delete_at: int) -> None:
        """Write one record. Its queue offset must be greater than that of the record before."""
        fields = (message.queue_offset, self._position, delete_at, message.size)
        packed = _ENTRY.pack(*fields, 0)[: _ENTRY.at["crc"]]
        self._entries += packed + zlib.crc32(packed).to_bytes(4, "big")
        with store_errors(f"{self._temporary} cannot be written"):
            self._file.write(message.record())
        self._position += message.size
        self.count += 1
        if self.count == _FEW_RECORDS:
            reach(CrashPoint.COMPACTION_HALF_WRITTEN)

    def finish(self, compacted_to: int, made_at: int) -> None:
        """Replace the old file by the new one, durably."""
        fields = (layout.COMPACTED_MAGIC, compacted_to, self._position, self.count, made_at)
        packed = _HEADER.pack(*fields, 0)[: _HEADER.at["crc"]]
        header = packed + zlib.crc32(packed).to_bytes(4, "big")
        with store_errors(f"{self._temporary} cannot be written"):
            self._file.write(self._entries)
            self._file.write(header)
            self._file.seek(0)
            self._file.write(header)
            self._file.flush()
            reach(CrashPoint.COMPACTION_WRITTEN)
            os.fsync(self._file.fileno())
            self._file.close()
            reach(CrashPoint.COMPACTION_SYNCED)
            self._temporary.rename(self.path)
            reach(CrashPoint.COMPACTION_RENAMED)
            sync_directory(self.path.parent)
        reach(CrashPoint.COMPACTION_DONE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):  # The next pass removes it. Closing also writes the buffer.
            self._file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


class CompactedQueue:
    """The messages of one queue that lie below the start of the log, for one thread that reads in order.

    ``log_low`` returns the queue offset of the oldest message that the log has.
    """

    def __init__(self, root: Path, queue: MessageQueue, log_low: Callable[[], int]) -> None:
        self._root = root
        self._queue = queue
        self._log_low = log_low
        self._file: CompactedFile | None = None
        self._number = 0
        self._reads = 0
        self._told: set[int] = set()

    def __call__(self, queue_offset: int) -> tuple[int, ReceivedMessage | None, int]:
        """Return the first message at or above a queue offset, with its queue offset.

        If no such message lies below the start of the log, return None and the offset where the log starts. Damaged
        messages are reported once and skipped. Raises StoreCorrupt when the file cannot be read at all.
        """
        low = self._log_low()
        file = self._file_for(low) if queue_offset < low else None
        if file is None:
            self._file = None
            return max(low, queue_offset), None, low
        for number, entry, message in file.messages(self._find(file, queue_offset)):
            if entry is not None and entry.queue_offset >= low:
                break
            if message is not None:
                self._number = number + 1
                return message.queue_offset, message.as_delivered(), low
            self._tell(file, number)
        return low, None, low

    def _file_for(self, low: int) -> CompactedFile | None:
        """Return the file to read: the open one, unless a later one is needed or has been there for long.

        A replaced file keeps its blocks while it is open.
        """
        self._reads += 1
        file = self._file
        is_old = file is not None and (file.compacted_to < low or self._reads % _ENTRIES_AT_ONCE == 0)
        if file is None or (is_old and not file.is_current):
            self._file, self._number = open_compacted(self._root, self._queue), 0
        return self._file

    def _find(self, file: CompactedFile, queue_offset: int) -> int:
        number = self._number
        before = file.entry(number - 1) if 0 < number <= file.count else None
        after = file.entry(number) if number < file.count else None
        is_behind = before is not None and before.queue_offset < queue_offset
        is_there = number == file.count or (after is not None and after.queue_offset >= queue_offset)
        return number if is_behind and is_there else file.first_at(queue_offset)

    def _tell(self, file: CompactedFile, number: int) -> None:
        if number not in self._told:
            self._told.add(number)
            _log.error("%s: record %d is damaged; it was stepped over", file.path, number)


def keep_aside(file: CompactedFile) -> Path:
    """Copy a damaged file, durably, before a new one takes its place; return the path of the copy."""
    aside = file.path.with_name(f"{FILE_NAME}.damaged-{file.compacted_to}")
    with store_errors(f"{aside} cannot be written"):
        import shutil  # noqa: PLC0415 - with its compressors it takes a millisecond, and damage is rare

        with file.path.open("rb") as damaged, open(aside, "wb", opener=open_for_owner) as copy:
            shutil.copyfileobj(damaged, copy)
            copy.flush()
            os.fsync(copy.fileno())
        sync_directory(aside.parent)
    return aside


def make_durable_directory(path: Path, root: Path) -> None:
    """Make a directory inside ``root`` and the directories above it, and make their names durable."""
    with store_errors(f"{path} cannot be made"):
        missing = [each for each in (path, *path.parents) if each.is_relative_to(root) and not each.is_dir()]
        make_directory(path)
        for each in missing:
            sync_directory(each.parent)
