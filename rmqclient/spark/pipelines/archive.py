"""Archive: writes messages to Parquet or Delta Lake, by topic and day, each exactly once.

Files are in ``TARGET/topic=orders/day=2026-11-21/``, where the day is that of the store time, in UTC.
:mod:`rmqclient.spark.pipelines.output.published` explains why any reader of the directory sees each message exactly
once.

The topic of a row stands in the path alone, and readers guess the type of what they find there: if every topic of an
archive is a number, a date or a truth value to them, ``007`` is read as 7. So each archive has a file without rows
under ``topic=~``, which is no topic, and nothing but a text.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from rmqclient.arrow.columns import METADATA, PROPERTIES, USUAL
from rmqclient.duration import Duration
from rmqclient.spark.pipelines.output.delta import DeltaLog
from rmqclient.spark.pipelines.output.published import Published
from rmqclient.spark.pipelines.output.small_files import merge_small_files
from rmqclient.spark.pipelines.output.streaming import run_stream, write_parquet
from rmqclient.spark.pipelines.reading import (
    Options,
    Topics,
    check_topics,
    day_of,
    growing_messages,
    local_directory,
)

TableFormat = Literal["parquet", "delta"]

MIB = 1 << 20

_NO_TOPIC = "topic=~"


@dataclass(frozen=True)
class Archived:
    """The result of one run of :func:`archive`."""

    target: str
    batches: int
    messages: int
    files: int
    bytes: int
    merged_files: int
    """Number of small files that were replaced by fewer larger ones."""


def archive(
    spark: SparkSession,
    store: str | os.PathLike[str],
    topics: Topics,
    target: str | os.PathLike[str],
    *,
    every: Duration | None = None,
    table_format: TableFormat = "parquet",
    properties: bool = True,
    metadata: bool = False,
    batch_bytes: int = 1024 * MIB,
    file_bytes: int = 128 * MIB,
    merge: bool = False,
    work: str | os.PathLike[str] | None = None,
    options: Options | None = None,
) -> Archived:
    """Archive the messages sent to ``topics`` since the last run; with ``every``, go on until the query is stopped.

    ``properties`` and ``metadata`` add columns. A micro-batch reads at most ``batch_bytes`` of records. A task reads
    about ``file_bytes`` and writes one file for each topic and day. With ``merge``, the small files of a day are
    combined into fewer files: see :mod:`rmqclient.spark.pipelines.output.small_files`. ``work`` holds the checkpoint;
    the default is ``TARGET.work``. ``options`` are those of the source, such as ``startingTimestamp``, which counts for
    the first run only.

    Raises UnknownTopic for a topic that does not exist (with ``every`` the query waits for it), StoreBusy while another
    process archives to ``target``, DataLost if ``target`` and ``work`` do not belong together, ValueError if ``target``
    is not a directory of a file system, and NotInstalled if ``delta`` is asked for and not installed. Raises
    StreamingQueryException for errors inside the query; one of them is that messages were removed before they were
    archived, unless the option ``failOnDataLoss`` is false.
    """
    if merge and table_format == "delta":
        raise ValueError("merge is for Parquet; merge a Delta table with its own OPTIMIZE, which its readers know")
    columns = [*USUAL, *(PROPERTIES if properties else ()), *(METADATA if metadata else ())]
    limits = {"maxBytesPerTrigger": batch_bytes, "maxBytesPerPartition": file_bytes}
    path = local_directory(target)
    if every is None:
        check_topics(store, topics, options or {})
    table = DeltaLog(path, partition_by=("topic", "day")) if table_format == "delta" else None
    with Published(path, local_directory(work) if work else None, table) as published:
        merged = 0

        def write(rows: DataFrame, directory: Path) -> None:
            write_parquet(rows, directory, ("topic", "day"))
            if table is None and not (path / _NO_TOPIC).exists():
                _write_no_topic(directory)

        def publish(batch: DataFrame, number: int) -> None:
            nonlocal merged
            with_day = batch.withColumn("day", day_of("timestamp"))
            published.publish(number, lambda directory: write(with_day, directory))
            if merge and every is not None:
                merged += merge_small_files(batch.sparkSession, published, file_bytes=file_bytes)

        stream = growing_messages(spark, store, topics, columns, limits | dict(options or {}))
        run_stream(stream, publish, published.checkpoint, every)
        if merge:
            merged += merge_small_files(spark, published, file_bytes=file_bytes)
        return _result(path, published, merged)


def _write_no_topic(directory: Path) -> None:
    """Add a file without rows, and with the columns and the day of the others, if there are any."""
    for file in sorted(directory.glob("topic=*/*/*.parquet"))[:1]:
        day = directory / _NO_TOPIC / file.parent.name
        day.mkdir(parents=True)
        pq.write_table(pq.read_schema(file).empty_table(), day / file.name)


def _result(path: Path, published: Published, merged: int) -> Archived:
    files = [file for batch in published.added for file in batch.files if file.rows]
    return Archived(
        target=str(path),
        batches=sum(1 for batch in published.added if batch.files),
        messages=sum(file.rows for file in files),
        files=len(files),
        bytes=sum(file.size for file in files),
        merged_files=merged,
    )
