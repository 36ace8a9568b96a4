"""By queue: divides ranges of queues among tasks, by bytes and by messages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from rmqclient.arrow.ranges import Piece, Ranges
from rmqclient.spark.scan.offsets import count
from rmqclient.spark.scan.place import Split
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store import MessageQueue

_SMALL_TASK_BYTES = 8 << 20
"""A read gets up to one task per processor, even if fewer would do, as long as each task has at least these bytes."""


def tasks_for(total_bytes: int, options: ReadOptions) -> int:
    """Return the number of tasks for ``total_bytes`` of records."""
    by_bytes = -(-total_bytes // options.max_bytes_per_partition)
    by_processors = min(os.cpu_count() or 1, -(-total_bytes // _SMALL_TASK_BYTES))
    return max(by_bytes, by_processors, options.min_partitions)


def by_queue(
    wanted: Ranges,
    sizes: Mapping[MessageQueue, float],
    most_bytes: int,
    options: ReadOptions,
    messages: Mapping[MessageQueue, float] | None = None,
) -> list[Split]:
    """Fill one task after another, up to ``most_bytes`` of records or the most messages of one task.

    ``sizes`` are the mean sizes of a record in each queue, in bytes; 0 if unknown. ``messages`` are the mean numbers of
    messages in one; 1 if not given. A task has one record at least.
    """
    return list(_splits(wanted, sizes, most_bytes, options, messages or {}))


def _splits(
    wanted: Ranges,
    sizes: Mapping[MessageQueue, float],
    most_bytes: int,
    options: ReadOptions,
    messages: Mapping[MessageQueue, float],
) -> Iterator[Split]:
    most = options.max_records_per_partition or count(wanted.values())
    pieces: list[Piece] = []
    room, left = float(most_bytes), float(most)
    for queue, offsets in sorted(wanted.items()):
        start, each = offsets.start, messages.get(queue, 1.0)
        if pieces and left < each:  # not even one record of this queue
            yield Split(tuple(pieces))
            pieces, room, left = [], float(most_bytes), float(most)
        while start < offsets.stop:
            fitting = min(offsets.stop - start, max(1, int(left / each)))
            if sizes[queue]:
                fitting = min(fitting, max(1, round(room / sizes[queue])))
            pieces.append(Piece(queue, start, start + fitting))
            start += fitting
            room -= fitting * sizes[queue]
            left -= fitting * each
            if room < sizes[queue] or left < each:
                yield Split(tuple(pieces))
                pieces, room, left = [], float(most_bytes), float(most)
    if pieces:
        yield Split(tuple(pieces))
