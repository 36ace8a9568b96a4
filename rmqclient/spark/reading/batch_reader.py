"""Batch reader: reads a place once. The ranges are settled when the DataFrame is made, and never grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rmqclient.spark.reading.places import kept_place, open_place
from rmqclient.spark.reading.pushdown import Pushed, push
from rmqclient.spark.reading.worker_process import keep_objects
from rmqclient.spark.scan import offsets
from rmqclient.spark.scan.place import Place, Split
from rmqclient.spark.scan.ranges import Ranges
from rmqclient.spark.scan.read_options import ReadOptions


class BatchReader(DataSourceReader):
    """Reads the ranges of queues that the options name."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the share of each task. Raises as :mod:`rmqclient.spark.scan.offsets`."""
        place = open_place(self.options)
        wanted = self.pushed.apply(place, self._wanted(place))
        splits = place.plan(wanted, self.schema.names, self.pushed.narrow(self.options))
        return splits or [Split(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises DataLost."""
        assert isinstance(partition, Split)
        return read_split(self.pushed.narrow(self.options), self.schema, partition)

    def _wanted(self, place: Place) -> Ranges:
        there = offsets.available(place, self.options.selection)
        start = offsets.starting(place, there, self.options)
        return offsets.between(start, offsets.ending(place, there, self.options))


class PushdownBatchReader(BatchReader):
    """A batch reader to which Spark hands the conditions of a query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the conditions that save reading; return those that Spark still has to apply."""
        self.pushed, left = push(filters)
        return left


def read_split(options: ReadOptions, schema: StructType, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task. Raises as :meth:`rmqclient.spark.scan.place.Place.read`."""
    place = kept_place(options)
    keep_objects()
    return place.read(options, schema, split)
