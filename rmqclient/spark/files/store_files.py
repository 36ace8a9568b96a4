"""Store files: a store's directory, or its archive, as a place to read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rmqclient.spark.files.batches import BatchReader
from rmqclient.spark.files.location import Location, opened
from rmqclient.spark.files.planning import mean_size, plan
from rmqclient.spark.scan.place import Split
from rmqclient.spark.scan.ranges import Ranges
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.spark.scan.record_batches import on_lost, options_named
from rmqclient.store import MessageQueue, limit_resident
from rmqclient.store.inspect.view import View, offset_by_time

MOST_RESIDENT: Final = 512 << 20
"""Bytes of files that a worker process of Spark keeps in its page table. Reading the same store again costs an eighth
of the time less when its pages are still there; every other process keeps a quarter of this."""


class StoreFiles:
    """The files that a view reads. See :class:`rmqclient.spark.scan.place.Place` for the methods."""

    def __init__(self, view: View, identity: str | None = None) -> None:
        self._view = view
        self._identity = identity

    def topics(self) -> list[str]:
        """Return the topics that have a queue."""
        return sorted({queue.topic for queue in self._view.queues()})

    def queues(self, topics: Collection[str]) -> list[MessageQueue]:
        """Return the queues that have messages, or had some."""
        return [queue for queue in self._view.queues() if queue.topic in topics]

    def identity(self) -> str | None:
        """Return the identity of the store; None for an archive alone, and for a store that a broker made."""
        return self._identity

    def ranges(self, queues: Iterable[MessageQueue]) -> Ranges:
        """Return the offsets that have messages now, by one look at the store."""
        return self._view.ranges(queues)

    def offset_by_time(self, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
        """Search by halves, from the store times in records."""
        return offset_by_time(self._view, queue, known, timestamp_ms)

    def mean_size(self, queue: MessageQueue, offsets: range) -> float:
        """Return the mean size that consume queue entries say."""
        return mean_size(self._view, queue, offsets)

    def plan(self, wanted: Ranges, columns: Sequence[str], options: ReadOptions) -> list[Split]:
        """Divide by queue or by log."""
        return plan(self._view, wanted, columns, options)

    def read(self, options: ReadOptions, schema: StructType, split: Split) -> Iterator[pa.RecordBatch]:
        """Read by the entries of queues, or along the log."""
        self._view.release()
        records = BatchReader(
            self._view,
            to_arrow_schema(schema, timezone="UTC"),
            rows=options.batch_rows,
            size=options.batch_bytes,
            tags=options.tags,
            max_opened_body_bytes=options.max_opened_body_bytes,
            null_unreadable=not options.fail_on_unreadable_body,
            on_lost=on_lost(options),
        )
        with options_named():
            if split.log is not None:
                yield from records.read_log(*split.log, split.ranges())
                return
            for queue, wanted in split.ranges().items():
                yield from records.read_queue(queue, wanted.start, wanted.stop)


def store_files(options: ReadOptions) -> StoreFiles:
    """Return the files that the options name, for the driver. Raises as :func:`rmqclient.archive.view.open_view`."""
    location = Location.of(options)
    return StoreFiles(location.open(), location.identity())


def kept_store_files(options: ReadOptions) -> StoreFiles:
    """Return the files that the options name, for a task: a worker process keeps them open."""
    limit_resident(MOST_RESIDENT)
    return StoreFiles(opened(Location.of(options)))
