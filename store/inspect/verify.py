"""Verify: the numbered invariants of a store, each checked on its files as they stand.

Commit log (:mod:`rmqclient.store.log.commit_log`):

1. From the first byte of the oldest file to ``published_to`` there are valid records and, at the end of each file but
   the last, one blank record; no other bytes between them.
2. A record's ``commit_log_offset`` is the byte at which it stands.
3. From ``published_to`` on there are only zeros.

Consume queues (:mod:`rmqclient.store.log.consume_queue`):

4. ``size > 0`` for every entry from ``min_offset`` to ``max_offset``.
5. ``commit_log_offset`` grows strictly with the entry number.
6. The record it points to has this topic, queue id, queue offset and size, and its tag this hash.
7. From ``max_offset`` on a file holds zeros.

Index (:mod:`rmqclient.store.log.index_file`):

11. A slot is 0 or the number of an entry, and ``previous`` is smaller than the number of its own entry.
12. The record that an entry points to has a key of that hash.

Groups (:mod:`rmqclient.store.runtime.group_table`):

8. ``committed_offset <= advance_to``, and they are equal unless an owner died while moving it.
9. No bit of ``acknowledged`` is set for a message below ``committed_offset``.

Neither is said of a group that a seek moves just now, or whose seek died and waits for the next owner.

Timer (:mod:`rmqclient.store.waiting.timer_bits`):

13. ``done_to`` and ``clearing_to`` are multiples of 64, in this order, and not above the max offset of the timer's
    queue; no bit is set for a message at or above that.

Compacted files (:mod:`rmqclient.store.files.compacted_file`):

14. One of the two headers is whole, the entries are whole, their queue offsets grow and stay below ``compacted_to``,
    which is not above the queue's max offset.
15. Each entry points to a whole record of this queue with this queue offset.
16. No key has two records.

Runtime file (:mod:`rmqclient.store.runtime.shared_state`):

10. ``flushed_to <= published_to <= written_to`` whenever the append mutex is free and the stage is idle.

The frontiers are those of the runtime file when it is to be believed (:mod:`rmqclient.store.inspect.reading`). In any
other store the log says what must be there: it ends behind its last record, and each record has its entry; 8 to 10 and
13 then hold, because there is nothing that they are about.

Other processes may append meanwhile. What was published at the start is checked, and bytes above that are a problem
only if no append explains them, neither one that has returned nor one that is under way or was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.compacted_file import directory_of
from rmqclient.store.inspect import compacted_checks
from rmqclient.store.inspect.reading import (
    Log,
    StoreReader,
    damaged_files,
    entries_below,
    entries_of,
    of_another_size,
    open_reader,
    set_bytes,
    without_file,
)
from rmqclient.store.layout import FOUND, IDLE
from rmqclient.store.log.commit_log import describe
from rmqclient.store.log.consume_queue import ConsumeQueue, Entry
from rmqclient.store.log.index_file import IndexFile, key_hashes
from rmqclient.store.log.record import Record, reason
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.shared_state import FILE_NAME, SharedState, queue_slot_at
from rmqclient.store.waiting.timer_bits import QUEUE as TIMER_QUEUE
from rmqclient.store.waiting.timer_bits import WORD, set_bits_to

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Tags codes of its entries are delivery times (CommitLog.checkMessageAndReturnSize)."""

TIMER_TOPIC = TIMER_QUEUE.topic
"""Those of its entries are due times, or hashes where a broker has made them."""

LOWEST_HASH = -(2**31)
"""A tags code below it is no hash but an address in ``consumequeue_ext`` (ConsumeQueueExt.isExtAddr)."""

TIMER_WORDS = (layout.TIMER_HEADER.at["done_to"], layout.TIMER_HEADER.at["clearing_to"])

_ENTRY = layout.CONSUME_QUEUE_ENTRY
_INDEX_HEADER = layout.INDEX_HEADER
_NOTHING = Entry(0, 0, 0)
_OTHER_PLACE = reason(FOUND["BAD_OFFSET"])
_LOOKS = 5
"""How often one looks at what other processes may be changing, before it counts as a problem."""

Flagged = Iterator[tuple[int, str]]
"""Queue offsets of entries, each with what is wrong with it."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One place where an invariant does not hold."""

    invariant: int
    path: Path
    position: int
    """Byte in the file."""
    reason: str

    def __str__(self) -> str:
        return f"{self.invariant}  {self.path}, byte {self.position}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Found:
    """A store as the checks see it."""

    reader: StoreReader
    log: Log
    entries: dict[MessageQueue, range]
    """Queue offsets whose entries must be there."""
    slots: dict[MessageQueue, int]
    """Slots of the queue table; empty without a runtime file."""

    def queues(self) -> Iterator[tuple[MessageQueue, ConsumeQueue, range]]:
        """Yield every queue with its files and the queue offsets whose entries must be there."""
        for queue, expected in self.entries.items():
            yield queue, self.reader.consume_queues[queue], expected


def verify(root: Path) -> list[Problem]:
    """Check every invariant of the store in ``root``; return what does not hold, by invariant and place.

    Raises as :func:`rmqclient.store.inspect.reading.open_reader`.
    """
    problems: list[Problem] = []
    for _ in range(_LOOKS):
        reader = open_reader(root)
        removals = _removals(reader.state)
        found = look(reader)
        problems = sorted(problem for check in CHECKS.values() for problem in check(found))
        if not problems or removals == _removals(reader.state):
            break  # otherwise retention has removed files meanwhile
    return problems


def look(reader: StoreReader) -> Found:
    """Walk over the log, and settle which entries must be there."""
    log, state = reader.read_log(), reader.state
    if state is not None:
        slots = {_queue_of(state, slot): slot for slot in range(state.queue_count)}
        return Found(reader, log, {queue: _kept(reader, queue, _bounds(state, slots[queue])) for queue in slots}, slots)
    queues = sorted({*reader.consume_queues.on_disk(), *log.numbers})
    return Found(reader, log, {queue: _expected(reader, log, queue) for queue in queues}, {})


# --- commit log -----------------------------------------------------------------------------------


def check_log_is_whole(found: Found) -> Iterator[Problem]:
    """1: records, blank records, and nothing else."""
    reader, log = found.reader, found.log
    for bad in log.damaged:
        if bad.reason != _OTHER_PLACE:
            yield Problem(1, *reader.place(bad.start), f"{bad.reason}: {bad.end - bad.start} bytes are no record")
    for error in of_another_size(reader.log_files, 0, reader.log_files.base_of(log.end)):
        yield Problem(1, error.path, error.position, error.reason)
    for offset, size in log.blanks:
        path, position = reader.place(offset)
        if position + size != reader.log_files.file_bytes:
            yield Problem(1, path, position, f"a blank record of {size} bytes does not end where the file does")
    for end in log.full:
        if end < log.end:
            path, position = reader.place(end - 1)
            yield Problem(1, path, position + 1, "the file ends without a blank record")
    if reader.state is not None and log.end != reader.limit:
        yield Problem(1, *reader.place(reader.limit), f"published_to is inside of a record that ends at {log.end}")


def check_records_stand_where_they_say(found: Found) -> Iterator[Problem]:
    """2: records that stand elsewhere were stepped over, as one range."""
    for bad in found.log.damaged:
        if bad.reason == _OTHER_PLACE:
            yield Problem(2, *found.reader.place(bad.start), f"{bad.reason}: {bad.end - bad.start} bytes are no record")


def check_log_ends_in_zeros(found: Found) -> Iterator[Problem]:
    """3: bytes below ``written_to`` are explained while an append is under way."""
    reader, tail, files = found.reader, found.log.tail, found.reader.log_files
    if tail is not None:
        yield Problem(3, *reader.place(tail.start), f"{tail.reason}: no record follows")
        return
    for error in damaged_files(files, files.base_of(found.log.end)):
        yield Problem(3, error.path, error.position, error.reason)
    explained_to, span = 0, None
    for _ in range(_LOOKS):
        span = set_bytes(files, reader.state.published_to if reader.state is not None else found.log.end)
        explained_to = _append_end(reader.state) if reader.state is not None else found.log.end
        if span is None or span[1] < explained_to:
            return
    if span is not None:
        first, last = span
        yield Problem(3, *reader.place(max(first, explained_to)), f"not zero, up to commit log offset {last}")


# --- consume queues -------------------------------------------------------------------------------


def check_entries_are_there(found: Found) -> Iterator[Problem]:
    """4: each has a file of the right size, and is not empty."""
    for _, files, expected in found.queues():
        for error in damaged_files(files.files, 0):
            yield Problem(4, error.path, error.position, error.reason)
        for missing in without_file(files, expected):
            path = files.files.path(files.first_entry_of(missing.start) * _ENTRY.size)
            yield Problem(4, path, 0, f"{_numbers(missing)}: the file is missing")
        empty = (number for number, entry in entries_of(files, expected) if entry.size <= 0)
        yield from _problems(4, files, ((number, "empty") for number in empty))


def check_entries_grow(found: Found) -> Iterator[Problem]:
    """5: each is compared with the one before it."""
    for _, files, expected in found.queues():
        yield from _problems(5, files, not_growing(entries_of(files, expected)))


def not_growing(entries: Iterable[tuple[int, Entry]]) -> Flagged:
    """Yield those that point to no later record than the one before; empty ones are passed over."""
    before = -1
    for number, entry in entries:
        if entry.size > 0:
            if entry.commit_log_offset <= before:
                yield number, "points to no later record than the one before it"
            before = entry.commit_log_offset


def check_entries_point_to_their_records(found: Found) -> Iterator[Problem]:
    """6: each that is not empty."""
    for queue, files, expected in found.queues():
        yield from _problems(6, files, _different(found.reader, queue, entries_of(files, expected)))


def difference(queue: MessageQueue, queue_offset: int, entry: Entry, record: Record) -> str:
    """Say in what an entry differs from the record it points to; empty when it does not."""
    message = record.message
    is_hash = queue.topic != SCHEDULE_TOPIC and entry.tags_code >= LOWEST_HASH
    if queue.topic == TIMER_TOPIC and entry.tags_code <= layout.MOST_TAGS_CODE:
        is_hash = False
    differs = {
        "topic": message.topic != queue.topic,
        "queue id": message.queue_id != queue.queue_id,
        "queue offset": message.queue_offset != queue_offset,
        "size": record.size != entry.size,
        "tag": is_hash and message.tags_code != entry.tags_code,
    }
    names = [name for name in differs if differs[name]]
    return f"points to a record of another {', '.join(names)}" if names else ""


def check_queues_end_in_zeros(found: Found) -> Iterator[Problem]:
    """7: entries for the records of an append under way are explained by it."""
    for queue, files, expected in found.queues():
        left: list[int] = []
        for _ in range(_LOOKS):
            left = _left_behind(found, queue, files, expected.stop)
            if not left:
                break
        yield from _problems(7, files, ((number, "left behind") for number in left))


# --- index ----------------------------------------------------------------------------------------


def check_index_chains(found: Found) -> Iterator[Problem]:
    """11: a slot may be one ahead of the header, when somebody has just written its entry or died over it."""
    for file in _index_files(found):
        numbers = file.header.next_number
        for slot in range(file.slots):
            number = file.slot(slot)
            if number and not 0 < number <= file.header.next_number:
                position = _INDEX_HEADER.size + slot * layout.INDEX_SLOT_SIZE
                yield Problem(11, file.path, position, f"slot {slot} points to entry {number}, which is not there")
        for number in range(1, min(numbers, file.entries)):
            if not 0 <= (previous := file.entry(number).previous) < number:
                yield Problem(11, file.path, file.position(number), f"entry {number} follows entry {previous}")


def check_index_entries_point_to_their_records(found: Found) -> Iterator[Problem]:
    """12: each whose record is still in the log, and not in a damaged part of it."""
    reader = found.reader
    damaged = [range(bad.start, bad.end) for bad in found.log.damaged]
    for file in _index_files(found):
        for number in range(1, min(file.header.next_number, file.entries)):
            entry = file.entry(number)
            at = entry.commit_log_offset
            if at >= reader.begin and not any(at in part for part in damaged):
                outcome = reader.outcome(at)
                if not isinstance(outcome, Record):
                    words = f"entry {number} points to no record: {describe(outcome)}"
                    yield Problem(12, file.path, file.position(number), words)
                elif entry.key_hash not in key_hashes(outcome.message):
                    words = f"entry {number} points to a record without a key of that hash"
                    yield Problem(12, file.path, file.position(number), words)


# --- runtime file ---------------------------------------------------------------------------------


def check_committed_offsets(found: Found) -> Iterator[Problem]:
    """8: a move whose owner died stays as it is until the next acknowledgement, so a short one is no problem."""
    for state, slot in _group_slots(found):
        problem = ""
        for _ in range(_LOOKS):
            oldest = _bounds(state, slot.queue_slot).start
            problem = move_problem(slot.committed_offset, slot.load("advance_to"), oldest)
            if not problem:
                break
        if problem:
            yield _of_group(8, found, slot, "advance_to", problem)


def move_problem(committed_offset: int, advance_to: int, min_offset: int = 0) -> str:
    """Say what is wrong with a move of ``committed_offset``; empty when nothing is.

    Over messages that were removed, up to ``min_offset``, it may be a move of any length.
    """
    if committed_offset > advance_to:
        return f"advance_to {advance_to} is below committed_offset {committed_offset}"
    if advance_to - max(committed_offset, min(advance_to, min_offset)) > layout.ACK_WINDOW:
        return f"advance_to {advance_to} is more than {layout.ACK_WINDOW} above committed_offset {committed_offset}"
    return ""


def check_acknowledged_messages(found: Found) -> Iterator[Problem]:
    """9: a bit left for a finished message reads as one for a message 2,048 later, which nobody can have taken."""
    for state, slot in _group_slots(found):
        problem = ""
        for _ in range(_LOOKS):
            committed, bits = slot.committed_offset, slot.acknowledged_bits()
            high = _bounds(state, slot.queue_slot).stop
            problem = bits_problem(committed, bits, high) if slot.committed_offset == committed else ""
            if not problem:
                break
        if problem:
            yield _of_group(9, found, slot, "acknowledged", problem)


def bits_problem(committed_offset: int, bits: int, max_offset: int) -> str:
    """Say what is wrong with an acknowledgement bitmap; empty when nothing is."""
    for offset in range(max(committed_offset, max_offset), committed_offset + layout.ACK_WINDOW):
        if bits >> offset % layout.ACK_WINDOW & 1:
            finished = offset - layout.ACK_WINDOW
            return f"the bit of message {finished} is set, below committed_offset {committed_offset}"
    return ""


def check_frontiers(found: Found) -> Iterator[Problem]:
    """10: each is read after the one that must not be above it, and none falls below a place that another has seen."""
    if found.reader.state is None:
        return
    names = ("flushed_to", "published_to", "written_to")
    values = [getattr(found.reader.state, name) for name in names]
    for (lower, low), (upper, high) in pairwise(zip(names, values, strict=True)):
        if low > high:
            at = layout.RUNTIME_HEADER.at[upper]
            yield Problem(10, found.reader.root / FILE_NAME, at, f"{upper} {high} is below {lower} {low}")


def check_timer(found: Found) -> Iterator[Problem]:
    """13: the queue is looked at last, because an append may have moved it meanwhile."""
    state, slot = found.reader.state, found.slots.get(TIMER_QUEUE)
    if state is None:
        return
    done_to, clearing_to = (state.words.load(layout.TIMER_AT + at) for at in TIMER_WORDS)
    set_to = set_bits_to(state, done_to)
    high = 0 if slot is None else _bounds(state, slot).stop
    if problem := timer_problem(done_to, clearing_to, set_to, high):
        yield Problem(13, found.reader.root / FILE_NAME, layout.TIMER_AT, problem)


def timer_problem(done_to: int, clearing_to: int, set_to: int, max_offset: int) -> str:
    """Say what is wrong with the timer's bits, the last of which is set below ``set_to``; empty when nothing is."""
    if done_to % WORD or clearing_to % WORD:
        return f"done_to {done_to} or clearing_to {clearing_to} is no multiple of {WORD}"
    if not done_to <= clearing_to <= max_offset:
        return f"done_to {done_to}, clearing_to {clearing_to} and the max offset {max_offset} are not in this order"
    if set_to > max_offset:
        return f"the bit of message {set_to - 1} is set, and the next message is {max_offset}"
    return ""


# --- compacted files ------------------------------------------------------------------------------


def check_compacted_entries(found: Found) -> Iterator[Problem]:
    """14: of each file, header and entries."""
    ends = {queue: bounds.stop for queue, bounds in found.entries.items()}
    return (Problem(14, *told) for told in compacted_checks.entry_problems(found.reader.root, ends))


def check_compacted_records(found: Found) -> Iterator[Problem]:
    """15: of each file, the records of its whole entries."""
    return (Problem(15, *told) for told in compacted_checks.record_problems(found.reader.root))


def check_compacted_keys(found: Found) -> Iterator[Problem]:
    """16: of each file, over its whole records."""
    return (Problem(16, *told) for told in compacted_checks.key_problems(found.reader.root))


CHECKS: dict[int, Callable[[Found], Iterator[Problem]]] = {
    1: check_log_is_whole,
    2: check_records_stand_where_they_say,
    3: check_log_ends_in_zeros,
    4: check_entries_are_there,
    5: check_entries_grow,
    6: check_entries_point_to_their_records,
    7: check_queues_end_in_zeros,
    8: check_committed_offsets,
    9: check_acknowledged_messages,
    10: check_frontiers,
    11: check_index_chains,
    12: check_index_entries_point_to_their_records,
    13: check_timer,
    14: check_compacted_entries,
    15: check_compacted_records,
    16: check_compacted_keys,
}
"""The check of each invariant; every problem it yields has that number."""


# --- what the checks share ------------------------------------------------------------------------


def _expected(reader: StoreReader, log: Log, queue: MessageQueue) -> range:
    """Return what a queue must have without a runtime file: entries for all records, and what stands between them."""
    on_disk = entries_below(reader.consume_queues[queue], reader.begin, log.end)
    in_log = log.numbers.get(queue, on_disk)
    return range(min(in_log.start, on_disk.start), max(in_log.stop, on_disk.stop)) if on_disk else in_log


def _different(reader: StoreReader, queue: MessageQueue, entries: Iterable[tuple[int, Entry]]) -> Flagged:
    for number, entry in entries:
        if entry.size > 0:
            outcome = reader.outcome(entry.commit_log_offset)
            if not isinstance(outcome, Record):
                yield number, f"points to no record: {describe(outcome)}"
            elif words := difference(queue, number, entry, outcome):
                yield number, words


def _left_behind(found: Found, queue: MessageQueue, files: ConsumeQueue, max_offset: int) -> list[int]:
    """Return the entries at and above the queue's max offset that are not zero, and that no append explains."""
    state = found.reader.state
    if state is not None:
        max_offset = _bounds(state, found.slots[queue]).stop
    span = set_bytes(files.files, max_offset * _ENTRY.size)
    if span is None:
        return []
    written = range(span[0] // _ENTRY.size, span[1] // _ENTRY.size + 1)
    left = [(number, entry) for number, entry in entries_of(files, written) if entry != _NOTHING]
    if state is None:
        return [number for number, _ in left]
    under_way = range(state.append_from, state.written_to) if state.append_stage != IDLE else range(0)
    # Last, because an append that has ended meanwhile has moved it.
    max_offset = _bounds(state, found.slots[queue]).stop
    return [number for number, entry in left if number >= max_offset and entry.commit_log_offset not in under_way]


def _kept(reader: StoreReader, queue: MessageQueue, bounds: range) -> range:
    """Leave out entries whose records retention has removed; it raises the minimum of the log before the queue's.

    That of a queue of a compact topic may lie in its compacted file.
    """
    entries = reader.consume_queues[queue]
    if directory_of(reader.root, queue.topic).is_dir():
        return range(entries.oldest(bounds.start, bounds.stop, reader.begin), bounds.stop)
    for _, entry in entries_of(entries, bounds[:1]):
        if 0 <= entry.commit_log_offset < reader.begin:
            return range(entries.oldest(bounds.start, bounds.stop, reader.begin), bounds.stop)
    return bounds


def _removals(state: SharedState | None) -> int:
    return state.words.load32(layout.RUNTIME_HEADER.at["removed_word"]) if state is not None else 0


def _index_files(found: Found) -> Iterator[IndexFile]:
    """Map each index file; one that cannot be mapped, or was removed meanwhile, is made again when it is needed."""
    files = found.reader.index_files
    for path in files.paths():
        with suppress(FileNotFoundError, StoreCorrupt):
            yield files.open(path)


def _append_end(state: SharedState) -> int:
    """Return the exclusive end of what appends explain: of the published records, or of an append under way."""
    under_way = state.written_to if state.append_stage != IDLE else 0
    # Last, because an append that has ended meanwhile has moved it.
    return max(under_way, state.published_to)


def _problems(invariant: int, queue: ConsumeQueue, flagged: Iterable[tuple[int, str]]) -> Iterator[Problem]:
    """Make one problem of entries that follow each other and have the same thing wrong."""
    runs = groupby(enumerate(flagged), key=lambda item: (item[1][1], item[1][0] - item[0]))
    for (words, _), run in runs:
        numbers = [number for _, (number, _) in run]
        first = queue.first_entry_of(numbers[0])
        path, position = queue.files.path(first * _ENTRY.size), (numbers[0] - first) * _ENTRY.size
        yield Problem(invariant, path, position, f"{_numbers(range(numbers[0], numbers[-1] + 1))}: {words}")


def _numbers(numbers: range) -> str:
    return f"entry {numbers[0]}" if len(numbers) == 1 else f"entries {numbers[0]} to {numbers[-1]}"


def _of_group(invariant: int, found: Found, slot: GroupQueueSlot, name: str, problem: str) -> Problem:
    position = slot.at + layout.GROUP_QUEUE_SLOT.at[name]
    return Problem(invariant, found.reader.root / FILE_NAME, position, f"group {slot.group}: {problem}")


def _group_slots(found: Found) -> Iterator[tuple[SharedState, GroupQueueSlot]]:
    state = found.reader.state
    if state is not None:
        for slot in GroupTable(state, lock_timeout_ms=0):
            if slot.queue_slot < state.queue_count and slot.load("seek_to") == 0:
                yield state, slot


def _queue_of(state: SharedState, slot: int) -> MessageQueue:
    at, fields = queue_slot_at(slot), layout.QUEUE_SLOT.at
    topic = state.text(at + fields["topic"], state.words.load32(at + fields["topic_size"]))
    return MessageQueue(topic, state.words.load32(at + fields["queue_id"]))


def _bounds(state: SharedState, slot: int) -> range:
    """Return the queue offsets from the oldest message to the next one."""
    at, fields = queue_slot_at(slot), layout.QUEUE_SLOT.at
    return range(state.words.load(at + fields["min_offset"]), state.words.load(at + fields["max_offset"]))
