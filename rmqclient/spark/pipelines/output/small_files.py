"""Small files: a day that has many of them gets few, in one step.

The new content of a day is built beside it: large files are linked, small ones are read and written together. Then the
two directories take each other's place (:mod:`rmqclient.spark.pipelines.output.directories`). Whoever lists the day
sees all of the old files or all of the new ones, so a row never stands there twice, and never is missing. What a reader
can see is that a file is gone which it listed before the exchange and opens after it: it has to look again. One that
has its files open reads on.

A file system that cannot exchange directories refuses with an error, and its files stay as they are. Nothing has to be
repaired after a kill: before the exchange the new directory is thrown away by the next run, after it the old one.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from rmqclient.spark.pipelines.output.directories import exchange, sync_files
from rmqclient.spark.pipelines.output.published import Published
from rmqclient.spark.pipelines.output.streaming import write_parquet

_FEWEST = 4
"""So many small files make it worth while."""


def merge_small_files(spark: SparkSession, published: Published, *, file_bytes: int) -> int:
    """Merge files below half of ``file_bytes`` where a directory has several; return how many files were replaced.

    The caller has ``published`` open, so nobody else adds files. Raises OSError where directories cannot be exchanged.
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
    rows = spark.read.parquet(*map(str, small))
    ordered = rows.repartitionByRange(files, "partition", "offset").sortWithinPartitions("partition", "offset")
    write_parquet(ordered, written)
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
                error.errno, "the file system cannot exchange two directories in one step; not merged", str(directory)
            ) from error
        raise
    shutil.rmtree(work)
