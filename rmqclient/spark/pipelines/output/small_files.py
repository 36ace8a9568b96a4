"""Small files: combines the many small files of a day into a few, in one step.

The new content of a day is built beside it: large files are linked, small files are read and written together. Then the
two directories are exchanged (:mod:`rmqclient.spark.pipelines.output.directories`). A reader that lists the day sees
all of the old files or all of the new ones, so it sees each row exactly once. If a reader lists the files before the
exchange and opens one after it, the file may be gone: the reader has to list the files again. A reader that has its
files open reads on.

If the file system cannot exchange directories, merging fails with an error and the files stay as they are. A kill
leaves nothing to repair: the next run removes the new directory if the kill was before the exchange, the old directory
if it was after.

Files of runs with other options have other columns. The merged files have the columns of all: a column that a file
lacks is null in its rows, as for a reader that merges the schemas of the small files.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from rmqclient.spark.pipelines.output.directories import exchange, sync_files
from rmqclient.spark.pipelines.output.published import Published
from rmqclient.spark.pipelines.output.streaming import write_parquet

_READ = "read"
_OF_PATTERNS = re.compile(r"[\\*?\[\]{}]")
_FEWEST = 4
"""Least number of small files in a directory that is worth a merge."""


def merge_small_files(spark: SparkSession, published: Published, *, file_bytes: int) -> int:
    """Merge the files below half of ``file_bytes`` in each directory with several; return the number of files replaced.

    The caller has ``published`` open, so no other process adds files. Raises OSError if the exchange fails.
    """
    replaced = 0
    for directory, small in _small_files(published.target, file_bytes // 2).items():
        if len(small) >= _FEWEST:
            _merge(spark, published, directory, small, file_bytes)
            replaced += len(small)
    return replaced


def _small_files(target: Path, below_bytes: int) -> dict[Path, list[Path]]:
    found = defaultdict(list)
    for path in sorted(target.rglob("*.parquet")):
        if path.stat().st_size < below_bytes:
            found[path.parent].append(path)
    return found


def _merge(spark: SparkSession, published: Published, directory: Path, small: Sequence[Path], file_bytes: int) -> None:
    work = published.work / "merging"
    shutil.rmtree(work, ignore_errors=True)
    new, written = work / "new", work / "written"
    new.mkdir(parents=True)
    files = max(1, round(sum(path.stat().st_size for path in small) / file_bytes))
    every_column = spark.read.option("mergeSchema", "true")  # and not those of the first file
    read = sql.monotonically_increasing_id()  # orders the messages of a compressed batch, which have one offset
    rows = every_column.parquet(*map(_one_path, small)).withColumn(_READ, read)
    order = ("partition", "offset", _READ)
    write_parquet(rows.repartitionByRange(files, *order).sortWithinPartitions(*order).drop(_READ), written)
    for path in set(directory.iterdir()) - set(small):
        os.link(path, new / path.name)
    for path in written.glob("*.parquet"):
        path.rename(new / f"merged-{uuid.uuid4().hex}.parquet")
    sync_files(new)
    try:
        exchange(new, directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            raise OSError(
                error.errno,
                "the file system cannot exchange two directories in one step; nothing was merged",
                str(directory),
            ) from error
        raise
    shutil.rmtree(work)


def _one_path(path: Path) -> str:
    """Return a path as Spark reads it, which takes some characters for a pattern of several paths."""
    return _OF_PATTERNS.sub(r"\\\g<0>", str(path))
