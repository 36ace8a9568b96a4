"""Verify: the numbered invariants of a store, each checked on its files as they stand.

The checks of the log and the compacted files are here, those of consume queues in
:mod:`rmqclient.store.inspect.queue_checks`, those of the index in :mod:`rmqclient.store.inspect.index_checks`, those of
the runtime file in :mod:`rmqclient.store.inspect.runtime_checks`, those of the history and the marks in
:mod:`rmqclient.store.inspect.history_checks`.

The kernel goes over what is right: records with their entries in one walk over the log, and index files. Only what it
cannot say that of is looked at here, one by one, and gets its words.

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
17. ``committed_offset`` and the bits set are together ``counted_from`` and the words of ``layout.COUNTED``, unless an
    owner died between marking messages and counting them: each message that a group has finished is counted once.

None of them is checked for a group that is being moved by a seek, or whose seek died and waits for the next owner.

Timer (:mod:`rmqclient.store.waiting.timer_bits`):

13. ``done_to`` and ``clearing_to`` are multiples of 64, in this order, and not above the max offset of the timer's
    queue; no bit is set for a message at or above that.

Compacted files (:mod:`rmqclient.store.files.compacted_file`):

14. One of the two headers is whole, the entries are whole, their queue offsets grow and stay below ``compacted_to``,
    which is not above the queue's max offset.
15. Each entry points to a whole record of this queue with this queue offset.
16. No key has two records.

History (:mod:`rmqclient.store.history.rings`) and marks (:mod:`rmqclient.store.marks`):

18. One of the two heads is whole, and so is each record that it counts, if its bytes were ever written.
19. Each line is a mark, or the begin of one whose process was killed.

Runtime file (:mod:`rmqclient.store.runtime.shared_state`):

10. ``flushed_to <= published_to <= written_to`` whenever the append mutex is free and the stage is idle.

The frontiers are those of the runtime file if it can be trusted (:mod:`rmqclient.store.inspect.reading`). In any other
store the log decides: it ends after its last record, and each record must have its entry. 8 to 10, 13 and 17
then have nothing to check.

Other processes may append meanwhile. Everything published at the start is checked. Bytes above that are a problem only
if no append accounts for them, whether it has returned, is under way or was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.inspect import compacted_checks, history_checks, index_checks, queue_checks, runtime_checks
from rmqclient.store.inspect.found import LOOKS, Found, Problem, look
from rmqclient.store.inspect.reading import damaged_files, of_another_size, open_reader, set_bytes
from rmqclient.store.layout import FOUND, IDLE
from rmqclient.store.log.record import reason
from rmqclient.store.runtime.shared_state import SharedState

_ENTRY = layout.CONSUME_QUEUE_ENTRY
_OTHER_PLACE = reason(FOUND["BAD_OFFSET"])


def verify(root: Path) -> list[Problem]:
    """Check every invariant of the store in ``root``; return the problems, sorted by invariant and place.

    Raises as :func:`rmqclient.store.inspect.reading.open_reader`.
    """
    problems: list[Problem] = []
    for _ in range(LOOKS):
        reader = open_reader(root)
        removals = _removals(reader.state)
        found = look(reader)
        problems = sorted(problem for check in CHECKS.values() for problem in check(found))
        if not problems or removals == _removals(reader.state):
            break  # otherwise retention removed files meanwhile: look again
    return problems


# --- commit log -----------------------------------------------------------------------------------


def check_log_is_whole(found: Found) -> Iterator[Problem]:
    """1: records, blank records, and nothing else."""
    reader, log = found.reader, found.log
    for bad in log.damaged:
        if bad.reason != _OTHER_PLACE:
            yield Problem(1, *reader.place(bad.start), f"{bad.reason}: {bad.end - bad.start} bytes are not a record")
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
        yield Problem(1, *reader.place(reader.limit), f"published_to is inside a record that ends at {log.end}")


def check_records_stand_where_they_say(found: Found) -> Iterator[Problem]:
    """2: misplaced records were skipped as one damaged range."""
    for bad in found.log.damaged:
        if bad.reason == _OTHER_PLACE:
            yield Problem(
                2, *found.reader.place(bad.start), f"{bad.reason}: {bad.end - bad.start} bytes are not a record"
            )


def check_log_ends_in_zeros(found: Found) -> Iterator[Problem]:
    """3: an append under way accounts for bytes below ``written_to``."""
    reader, tail, files = found.reader, found.log.tail, found.reader.log_files
    if tail is not None:
        yield Problem(3, *reader.place(tail.start), f"{tail.reason}: no record follows")
        return
    for error in damaged_files(files, files.base_of(found.log.end)):
        yield Problem(3, error.path, error.position, error.reason)
    explained_to, span = 0, None
    for _ in range(LOOKS):
        span = set_bytes(files, reader.state.published_to if reader.state is not None else found.log.end)
        explained_to = _append_end(reader.state) if reader.state is not None else found.log.end
        if span is None or span[1] < explained_to:
            return
    if span is not None:
        first, last = span
        yield Problem(3, *reader.place(max(first, explained_to)), f"nonzero bytes up to commit log offset {last}")


# --- compacted files ------------------------------------------------------------------------------


def check_compacted_entries(found: Found) -> Iterator[Problem]:
    """14: header and entries of each file."""
    ends = {queue: bounds.stop for queue, bounds in found.entries.items()}
    return (Problem(14, *each) for each in compacted_checks.entry_problems(found.reader.root, ends))


def check_compacted_records(found: Found) -> Iterator[Problem]:
    """15: the records of the undamaged entries of each file."""
    return (Problem(15, *each) for each in compacted_checks.record_problems(found.reader.root))


def check_compacted_keys(found: Found) -> Iterator[Problem]:
    """16: the keys of the undamaged records of each file."""
    return (Problem(16, *each) for each in compacted_checks.key_problems(found.reader.root))


CHECKS: dict[int, Callable[[Found], Iterator[Problem]]] = {
    1: check_log_is_whole,
    2: check_records_stand_where_they_say,
    3: check_log_ends_in_zeros,
    4: queue_checks.check_entries_are_there,
    5: queue_checks.check_entries_grow,
    6: queue_checks.check_entries_point_to_their_records,
    7: queue_checks.check_queues_end_in_zeros,
    8: runtime_checks.check_committed_offsets,
    9: runtime_checks.check_acknowledged_messages,
    10: runtime_checks.check_frontiers,
    11: index_checks.check_chains,
    12: index_checks.check_entries_point_to_their_records,
    13: runtime_checks.check_timer,
    14: check_compacted_entries,
    15: check_compacted_records,
    16: check_compacted_keys,
    17: runtime_checks.check_counters,
    18: history_checks.check_history,
    19: history_checks.check_marks,
}
"""The check of each invariant; every problem it yields has that number."""


# --- what the checks share ------------------------------------------------------------------------


def _removals(state: SharedState | None) -> int:
    return state.words.load32(layout.RUNTIME_HEADER.at["removed_word"]) if state is not None else 0


def _append_end(state: SharedState) -> int:
    """Return the exclusive end of the bytes that appends account for: published records, or an append under way."""
    under_way = state.written_to if state.append_stage != IDLE else 0
    # Read last: an append that ends meanwhile moves it.
    return max(under_way, state.published_to)
