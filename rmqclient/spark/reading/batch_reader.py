"""Batch reader: reads a place once. The ranges are settled when the DataFrame is made, and never grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqclient.arrow.columns import stored_schema
from rmqclient.arrow.derived import derived
from rmqclient.arrow.ranges import Ranges
from rmqclient.errors import DataLost
from rmqclient.spark.reading.places import kept_place, open_place
from rmqclient.spark.reading.worker_process import keep_objects
from rmqclient.spark.scan import offsets
from rmqclient.spark.scan.columns import arrow_schema, check_schema
from rmqclient.spark.scan.place import Place, Split
from rmqclient.spark.scan.read_options import ReadOptions


class Present(NamedTuple):
    """The offsets that each selected queue has at some time, and the identity of the store."""

    store: str | None
    ranges: Ranges


def present(options: ReadOptions, place: Place) -> Present:
    """Return the current offsets. Raises as :func:`rmqclient.spark.scan.offsets.selected`."""
    return Present(place.identity(), offsets.available(place, options.selection))


class BatchReader(DataSourceReader):
    """Reads the ranges of queues that the options name."""

    def __init__(self, options: ReadOptions, schema: StructType, there: Present | None = None) -> None:
        self.options = options
        self.schema = schema
        self._there = there
        """The offsets when the DataFrame was made; None: the current ones."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the share of each task. Raises as :mod:`rmqclient.spark.scan.offsets`."""
        place = open_place(self.options)
        there = present(self.options, place) if self._there is None else self._there
        now = place.identity()
        if now is not None and there.store is not None and now != there.store:
            raise DataLost(
                f"{self.options.path} holds another store than when this DataFrame was made: make it anew by load()"
            )
        start = offsets.starting(place, there.ranges, self.options)
        wanted = offsets.between(start, offsets.ending(place, there.ranges, self.options))
        columns = stored_schema(arrow_schema(check_schema(self.schema))).names
        return place.plan(self.options.where.apply(wanted), columns, self.options) or [Split(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises DataLost."""
        assert isinstance(partition, Split)
        return read_split(self.options, self.schema, partition)


def read_split(options: ReadOptions, schema: StructType, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task. Raises as :meth:`rmqclient.spark.scan.place.Place.read`."""
    place = kept_place(options)
    keep_objects()
    own = arrow_schema(check_schema(schema))
    stored = stored_schema(own)
    rows = place.read(options, stored, split)
    return rows if own.names == stored.names == schema.names else derived(rows, own, schema.names)
