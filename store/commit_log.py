"""Commit log: the one log of all messages, as ordered files of records.

``commitlog/<first byte, 20 digits>``, every file of the same size, filled from its begin. A record that does not fit
with 8 bytes to spare goes to the next file; a blank record ends this one (CommitLog.DefaultAppendMessageCallback).

Invariants, checked by ``python -m store verify``:

1. From the first byte of the oldest file to ``published_to`` there are valid records and, at the end of each file but
   the last, one blank record; no other bytes between them.
2. A record's ``commit_log_offset`` is the byte at which it stands.
3. From ``published_to`` on there are only zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

from store.errors import StoreCorrupt
from store.file_queue import FileQueue
from store.mapped_file import zero_view
from store.record import Blank, Corrupt, End, Outcome, ReceivedMessage, Record, Torn, decode

DIRECTORY = "commitlog"

Step = tuple[int, Outcome]


def walk(files: FileQueue, start: int, end: int | None = None) -> Iterator[Step]:
    """Yield (commit_log_offset, outcome) for what stands from ``start`` on, up to ``end`` or the last file.

    Goes over records and blank records. Anything else is yielded as the last step: the caller decides what it means.
    A missing file ends the walk with ``End``.
    """
    offset = start
    while end is None or offset < end:
        base = files.base_of(offset)
        try:
            mapping = files.mapping(base)
        except FileNotFoundError:
            yield offset, End()
            return
        outcome = decode(mapping, offset - base, offset)
        yield offset, outcome
        if isinstance(outcome, Record):
            offset += outcome.size
        elif isinstance(outcome, Blank):
            offset = base + files.file_bytes
        else:
            return


def next_record(files: FileQueue, start: int, end: int) -> int | None:
    """Find the first byte at or above ``start`` and below ``end`` where a valid record stands, after a damaged one.

    Every byte is tried at which the magic code of a record could belong to one; a record also says where it stands,
    so that a copy of a record inside a body is not taken for one.
    """
    magic = (0xDAA320A7).to_bytes(4, "big")
    base = files.base_of(start)
    while base < end:
        try:
            content = bytes(memoryview(files.mapping(base)))
        except (FileNotFoundError, StoreCorrupt):
            base += files.file_bytes
            continue
        at = content.find(magic, max(0, start - base))
        while at != -1 and base + at - 4 < end:
            offset = base + at - 4
            if at >= 4 and offset >= start and isinstance(decode(content, at - 4, offset), Record):
                return offset
            at = content.find(magic, at + 1)
        base += files.file_bytes
    return None


def read(files: FileQueue, commit_log_offset: int) -> ReceivedMessage:
    """Return the record at ``commit_log_offset``. Raises StoreCorrupt with path and position."""
    base = files.base_of(commit_log_offset)
    position = commit_log_offset - base
    try:
        outcome = decode(files.mapping(base), position, commit_log_offset)
    except FileNotFoundError:
        raise StoreCorrupt(files.path(base), position, "the file is missing") from None
    if isinstance(outcome, Record):
        return outcome.message
    raise StoreCorrupt(files.path(base), position, describe(outcome))


def describe(outcome: Outcome) -> str:
    """Say in words what stands somewhere."""
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
    """Overwrite ``[start, end)`` with zeros where it is not zero already; return how many bytes were not."""
    changed = 0
    while start < end:
        base = files.base_of(start)
        stop = min(end, base + files.file_bytes)
        try:
            view = memoryview(files.mapping(base))[start - base : stop - base]
        except FileNotFoundError:
            return changed
        changed += zero_view(view)
        start = stop
    return changed
