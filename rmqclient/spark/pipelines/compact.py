"""Compact: keeps the latest message of each key, as a reader of a changelog does.

The latest message is the one with the highest commit log offset, which orders all queues and topics. In a cluster, each
broker has a log of its own: the latest message is the one that was stored last, by the clocks of the brokers. Messages
without a key are left out. Several keys of a message count as one key, the whole list.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from rmqclient.arrow.columns import PROPERTIES, USUAL
from rmqclient.spark.pipelines.archive import TableFormat
from rmqclient.spark.pipelines.output.delta import DeltaLog
from rmqclient.spark.pipelines.output.directories import exchange, only_writer, sync_files, work_directory_of
from rmqclient.spark.pipelines.output.published import PublishedFile
from rmqclient.spark.pipelines.output.streaming import write_parquet
from rmqclient.spark.pipelines.reading import (
    POSITION,
    Options,
    Topics,
    is_cluster,
    local_directory,
    messages,
    with_position,
)

_ORDER = "commit_log_offset"
_WRITTEN_HERE = re.compile(r"part-.*\.parquet|_SUCCESS|\..*\.crc")


@dataclass(frozen=True)
class Compacted:
    """The result of :func:`compact`."""

    target: str
    keys: int
    files: int
    bytes: int
    table: str | None


def compact(
    spark: SparkSession,
    store: str | os.PathLike[str],
    topics: Topics,
    target: str | os.PathLike[str],
    *,
    empty_is_deleted: bool = False,
    table_format: TableFormat = "parquet",
    table: str | None = None,
    options: Options | None = None,
) -> Compacted:
    """Replace the content of ``target`` with the latest message of each topic and key.

    With ``empty_is_deleted``, a key whose latest message has an empty body is left out.

    Parquet: readers of the directory find the complete old content or the complete new content. This requires a file
    system that can exchange two directories (see :mod:`rmqclient.spark.pipelines.output.directories`). A reader that
    listed the old files has to list them again. With ``table``, the session's catalog gets the files under that name.
    Delta: the result is a new version of the table.

    Raises StoreBusy while another process writes there, ValueError if ``target`` is not a directory of a file system or
    holds other files, OSError if directories cannot be exchanged (the old content stays), NotInstalled if ``delta`` is
    asked for and not installed, and the errors of Spark.
    """
    path = local_directory(target)
    if table_format == "delta" and table is not None:
        raise ValueError("a Delta table is read by its path: table is for Parquet")
    columns = [*USUAL, *PROPERTIES, _ORDER]
    rows = with_position(messages(spark, store, topics, columns, options or {}))
    order = ("timestamp", _ORDER, POSITION) if is_cluster(store) else (_ORDER, POSITION)
    rows = latest(rows, order, empty_is_deleted=empty_is_deleted).drop(POSITION)
    files = _write_delta(rows, path) if table_format == "delta" else _write_parquet(rows, path)
    if table is not None:
        _enter(spark, table, path)
    return Compacted(str(path), sum(each.rows for each in files), len(files), sum(each.size for each in files), table)


def latest(rows: DataFrame, order: Sequence[str] = (_ORDER,), *, empty_is_deleted: bool = False) -> DataFrame:
    """Return the last row of each topic and key in the order of these columns: by default, of the commit log."""
    others = [name for name in rows.columns if name not in ("topic", "key")]
    found = (
        rows.where("key IS NOT NULL")
        .groupBy("topic", "key")
        .agg(sql.max_by(sql.struct(*others), sql.struct(*order)).alias("latest"))
        .select("topic", "key", "latest.*")
    )
    return found.where(sql.length("value") > 0) if empty_is_deleted else found


def _write_parquet(rows: DataFrame, target: Path) -> list[PublishedFile]:
    work = work_directory_of(target)
    with only_writer(work, target):
        _check_content(target)
        shutil.rmtree(work / "new", ignore_errors=True)
        new = work / "new"
        write_parquet(rows, new)
        sync_files(new)
        files = _files(new, new)
        exchange(new, target)
        shutil.rmtree(new, ignore_errors=True)  # the old content
    return files


def _write_delta(rows: DataFrame, target: Path) -> list[PublishedFile]:
    log = DeltaLog(target)
    with only_writer(work_directory_of(target), target):
        new = target / f"version-{uuid.uuid4().hex}"
        write_parquet(rows, new)
        sync_files(new)
        files = _files(new, target)
        log.replace(files)
    return files


def _check_content(target: Path) -> None:
    """Raise ValueError if ``target`` holds files that this pipeline did not write: they would be replaced."""
    if others := [path.name for path in target.glob("*") if not _WRITTEN_HERE.fullmatch(path.name)]:
        raise ValueError(f"{target} holds other files, such as {others[0]}: give a directory of its own")


def _files(directory: Path, base: Path) -> list[PublishedFile]:
    paths = sorted(directory.glob("*.parquet"))
    return [
        PublishedFile("", str(path.relative_to(base)), pq.read_metadata(path).num_rows, path.stat().st_size)
        for path in paths
    ]


def _enter(spark: SparkSession, table: str, target: Path) -> None:
    """Register the files in a directory as a table of the session's catalog."""
    if not spark.catalog.tableExists(table):
        spark.catalog.createTable(table, path=str(target), source="parquet")
        return
    described = {row["col_name"]: row["data_type"] for row in spark.sql(f"DESCRIBE FORMATTED {table}").collect()}
    location = described.get("Location", "")
    if location.removeprefix("file:") != str(target):
        raise ValueError(f"table {table} exists and has its files in {location}, not in {target}: drop it first")
    spark.catalog.refreshTable(table)
