"""A Spark of its own that tries tasks again: ``python -m tests.spark.sink_retried STORE SCRATCH``.

Each part of a batch write and of a stream's batch fails once, when all of its rows have been staged.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.sink_source import SinkSource, failing_first

ROWS = 20_000


def main(root: str, scratch: Path) -> None:
    builder = SparkSession.builder.master("local[2,3]")  # two threads, a task may fail twice
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.log.level": "OFF",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(SinkSource)
    rows = session.range(0, ROWS, 1, 3).selectExpr("cast(id AS string) value", "concat('k', id % 50) key")
    for kind in ("batch", "stream"):
        (scratch / kind).mkdir()
    fails = {kind: partial(failing_first, marks=str(scratch / kind)) for kind in ("batch", "stream")}

    failing = rows.mapInArrow(fails["batch"], "value string, key string")
    failing.write.format("rmq-sink").option("topic", "batch").mode("append").save(root)

    rows.write.parquet(str(scratch / "in"))
    streamed = session.readStream.schema("value string, key string").parquet(str(scratch / "in"))
    query = (
        streamed.mapInArrow(fails["stream"], "value string, key string")
        .writeStream.format("rmq-sink")
        .options(topic="stream", checkpointLocation=str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start(root)
    )
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
