"""Streaming: a query that hands each micro-batch to a function, and Parquet files with the types that others read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_OPEN_FILES = "64"
"""Files that one task writes at once. Beyond that Spark sorts by the partition columns, at the price of the order."""


def run_stream(
    stream: DataFrame,
    publish: Callable[[DataFrame, int], None],
    checkpoint: Path,
    every_s: float | None,
    *,
    output_mode: str = "append",
) -> None:
    """Run a stream to the end of what is there now, or with ``every_s`` until the query is stopped.

    Raises StreamingQueryException, which has the text of what ``publish`` or the source raised.
    """
    writer = stream.writeStream.foreachBatch(publish).option("checkpointLocation", str(checkpoint))
    writer = writer.outputMode(output_mode)
    writer = (
        writer.trigger(availableNow=True) if every_s is None else writer.trigger(processingTime=f"{every_s} seconds")
    )
    query = writer.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def write_parquet(rows: DataFrame, directory: Path, partition_by: Sequence[str] = ()) -> None:
    """Write rows below a directory that is there and empty, in their order."""
    settings = {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96, the default, is no timestamp to others
        "spark.sql.maxConcurrentOutputFileWriters": _OPEN_FILES,
    }
    with _set(rows.sparkSession, settings):
        writer = rows.write.mode("overwrite").option("compression", "zstd")
        writer.partitionBy(*partition_by).parquet(str(directory))


@contextmanager
def _set(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
