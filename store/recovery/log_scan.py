"""Log scan: how far the records of the log go, what is damaged among them, and whether their entries are right.

The scan is one pass over the bytes, by cold reads into one buffer. It changes nothing.

Nearly always all consume queue entries are right, because an append writes them before it publishes its record. So the
scan compares each entry while its record is in the processor's cache. From the first entry on that is missing or wrong,
store/log/dispatch.py reads the records once more and writes the entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmqclient.store import layout
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.kernel._kernel import Dispatcher
from rmqclient.store.layout import FOUND
from rmqclient.store.log import commit_log
from rmqclient.store.log.commit_log import describe
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.log.dispatch import checker, ends_of
from rmqclient.store.log.record import Blank, End, Record, decode
from rmqclient.store.log.shape import begins_with_record, gaps, is_empty
from rmqclient.store.message_queue import MessageQueue

MISSING = "the file is missing"
NOTHING = describe(End())

_FIRST_READ = 64 << 10
_MOST_READ = 1 << 20
"""Bytes that are read at once: more and more while there are records, and a longer record as a whole. A read must
still be in the cache when its bytes are looked at."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Bytes of the log that hold no valid record, and are kept."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogScan:
    """The result of a scan."""

    end: int
    """End of the last valid record or blank record."""
    tail: str
    """What stands at the end, in words."""
    damaged: tuple[Quarantined, ...]
    """Bytes that were stepped over."""
    entries_right_to: int
    """From the begin to here the consume queue entries of all records are right."""
    queue_ends: Mapping[MessageQueue, int]
    """Queue offset after the last of these records, by queue."""


def scan(files: FileQueue, start: int, trusted_to: int | None, queues: ConsumeQueues | None) -> LogScan:
    """Walk over the log from ``start``; without ``queues`` no entry counts as right.

    Below ``trusted_to`` everything must be whole; None without such a mark. Raises StoreCorrupt for a file of another
    size or a byte that cannot be read.
    """
    check = checker(queues)
    end, tail, damaged = _walk(files, start, trusted_to, check)
    return LogScan(end, tail, tuple(damaged), max(start, check.right_to), ends_of(check))


def _walk(
    files: FileQueue, start: int, trusted_to: int | None, check: Dispatcher
) -> tuple[int, str, list[Quarantined]]:
    """Walk from ``start``; return the end of the last good step, what stands there, and what was stepped over."""
    damaged: list[Quarantined] = []
    bases = files.bases()
    last_end = bases[-1] + files.file_bytes if bases else 0
    sure_to = trusted_to if trusted_to is not None else last_end
    end = start
    while True:
        end, reason = _walk_on(files, end, sure_to, check)
        is_missing = files.base_of(end) not in bases
        goes_on = is_missing and any(begins_with_record(files, base) for base in bases if base > end)
        if end >= sure_to and not goes_on:  # a lost file is not a torn tail
            return end, _tail(files, end, reason), damaged
        stop = last_end if goes_on else sure_to
        if trusted_to is None and reason == NOTHING and _is_zero(files, end, stop):  # no need to search it
            return end, NOTHING, damaged
        resumed = commit_log.next_record(files, end + 1, stop)
        if resumed is None:
            if trusted_to is None:
                return end, _tail(files, end, reason), damaged
            resumed = _behind_damage(files, trusted_to)
        damaged.append(Quarantined(end, resumed, MISSING if is_missing else reason))
        end = resumed


def _behind_damage(files: FileQueue, trusted_to: int) -> int:
    """Return where the log goes on if bytes that must be whole up to ``trusted_to`` are not.

    It goes on in the next file, unless this file is there and free. A lost file is not made again, because a broker
    would take its zeros for the end of the log. Bytes behind ``trusted_to`` may not be ours.
    """
    base = files.base_of(trusted_to)
    if base == trusted_to:
        return base
    try:
        rest = commit_log.LogReader(files).outcome(trusted_to)
    except FileNotFoundError:
        return base + files.file_bytes
    is_free = isinstance(rest, Record | Blank) or is_empty(files, base, trusted_to - base)
    return trusted_to if is_free else base + files.file_bytes


def _tail(files: FileQueue, end: int, reason: str) -> str:
    """Return what stands at the end of the log: ``reason``, or that the rest of its file is not empty."""
    base = files.base_of(end)
    try:
        is_free = reason != NOTHING or end == base or is_empty(files, base, end - base)
    except FileNotFoundError:
        is_free = True
    return reason if is_free else f"{NOTHING}, but behind it"


def _is_zero(files: FileQueue, start: int, stop: int) -> bool:
    """Tell whether the rest of the file at ``start`` reaches up to ``stop``, can be read, and holds only zeros."""
    base = files.base_of(start)
    try:
        return stop <= base + files.file_bytes and is_empty(files, base, start - base)
    except (FileNotFoundError, StoreCorrupt):
        return False


def damaged_below(files: FileQueue, scan_from: int) -> list[Quarantined]:
    """Return damage below ``scan_from`` that shows without a scan: lost files, and files without a record first."""
    below = files.base_of(scan_from)
    bases = [base for base in files.bases() if base < below]
    damaged = [Quarantined(start, end, MISSING) for start, end in gaps([*bases, below], files.file_bytes)]
    for base in bases:
        if not begins_with_record(files, base):
            end = base + files.file_bytes
            resumed = commit_log.next_record(files, base + 1, end) or end
            damaged.append(Quarantined(base, resumed, describe(commit_log.LogReader(files).outcome(base))))
    return sorted(damaged, key=lambda bad: bad.start)


def _walk_on(files: FileQueue, start: int, sure_to: int, check: Dispatcher) -> tuple[int, str]:
    """Walk over valid records; return their end, and what stands there. Raises StoreCorrupt as a cold read.

    A blank record says how many bytes are left. RocketMQ does not check that number. Above ``sure_to`` a wrong number
    means that the blank record was torn, and it is cut with the tail.
    """
    offset, buffer = start, memoryview(bytearray(_FIRST_READ))
    while True:
        base = files.base_of(offset)
        following = base + files.file_bytes
        try:
            content = buffer[: files.read_into(base, offset - base, buffer)]
        except FileNotFoundError:
            return offset, NOTHING
        begin, end = offset, offset + len(content)
        offset, found = check.check(content, begin, begin, end)
        is_cut = found == FOUND["SHORT"] and end < following
        if found == FOUND["BLANK"] and (offset < sure_to or _left(content, offset - begin) == following - offset):
            offset = following
        elif offset < end and not is_cut:
            return offset, describe(decode(content, offset - begin, offset))
        if len(buffer) < _MOST_READ or offset == begin:
            buffer = memoryview(bytearray(2 * len(buffer)))


def _left(content: memoryview, position: int) -> int:
    size: int = layout.BLANK_RECORD.read(content, position)["total_size"]
    return size
