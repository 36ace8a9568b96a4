"""Streaming: runs a query that hands each micro-batch to a function, and writes Parquet that any program can read."""

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
"""Files that a task writes at once. With more, Spark would sort by the partition columns and lose the order of rows."""


def run_stream(
    stream: DataFrame, publish: Callable[[DataFrame, int], None], checkpoint: Path, every: Duration | None
) -> None:
    """Run a stream to the present end of its source; with ``every``, until SIGINT, SIGTERM or a stop of the query.

    A micro-batch that is being published is finished first. Without ``every``, raises KeyboardInterrupt for a signal.
    Raises StreamingQueryException, with the text of the error, if ``publish`` or the source raises.
    """
    publishing, stopped = threading.Lock(), threading.Event()

    def publish_unless_stopped(batch: DataFrame, number: int) -> None:
        with publishing:
            if stopped.is_set():
                raise RuntimeError(f"batch {number} is left to the next run")  # returning would count as published
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
    """Yield an event that SIGINT and SIGTERM set. PySpark's own handler would interrupt its exchange with Java."""
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
    """Write rows, in their order, into an existing empty directory, which has Parquet files and nothing else then."""
    settings = {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96, the default, is not a timestamp to others
        "spark.sql.maxConcurrentOutputFileWriters": _OPEN_FILES,
    }
    with _set(rows.sparkSession, settings):
        writer = rows.write.mode("overwrite").option("compression", "zstd")
        writer.partitionBy(*partition_by).parquet(str(directory))
    for path in (directory / "_SUCCESS", *directory.rglob(".*.crc")):  # which readers take that take every file
        path.unlink(missing_ok=True)


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
