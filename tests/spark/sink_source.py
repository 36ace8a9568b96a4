"""A data source of the tests that only writes, and functions that Spark's Python workers import by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rmqclient.spark.writer import BatchWriter, StreamWriter


class SinkSource(DataSource):
    """What Spark makes of ``format("rmq-sink")``."""

    @classmethod
    def name(cls) -> str:
        return "rmq-sink"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        return StreamWriter(self.options, schema, overwrite)


def failing_first(batches: Iterator[pa.RecordBatch], marks: str) -> Iterator[pa.RecordBatch]:
    """Pass everything on, and fail the first attempt of each part when it has passed all on."""
    context = TaskContext.get()
    assert context is not None
    yield from batches
    mark = Path(marks, f"{context.partitionId()}")
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    raise RuntimeError("planted: the first attempt of each part fails")
