"""Aggregate: counts, bytes and latencies by window of time, topic and tag.

:func:`aggregate` counts once over the messages that exist. :func:`aggregate_stream` writes each window when it is
complete: when the newest time read has passed the end of the window by the ``lateness`` (Spark's watermark). Messages
that come later still are left out of the window. The last windows of a stream are therefore written by a later run,
after newer messages have come.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from rmqclient.duration import Duration
from rmqclient.spark.pipelines.output.published import Published
from rmqclient.spark.pipelines.output.streaming import run_stream, write_parquet
from rmqclient.spark.pipelines.reading import (
    Options,
    Topics,
    check_topics,
    growing_messages,
    latency_ms,
    local_directory,
    messages,
)

TimeColumn = Literal["born_timestamp", "timestamp"]

_COLUMNS = ("value", "topic", "timestamp", "born_timestamp", "tags")


@dataclass(frozen=True)
class Window:
    """The messages sent to a topic with a tag in a window of time."""

    start_ms: int
    end_ms: int
    topic: str
    tags: str | None
    messages: int
    bytes: int
    """Bytes of all bodies."""

    latency_min_ms: int
    """Milliseconds from sending, by the producer's clock, to storing."""

    latency_mean_ms: float
    latency_max_ms: int


@dataclass(frozen=True)
class Aggregated:
    """The result of one run of :func:`aggregate_stream`."""

    target: str
    batches: int
    windows: int


def aggregate(
    spark: SparkSession,
    store: str | os.PathLike[str],
    topics: Topics,
    *,
    window: str = "1 minute",
    slide: str | None = None,
    time: TimeColumn = "born_timestamp",
    options: Options | None = None,
) -> list[Window]:
    """Return the windows of the messages that exist now, ordered by time, topic and tag.

    ``window`` and ``slide`` are intervals of Spark's SQL, such as ``10 seconds``. With a ``slide``, windows overlap.
    ``options`` are those of the source, such as ``startingTimestamp`` and ``subExpression``.
    """
    rows = messages(spark, store, topics, _COLUMNS, options or {})
    found = windows_of(rows, window, slide, time).orderBy("start_ms", "topic", "tags").collect()
    return [Window(**row.asDict()) for row in found]


def aggregate_stream(
    spark: SparkSession,
    store: str | os.PathLike[str],
    topics: Topics,
    target: str | os.PathLike[str],
    *,
    window: str = "1 minute",
    slide: str | None = None,
    time: TimeColumn = "born_timestamp",
    lateness: str = "10 minutes",
    every: Duration | None = None,
    work: str | os.PathLike[str] | None = None,
    options: Options | None = None,
) -> Aggregated:
    """Add the windows that were completed since the last run to the Parquet files in ``target``, each window once.

    With ``every``, go on until the query is stopped. See :func:`rmqclient.spark.pipelines.archive.archive` for
    ``target``, ``work`` and the errors, and :func:`aggregate` for the other arguments.
    """
    if every is None:
        check_topics(store, topics, options or {})
    with Published(local_directory(target), local_directory(work) if work else None) as published:
        rows = growing_messages(spark, store, topics, _COLUMNS, options or {}).withWatermark(time, lateness)

        def publish(batch: DataFrame, number: int) -> None:
            if not published.publish(number, lambda directory: write_parquet(batch, directory)):
                batch.write.format("noop").mode("overwrite").save()  # the next batch continues the sums of open windows

        run_stream(windows_of(rows, window, slide, time), publish, published.checkpoint, every)
        files = [file for batch in published.added for file in batch.files]
        return Aggregated(str(published.target), len(published.added), sum(file.rows for file in files))


def windows_of(rows: DataFrame, window: str, slide: str | None, time: TimeColumn) -> DataFrame:
    """Return one row for each window, topic and tag, with the columns of :class:`Window`."""
    latency = latency_ms()
    return (
        rows.groupBy(sql.window(time, window, slide).alias("window"), "topic", "tags")
        .agg(
            sql.count("*").alias("messages"),
            sql.sum(sql.length("value")).alias("bytes"),
            sql.min(latency).alias("latency_min_ms"),
            sql.avg(latency).alias("latency_mean_ms"),
            sql.max(latency).alias("latency_max_ms"),
        )
        .select(
            sql.unix_millis("window.start").alias("start_ms"),
            sql.unix_millis("window.end").alias("end_ms"),
            *("topic", "tags", "messages", "bytes", "latency_min_ms", "latency_mean_ms", "latency_max_ms"),
        )
    )
