"""Batch reader: reads a store once. The ranges are settled when the DataFrame is made, and never grow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rmqclient.errors import DataLost
from rmqclient.spark.reading import offsets
from rmqclient.spark.reading.batches import BatchReader as RecordBatches
from rmqclient.spark.reading.location import Location, opened
from rmqclient.spark.reading.offsets import Ranges
from rmqclient.spark.reading.planning import Split, plan
from rmqclient.spark.reading.pushdown import Pushed, push
from rmqclient.spark.reading.read_options import ReadOptions
from rmqclient.store.errors import BodyUnreadable
from rmqclient.store.inspect.view import View

_log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """Reads the ranges of queues that the options name."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the share of each task. Raises as :mod:`rmqclient.spark.reading.offsets`."""
        view = Location.of(self.options).open()
        wanted = self.pushed.apply(view, self._wanted(view))
        splits = plan(view, wanted, self.schema.names, self.pushed.narrow(self.options))
        return splits or [Split(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises DataLost."""
        assert isinstance(partition, Split)
        return read_split(self.pushed.narrow(self.options), self.schema, partition)

    def _wanted(self, view: View) -> Ranges:
        there = offsets.available(view, self.options.selection)
        start = offsets.starting(view, there, self.options)
        return offsets.between(start, offsets.ending(view, there, self.options))


class PushdownBatchReader(BatchReader):
    """A batch reader to which Spark hands the conditions of a query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the conditions that save reading; return those that Spark still has to apply."""
        self.pushed, left = push(filters)
        return left


def read_split(options: ReadOptions, schema: StructType, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task.

    Raises DataLost if messages are gone or damaged, unless ``failOnDataLoss`` is false; BodyUnreadable if a body cannot
    be decompressed, unless ``failOnUnreadableBody`` is false; and NotInstalled if the library for a compression is not
    installed.
    """
    view = opened(Location.of(options))
    view.release()
    records = RecordBatches(
        view,
        to_arrow_schema(schema, timezone="UTC"),
        rows=options.batch_rows,
        size=options.batch_bytes,
        tags=options.tags,
        max_opened_body_bytes=options.max_opened_body_bytes,
        null_unreadable=not options.fail_on_unreadable_body,
        on_lost=_fail if options.fail_on_data_loss else _pass_over,
    )
    try:
        if split.log is not None:
            yield from records.read_log(*split.log, split.ranges())
            return
        for queue, wanted in split.ranges().items():
            yield from records.read_queue(queue, wanted.start, wanted.stop)
    except BodyUnreadable as error:
        raise BodyUnreadable(
            f"{error}. To read null instead, set the option failOnUnreadableBody to false. The limit is the option "
            "maxOpenedBodyBytes"
        ) from error


def _fail(what: str) -> None:
    raise DataLost(f"{what}. To skip such messages, set the option failOnDataLoss to false")


def _pass_over(what: str) -> None:
    _log.warning("%s; skipped because failOnDataLoss=false", what)
