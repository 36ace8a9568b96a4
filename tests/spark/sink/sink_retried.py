"""A Spark of its own that tries tasks again: ``python -m tests.spark.sink.sink_retried STORE SCRATCH``.

Each part of a batch write and of a stream's batch fails once, when all of its rows have been handed on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from rmqclient.spark import session
from tests.spark.conftest import QUICK, end_java
from tests.spark.sink import sink_retried  # as Spark's Python workers import it

ROWS = 20_000
COLUMNS = "value string, key string"


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


def main(root: str, scratch: Path) -> None:
    spark = session("local[2,3]", "retried", **QUICK, **{"spark.sql.warehouse.dir": str(scratch / "warehouse")})
    rows = spark.range(0, ROWS, 1, 3).selectExpr("cast(id AS string) value", "concat('k', id % 50) key")
    for kind in ("batch", "stream"):
        (scratch / kind).mkdir()
    fails = {kind: partial(sink_retried.failing_first, marks=str(scratch / kind)) for kind in ("batch", "stream")}

    failing = rows.mapInArrow(fails["batch"], COLUMNS)
    failing.write.format("rmq").option("topic", "batch").mode("append").save(root)

    rows.write.parquet(str(scratch / "in"))
    streamed = spark.readStream.schema(COLUMNS).parquet(str(scratch / "in")).mapInArrow(fails["stream"], COLUMNS)
    query = (
        streamed.writeStream.format("rmq")
        .options(topic="stream", checkpointLocation=str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start(root)
    )
    query.awaitTermination()
    spark.stop()
    end_java()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
