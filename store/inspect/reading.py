"""Reading: a store as it stands, without locks and without changing a byte.

The store may be closed, open in other processes, or written by a RocketMQ broker. Files are opened read-only and not
mapped (store/files/cold_reads.py): a page that the disk cannot read is then reported as damage instead of killing the
process. Reading creates nothing: no lock file, no missing directory. File sizes come from ``store.json``, in a broker's
store from its files. A file of another size is read up to its end, as recovery does.

How far the log goes:

- To ``published_to``, if the runtime file is of this boot and only this library has written to the store since. Records
  that other processes append meanwhile are not read.
- Otherwise to the first zeros above the durable mark of the checkpoint. If a later file begins with a record, records
  or a blank record are missing at those zeros, and the log goes on.

Bytes that are not a record are skipped, up to the next record. Without a next record they are the tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_queue import FileQueue, MappingCache, written_parts
from rmqclient.store.kernel._kernel import Matcher
from rmqclient.store.layout import FOUND
from rmqclient.store.log import commit_log
from rmqclient.store.log.commit_log import LogReader, describe
from rmqclient.store.log.consume_queue import ConsumeQueue, ConsumeQueues, Entry
from rmqclient.store.log.dispatch import has_entry
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.log.record import Blank, Corrupt, End, Outcome, Record
from rmqclient.store.log.shape import odd_files_of
from rmqclient.store.log.sizes import settings_of
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.recovery.log_scan import Quarantined
from rmqclient.store.recovery.recovery import believable
from rmqclient.store.runtime import shared_state
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.store_settings import StoreSettings

_ENTRY = layout.CONSUME_QUEUE_ENTRY
_SHORT = FOUND["SHORT"]
_PRE_BLANK = Entry(*layout.PRE_BLANK_ENTRY)
_AT_ONCE = 1_024
"""Entries that one call reads."""
_ENTRIES_AHEAD = 512
"""Entries of a queue that are read at once beside the log, for every queue of the store."""
_FIRST_READ = 1 << 20
"""Bytes of the log that are read at once; more for a longer record."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Bytes behind the last record that are neither records nor zeros: the next opening cuts them off."""

    start: int
    end: int
    reason: str


Step = tuple[int, Record | Blank | Quarantined | Tail]


@dataclass(slots=True)
class Log:
    """What one walk over the commit log found, without the records."""

    end: int
    """The end of the last record, blank record or damaged range."""
    damaged: list[Quarantined] = field(default_factory=list)
    tail: Tail | None = None
    blanks: list[tuple[int, int]] = field(default_factory=list)
    """Offset and size of every blank record."""
    full: list[int] = field(default_factory=list)
    """Commit log offsets at which a record and its file both end."""
    numbers: dict[MessageQueue, range] = field(default_factory=dict)
    """For each queue, from the lowest to the highest queue offset of a record that has an entry."""
    matched: dict[MessageQueue, range] = field(default_factory=dict)
    """For each queue, queue offsets whose records follow each other in the log, each with its right entry."""

    def note(self, offset: int, step: Record | Blank | Quarantined | Tail | None, end: int, file_bytes: int) -> None:
        """Note what stands from ``offset`` to ``end`` in a log with files of ``file_bytes``."""
        match step:
            case Record(message=message):
                self.note_records(end, file_bytes)
                if has_entry(message):
                    number = message.queue_offset
                    self.count(MessageQueue(message.topic, message.queue_id), range(number, number + 1))
            case Blank():
                self.blanks.append((offset, step.size))
                self.end = end
            case Quarantined():
                self.damaged.append(step)
                self.end = end
            case Tail():
                self.tail = step

    def note_records(self, end: int, file_bytes: int) -> None:
        """Note whole records up to ``end``."""
        self.end = end
        if end % file_bytes == 0:
            self.full.append(end)

    def count(self, queue: MessageQueue, numbers: range) -> None:
        """Note that records have these queue offsets."""
        seen = self.numbers.get(queue, numbers)
        self.numbers[queue] = range(min(seen.start, numbers.start), max(seen.stop, numbers.stop))


class StoreReader:
    """The files of one store, and how far they were filled when the reader was made. Use :func:`open_reader`.

    ``state`` is None if the runtime file cannot be trusted. It is mapped read-only: do not write its words or take its
    mutexes. The reader reads the log from ``begin`` to ``limit``, two commit log offsets; below ``trusted_to``
    everything must be undamaged.
    """

    def __init__(self, root: Path, settings: StoreSettings, state: SharedState | None) -> None:
        self._mappings = mappings = MappingCache(1, writable=False, any_size=True)
        queue_bytes = settings.consume_queue_file_entries * _ENTRY.size
        self.root = root
        self.state = state
        self.log_files = FileQueue(
            root / commit_log.DIRECTORY, settings.commit_log_file_bytes, scratch=root, mappings=mappings
        )
        self.consume_queues = ConsumeQueues(root, queue_bytes, mappings)
        self.index_files = IndexFiles(root, settings.index_slots, settings.index_entries, mappings)
        self._records = LogReader(self.log_files)
        self._buffer = memoryview(bytearray(_FIRST_READ))
        self._bases = self.log_files.bases()
        if state is not None:
            self.begin = state.min_offset
            self.trusted_to = self.limit = state.published_to
        else:
            self.begin = self._bases[0] if self._bases else 0
            self.trusted_to = _durable_mark(root, self.begin)
            self.limit = max(self.trusted_to, self._bases[-1] + self.log_files.file_bytes if self._bases else 0)

    def lows(self) -> dict[MessageQueue, int]:
        """Return the queue offset below which each queue has no message any more; empty if the state is unknown."""
        if self.state is None:
            return {}
        found, fields, words = {}, layout.QUEUE_SLOT.at, self.state.words
        for at in map(shared_state.queue_slot_at, range(self.state.queue_count)):
            topic = self.state.text(at + fields["topic"], words.load32(at + fields["topic_size"]))
            queue = MessageQueue(topic, words.load32(at + fields["queue_id"]))
            found[queue] = words.load(at + fields["min_offset"])
        return found

    def steps(self) -> Iterator[Step]:
        """Yield each step of the log from its begin to its end, with its commit log offset."""
        offset: int | None = self.begin
        while offset is not None and offset < self.limit:
            offset = max(offset, self._begin_now())
            step = self._step(offset)
            if step is not None:
                yield offset, step
            offset = self._behind(offset, step)

    def read_log(self) -> Log:
        """Walk over the log once. The kernel walks over whole records, and compares each with its entry."""
        log = Log(self.begin)
        matcher = Matcher(self._entries_from)
        offset: int | None = self.begin
        while offset is not None and offset < self.limit:
            offset = max(offset, self._begin_now())
            walked = self._walk(offset, matcher)
            if walked > offset:
                log.note_records(walked, self.log_files.file_bytes)
                offset = walked
            else:
                step = self._step(offset)
                behind = self._behind(offset, step)
                log.note(offset, step, log.end if behind is None else behind, self.log_files.file_bytes)
                offset = behind
        for queue, numbers in matcher.numbers.items():
            log.count(queue, range(*numbers))
        log.matched = {queue: range(*numbers) for queue, numbers in matcher.matched.items()}
        return log

    def _step(self, offset: int) -> Record | Blank | Quarantined | Tail | None:
        """Return what is at an offset of the log; None at its end."""
        outcome = self.outcome(offset)
        return outcome if isinstance(outcome, Record | Blank) else self._no_record(offset, outcome)

    def _behind(self, offset: int, step: Record | Blank | Quarantined | Tail | None) -> int | None:
        """Return where the log goes on behind a step; None when it does not."""
        match step:
            case Record():
                return offset + step.size
            case Blank():
                return self.log_files.base_of(offset) + self.log_files.file_bytes
            case Quarantined():
                return step.end
            case _:
                return None

    def _walk(self, start: int, matcher: Matcher) -> int:
        """Walk over whole records of one file; return where they end, or where one stands that cannot be read."""
        base, offset = self.log_files.base_of(start), start
        stop = min(base + self.log_files.file_bytes, self.limit)
        while offset < stop:
            content = self.part_at(offset)
            reached, found = matcher.walk(content, offset, stop)
            if reached == offset:
                if found != _SHORT or len(content) < len(self._buffer):
                    break
                self._buffer = memoryview(bytearray(2 * len(self._buffer)))
            offset = reached
        return offset

    def part_at(self, offset: int) -> memoryview:
        """Return bytes of the log from an offset on, of one file, until the next call; none if they cannot be read."""
        base = self.log_files.base_of(offset)
        try:
            return self._buffer[: self.log_files.read_into(base, offset - base, self._buffer)]
        except (FileNotFoundError, StoreCorrupt):
            return self._buffer[:0]

    def _entries_from(self, queue: MessageQueue, number: int) -> bytes:
        entries = self.consume_queues[queue]
        stop = min(number + _ENTRIES_AHEAD, entries.first_entry_of(number) + entries.entries_per_file)
        try:
            return entries.entry_bytes(number, stop)
        except (FileNotFoundError, StoreCorrupt):
            return b""

    def outcome(self, offset: int) -> Outcome:
        """Return what is at an offset of the log; any number may be given."""
        try:
            return self._records.outcome(offset)
        except FileNotFoundError:
            return Corrupt("the file is missing")
        except StoreCorrupt as error:
            return Corrupt(error.reason)

    def place(self, offset: int) -> tuple[Path, int]:
        """Return the file that holds an offset of the log, and the position in it."""
        base = self.log_files.base_of(offset)
        return self.log_files.path(base), offset - base

    def _begin_now(self) -> int:
        """Return where the log begins now. If retention moved it, let go of the removed files, to free their blocks."""
        begin = self.state.min_offset if self.state is not None else self.begin
        if begin != self.begin:
            self.begin = begin
            self._mappings.release_removed()
        return begin

    def _no_record(self, offset: int, outcome: Outcome) -> Quarantined | Tail | None:
        """Return the damage or the tail at an offset without a record or blank record; None at the end of the log."""
        resumed = self._next_record(offset, outcome)
        if resumed is not None:
            return Quarantined(offset, resumed, describe(outcome))
        if offset < self.trusted_to:
            return Quarantined(offset, self.trusted_to, describe(outcome))
        return None if isinstance(outcome, End) else Tail(offset, self.limit, describe(outcome))

    def _next_record(self, offset: int, outcome: Outcome) -> int | None:
        if isinstance(outcome, End) and offset >= self.trusted_to:
            later = (self.outcome(base) for base in self._bases if base > offset)
            if not any(isinstance(head, Record) for head in later):
                return None
        return commit_log.next_record(self.log_files, offset + 1, self.limit)


def open_reader(root: Path) -> StoreReader:
    """Look at the store in ``root`` as it stands now.

    Raises StoreUnusable if there is none, ConfigMismatch for one of another version, OSError if it cannot be read.
    """
    return StoreReader(root, settings_of(root), _shared_state(root))


# --- files that may be missing or damaged ---------------------------------------------------------


def set_bytes(files: FileQueue, start: int) -> tuple[int, int] | None:
    """Return the first and the last nonzero byte at or above ``start``; None if all are zero."""
    first = last = -1
    for base in files.bases():
        if base + files.file_bytes <= start:
            continue
        with suppress(FileNotFoundError, StoreCorrupt):  # `damaged_files` reports it
            for at, part in written_parts(files, base, max(0, start - base), files.file_bytes):
                last = base + at + len(part.rstrip(b"\0")) - 1
                first = first if first >= 0 else base + at + len(part) - len(part.lstrip(b"\0"))
    return (first, last) if last >= 0 else None


def of_another_size(files: FileQueue, start: int, end: int | None = None) -> Iterator[StoreCorrupt]:
    """Yield an error for each file that begins from ``start`` to ``end`` and is not of the right size."""
    for base, odd in odd_files_of(files):
        if base >= start and (end is None or base < end):
            yield StoreCorrupt(odd.path, odd.size, f"the file has {odd.size} bytes instead of {odd.right_size}")


def damaged_files(files: FileQueue, start: int) -> Iterator[StoreCorrupt]:
    """Yield an error for each file at or above ``start`` that is not of the right size or cannot be read."""
    yield from of_another_size(files, start)
    for base in files.bases():
        if base >= start:
            try:
                for _ in written_parts(files, base, 0, files.file_bytes):
                    pass
            except FileNotFoundError:
                continue  # removed meanwhile
            except StoreCorrupt as error:
                yield error


def entries_of(queue: ConsumeQueue, wanted: range) -> Iterator[tuple[int, Entry]]:
    """Yield (queue offset, entry) for each entry of ``wanted`` whose file can be read."""
    for _, part in _by_file(queue, wanted):
        for start in range(part.start, part.stop, _AT_ONCE):
            with suppress(FileNotFoundError, StoreCorrupt):
                yield from enumerate(queue.entries(start, min(start + _AT_ONCE, part.stop)), start)


def without_file(queue: ConsumeQueue, wanted: range) -> Iterator[range]:
    """Yield the ranges of ``wanted`` whose file is missing."""
    start = wanted.start
    for _, part in _by_file(queue, wanted):
        if part.start > start:
            yield range(start, part.start)
        start = part.stop
    if wanted.stop > start:
        yield range(start, wanted.stop)


def entries_below(queue: ConsumeQueue, begin: int, end: int) -> range:
    """Return the queue offsets from the first to the last entry for records between two commit log offsets.

    Uses the files only; there may be holes between the entries.
    """
    stop = _stop_below(queue, end)
    for number, entry in entries_of(queue, range(stop)):
        is_older = entry.size > 0 and entry.commit_log_offset < begin
        if entry != _PRE_BLANK and not is_older:
            return range(number, stop)
    return range(stop, stop)


def _stop_below(queue: ConsumeQueue, end: int) -> int:
    for base in reversed(queue.files.bases()):
        with suppress(FileNotFoundError, StoreCorrupt):
            *_, (at, part) = [(0, b""), *written_parts(queue.files, base, 0, queue.files.file_bytes)]
            first, written = base // _ENTRY.size, at + len(part.rstrip(b"\0"))
            for number in reversed(range(first, first - -written // _ENTRY.size)):
                entry = queue.entry(number)
                if entry.size > 0 and entry.commit_log_offset < end:
                    return number + 1
    return 0


def _by_file(queue: ConsumeQueue, wanted: range) -> Iterator[tuple[int, range]]:
    """Yield (first entry, part of ``wanted``) for each file that exists."""
    for base in queue.files.bases():
        first = base // _ENTRY.size
        part = range(max(wanted.start, first), min(wanted.stop, first + queue.entries_per_file))
        if part:
            yield first, part


# --- how a reader is made -------------------------------------------------------------------------


def _shared_state(root: Path) -> SharedState | None:
    state = shared_state.leftover(root, writable=False)
    try:
        return state if state is not None and believable(state, root) else None
    except FileNotFoundError:  # without a lock file the last user of the store is unknown
        return None


def _durable_mark(root: Path, begin: int) -> int:
    _, low_water = checkpoint.read(root)
    return max(low_water.flushed_to, begin) if low_water is not None else begin
