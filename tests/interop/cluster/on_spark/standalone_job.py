"""A job for a Spark cluster: reads a topic of a RocketMQ cluster, and writes it to another one.

``python standalone_job.py MASTER URL FROM TO`` prints one JSON line: rows read, rows written that are different
messages, and the number of executors that read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa

from rmqclient.spark import session


def main(master: str, url: str, topic: str, to: str) -> None:
    """Run the job."""
    settings: dict[str, str | bool] = {
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": False,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.pyspark.python": sys.executable,
    }
    spark = session(master, "standalone", **settings)
    options = {"subscribe": topic, "minPartitions": "8"}
    rows = spark.read.format("rmq").options(**options).load(url)
    executors = rows.mapInArrow(parents, "executor long").distinct().count()
    rows.select("key", "value", "tags").write.format("rmq").option("topic", to).mode("append").save(url)
    written = spark.read.format("rmq").options(subscribe=to, includeMetadata="true").load(url)
    found = {"read": rows.count(), "written": written.dropDuplicates(["msg_id"]).count(), "executors": executors}
    print(json.dumps(found), flush=True)
    spark.stop()


def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the process that started this worker: each executor has one of its own."""
    for _ in batches:
        yield pa.record_batch({"executor": pa.array([os.getppid()])})


if __name__ == "__main__":
    main(*sys.argv[1:])
