"""Queue checks: what is wrong with consume queues, for :mod:`rmqclient.store.inspect.verify`.

Each check has the number of its invariant there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqclient.store import layout
from rmqclient.store.inspect.found import LOOKS, Flagged, Found, Problem, bounds_of, entry_problems, numbers_of
from rmqclient.store.inspect.reading import StoreReader, damaged_files, entries_of, set_bytes, without_file
from rmqclient.store.kernel._kernel import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqclient.store.layout import IDLE
from rmqclient.store.log.commit_log import describe
from rmqclient.store.log.consume_queue import ConsumeQueue, Entry
from rmqclient.store.log.record import Record
from rmqclient.store.message_queue import MessageQueue

LOWEST_HASH = -(2**31)
"""A tags code below it is not a hash but an address in ``consumequeue_ext`` (ConsumeQueueExt.isExtAddr)."""

_ENTRY = layout.CONSUME_QUEUE_ENTRY
_NOTHING = Entry(0, 0, 0)


def check_entries_are_there(found: Found) -> Iterator[Problem]:
    """4: each entry has a file of the right size and is not empty."""
    for queue, files, expected in found.queues():
        for error in damaged_files(files.files, 0):
            yield Problem(4, error.path, error.position, error.reason)
        for missing in without_file(files, expected):
            path = files.files.path(files.first_entry_of(missing.start) * _ENTRY.size)
            yield Problem(4, path, 0, f"{numbers_of(missing)}: the file is missing")
        for part in found.unmatched(queue, expected):
            empty = (number for number, entry in entries_of(files, part) if entry.size <= 0)
            yield from entry_problems(4, files, ((number, "empty") for number in empty))


def check_entries_grow(found: Found) -> Iterator[Problem]:
    """5: each entry is compared with the one before it."""
    for queue, files, expected in found.queues():
        for part in found.unmatched(queue, expected, overlap=1):
            yield from entry_problems(5, files, not_growing(entries_of(files, part)))


def not_growing(entries: Iterable[tuple[int, Entry]]) -> Flagged:
    """Yield entries that point to no later record than the entry before; empty entries are skipped."""
    before = -1
    for number, entry in entries:
        if entry.size > 0:
            if entry.commit_log_offset <= before:
                yield number, "points to no later record than the one before it"
            before = entry.commit_log_offset


def check_entries_point_to_their_records(found: Found) -> Iterator[Problem]:
    """6: every entry that is not empty."""
    for queue, files, expected in found.queues():
        for part in found.unmatched(queue, expected):
            yield from entry_problems(6, files, _different(found.reader, queue, entries_of(files, part)))


def difference(queue: MessageQueue, queue_offset: int, entry: Entry, record: Record) -> str:
    """Say in words how an entry differs from the record it points to; empty if they agree."""
    message = record.message
    # The tags codes of delay levels are delivery times (CommitLog.checkMessageAndReturnSize).
    is_hash = queue.topic != SCHEDULE_TOPIC and entry.tags_code >= LOWEST_HASH
    # The tags codes of the timer are due times, or hashes in entries that a broker made.
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
    """7: an append under way accounts for the entries of its records."""
    for queue, files, expected in found.queues():
        left: list[int] = []
        for _ in range(LOOKS):
            left = _left_behind(found, queue, files, expected.stop)
            if not left:
                break
        yield from entry_problems(7, files, ((number, "left behind") for number in left))


def _different(reader: StoreReader, queue: MessageQueue, entries: Iterable[tuple[int, Entry]]) -> Flagged:
    for number, entry in entries:
        if entry.size > 0:
            outcome = reader.outcome(entry.commit_log_offset)
            if not isinstance(outcome, Record):
                yield number, f"points to no record: {describe(outcome)}"
            elif words := difference(queue, number, entry, outcome):
                yield number, words


def _left_behind(found: Found, queue: MessageQueue, files: ConsumeQueue, max_offset: int) -> list[int]:
    """Return the nonzero entries at and above the queue's max offset for which no append accounts."""
    state = found.reader.state
    if state is not None:
        max_offset = bounds_of(state, found.slots[queue]).stop
    span = set_bytes(files.files, max_offset * _ENTRY.size)
    if span is None:
        return []
    written = range(span[0] // _ENTRY.size, span[1] // _ENTRY.size + 1)
    left = [(number, entry) for number, entry in entries_of(files, written) if entry != _NOTHING]
    if state is None:
        return [number for number, _ in left]
    under_way = range(state.append_from, state.written_to) if state.append_stage != IDLE else range(0)
    # Read last: an append that ends meanwhile moves it.
    max_offset = bounds_of(state, found.slots[queue]).stop
    return [number for number, entry in left if number >= max_offset and entry.commit_log_offset not in under_way]
