"""Store files: those of a store's directory or archive, as a place of a read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from rmqclient.arrow.location import Location, opened
from rmqclient.arrow.ranges import Piece, Ranges
from rmqclient.arrow.store_files import Reading, StoreFiles
from rmqclient.spark.files.planning import mean_messages, mean_size, plan
from rmqclient.spark.scan.lost import on_lost, options_named
from rmqclient.spark.scan.place import Split
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store import MessageQueue, limit_resident

MOST_RESIDENT: Final = 512 << 20
"""Bytes of files that a worker process of Spark keeps in its page table. Reading the same store again costs an eighth
of the time less when its pages are still there; every other process keeps a quarter of this."""


class StorePlace(StoreFiles):
    """The files of a store. See :class:`rmqclient.spark.scan.place.Place` for the methods."""

    def mean_size(self, queue: MessageQueue, offsets: range) -> float:
        """Return the mean size in consume queue entries."""
        return mean_size(self.view, queue, offsets)

    def mean_messages(self, queue: MessageQueue, offsets: range) -> float:
        """Return the mean of records spread over the range."""
        return mean_messages(self.view, queue, offsets)

    def plan(self, wanted: Ranges, columns: Sequence[str], options: ReadOptions) -> list[Split]:
        """Divide by queue or by log. The part of a compacted queue below the log is a share of its own."""
        in_log = dict(wanted)
        compacted = []
        for queue in self.compacted.queues() & wanted.keys():
            below, in_log[queue] = self.divided(queue, wanted[queue])
            compacted += [Split((Piece(queue, below.start, below.stop),))] if below else []
        in_log = {queue: offsets for queue, offsets in in_log.items() if offsets}
        return plan(self.view, in_log, columns, options) + compacted

    def read(self, options: ReadOptions, schema: pa.Schema, split: Split) -> Iterator[pa.RecordBatch]:
        """Read by the entries of queues, or along the log."""
        reading = Reading(
            on_lost(options),
            options.tags,
            options.batch_rows,
            options.batch_bytes,
            options.max_opened_body_bytes,
            not options.fail_on_unreadable_body,
        )
        with options_named():
            yield from self.batches(schema, split.ranges(), reading, split.log)


def location_of(options: ReadOptions) -> Location:
    """Return the location that the options of a read name."""
    return Location(options.path, options.archive, tuple(sorted(options.archive_options.items())))


def store_place(options: ReadOptions) -> StorePlace:
    """Return the files that the options name, for the driver. Raises as :func:`rmqclient.archive.view.open_view`."""
    return StorePlace.at(location_of(options))


def kept_store_place(options: ReadOptions) -> StorePlace:
    """Return the files that the options name, for a task: a worker process keeps them open."""
    limit_resident(MOST_RESIDENT)
    location = location_of(options)
    return StorePlace(opened(location), location.directory())
