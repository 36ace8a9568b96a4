"""Planning: divides a read among tasks.

A *piece* is a range of one queue. There are two ways to divide a read. Either way a task has about 128 MiB by default:

- By queue: a task has pieces, and follows their consume queue entries into the log. Best for few messages among many
  others, for a filter by tag, and for columns that the entries alone answer.
- By log: a task has a range of the commit log, and walks over every record there. This is a quarter faster, because
  memory is read in order. It also suits an archive, where each access is a request.

``auto`` reads by log if at least half of the bytes between the first and the last record are wanted. The entries tell
where records begin, so if entries are lost, the read is always by queue.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress

from rmqclient.arrow.columns import IN_ENTRIES
from rmqclient.arrow.ranges import Piece, Ranges
from rmqclient.spark.scan.by_queue import by_queue, tasks_for
from rmqclient.spark.scan.place import Split
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store import MessageQueue
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.inspect.view import LocalView, View, entry_at, first_offset, messages_in
from rmqclient.store.log.consume_queue import Entry

_SAMPLES = 16
_SAMPLES_AFAR = 2
"""Records of an archive that are looked at: each of them is a request."""

_LOG_SHARE = 0.5


def plan(view: View, wanted: Ranges, columns: Sequence[str], options: ReadOptions) -> list[Split]:
    """Divide the ``wanted`` ranges among tasks. No range may be empty."""
    if not wanted:
        return []
    sizes = {queue: mean_size(view, queue, offsets) for queue, offsets in wanted.items()}
    total = sum(int(sizes[queue] * len(offsets)) for queue, offsets in wanted.items())
    tasks = tasks_for(total, options)
    with suppress(FileNotFoundError, StoreCorrupt):  # an entry is lost: reading by queue reports which ones
        if _is_by_log(view, wanted, total, columns, options):
            return _by_log(view, wanted, tasks)
    if options.max_records_per_partition is None:
        return by_queue(wanted, sizes, max(1, total // tasks), options)
    messages = {queue: mean_messages(view, queue, offsets) for queue, offsets in wanted.items()}
    return by_queue(wanted, sizes, max(1, total // tasks), options, messages)


def mean_size(view: View, queue: MessageQueue, offsets: range) -> float:
    """Return the mean record size in a range, in bytes, from entries spread over it; 0 if no entry can be read."""
    sizes = []
    for offset in offsets[:: max(1, len(offsets) // _SAMPLES)]:
        with suppress(FileNotFoundError, StoreCorrupt):
            sizes.append(entry_at(view, queue, offset).size)
    return sum(sizes) / len(sizes) if sizes else 0.0


def mean_messages(view: View, queue: MessageQueue, offsets: range) -> float:
    """Return the mean number of messages of a record in a range, from records spread over it: 1 without batches."""
    samples = _SAMPLES if isinstance(view, LocalView) else _SAMPLES_AFAR
    numbers = []
    for offset in offsets[:: max(1, len(offsets) // samples)]:
        with suppress(FileNotFoundError, StoreCorrupt):
            numbers.append(messages_in(view, queue, offset))
    return sum(numbers) / len(numbers) if numbers else 1.0


def _is_by_log(view: View, wanted: Ranges, total: int, columns: Sequence[str], options: ReadOptions) -> bool:
    if options.split != "auto":
        return options.split == "log"
    if options.max_records_per_partition or (IN_ENTRIES.issuperset(columns) and not options.tags.tags):
        return False
    if not isinstance(view, LocalView):
        return True
    start, stop = _log_range(view, wanted)
    return not options.tags.tags and total >= _LOG_SHARE * (stop - start)


def _log_range(view: View, wanted: Ranges) -> tuple[int, int]:
    """Return the log offsets at which the first record begins and the last one ends.

    Raises FileNotFoundError, StoreCorrupt.
    """
    first = [_entry(view, queue, offsets.start) for queue, offsets in wanted.items()]
    last = [_entry(view, queue, offsets.stop - 1) for queue, offsets in wanted.items()]
    return min(entry.commit_log_offset for entry in first), max(entry.commit_log_offset + entry.size for entry in last)


# --- by log ---------------------------------------------------------------------------------------


def _by_log(view: View, wanted: Ranges, tasks: int) -> list[Split]:
    """Cut the log at the beginnings of records, which the entries of the longest queue give."""
    start, stop = _log_range(view, wanted)
    longest = max(wanted, key=lambda queue: len(wanted[queue]))
    cuts = {start, stop}
    for number in range(1, tasks):
        target = start + (stop - start) * number // tasks
        found = _first_at(view, longest, wanted[longest], target)
        cuts.add(found if found is not None else stop)
    pieces = tuple(Piece(queue, offsets.start, offsets.stop) for queue, offsets in wanted.items())
    edges = sorted(cuts)
    return [Split(pieces, (low, high)) for low, high in itertools.pairwise(edges)]


def _first_at(view: View, queue: MessageQueue, offsets: range, commit_log_offset: int) -> int | None:
    """Return the offset of the first record of a queue at or above a commit log offset."""
    found = first_offset(offsets, lambda number: _entry(view, queue, number).commit_log_offset >= commit_log_offset)
    return _entry(view, queue, found).commit_log_offset if found < offsets.stop else None


def _entry(view: View, queue: MessageQueue, queue_offset: int) -> Entry:
    """Return an entry. Raises FileNotFoundError if its file is gone or the entry is blank, and StoreCorrupt."""
    entry = entry_at(view, queue, queue_offset)
    if not entry.size:
        raise FileNotFoundError(f"entry {queue_offset} of queue {queue.queue_id} of {queue.topic} is blank")
    return entry
