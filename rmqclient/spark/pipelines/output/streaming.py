"""Streaming: a query that hands each micro-batch to a function, and Parquet files with the types that others read."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rmqclient.duration import Duration, in_seconds

_LOOK_S = 0.1
_OPEN_FILES = "64"
"""Files that one task writes at once. Beyond that Spark sorts by the partition columns, at the price of the order."""


def run_stream(
    stream: DataFrame, publish: Callable[[DataFrame, int], None], checkpoint: Path, every: Duration | None
) -> None:
    """Run a stream to the end of what is there now, or with ``every`` until SIGINT, SIGTERM or the query's stop.

    A micro-batch that is being published is finished first. Raises KeyboardInterrupt for a signal before the end, and
    StreamingQueryException, which has the text of what ``publish`` or the source raised.
    """
    publishing, stopped = threading.Lock(), threading.Event()

    def publish_unless_stopped(batch: DataFrame, number: int) -> None:
        with publishing:
            if stopped.is_set():
                raise RuntimeError(f"batch {number} is left to the next run")  # to return would count it as published
            publish(batch, number)

    writer = stream.writeStream.foreachBatch(publish_unless_stopped).option("checkpointLocation", str(checkpoint))
    if every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{in_seconds('every', every)} seconds")
    with _signals() as signalled:
        query = writer.start()
        try:
            while query.isActive and not signalled.wait(_LOOK_S):
                pass
        finally:
            with publishing:
                stopped.set()
            if query.isActive:
                query.stop()
        if not signalled.is_set():
            query.awaitTermination()
        elif every is None:
            raise KeyboardInterrupt


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Give an event that is set by SIGINT and SIGTERM. PySpark's handler would break into its own talk with Java."""
    signalled = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield signalled
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, lambda *_: signalled.set())
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
