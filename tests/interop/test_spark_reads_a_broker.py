"""Spark reads the directory of a broker that runs, and follows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.brokers_store import CONF
from tests.interop.rocketmq import BROKER_4_9_7, Java, broker
from tests.spark.rows import expected, load, rows_of
from tests.support.java import why_no_spark
from tests.support.oracle import reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 200
EVERYTHING = {"includeProperties": "true", "includeMetadata": "true"}
Place = tuple[str, int, int]


@pytest.mark.skipif(bool(why_no_spark()), reason=str(why_no_spark()))
@pytest.mark.guarantee("G29")
def test_spark_reads_and_follows_a_broker_that_runs(
    spark: SparkSession,
    tmp_path: Path,
    report: list[str],
) -> None:
    root = tmp_path / "store"

    def followed() -> list[Place]:
        """Take what is new; return the places of all that was ever taken."""
        options = {"subscribe": "Plain,Batch,Later", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
        found = spark.readStream.format("rmq").options(**options).load(str(root)).writeStream.format("parquet")
        running = found.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        running.start(str(tmp_path / "sink")).awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "sink")).select("topic", "partition", "offset").collect()
        return sorted((row.topic, row.partition, row.offset) for row in rows)

    with broker(Java(BROKER_4_9_7, tmp_path / "home"), CONF.format(root=root)) as running:
        running.run("workload", MESSAGES)
        first = {split: rows_of(load(spark, root, split=split, **EVERYTHING)) for split in ("queue", "log")}
        taken = followed()
        running.run("workload", MESSAGES)
        assert len(followed()) > len(taken) > MESSAGES
        running.stop()

    # Then each row that was read meanwhile is what the broker had stored, and nothing that was sent before is missing
    stored = {(row["topic"], row["partition"], row["offset"]): row for row in expected(root)}
    for rows in first.values():
        assert len(rows) > MESSAGES
        assert [stored[row["topic"], row["partition"], row["offset"]] for row in rows] == rows
    assert taken == sorted(
        (row["topic"], row["partition"], row["offset"]) for row in first["queue"] if row["topic"] in ("Plain", "Batch")
    )
    # And what stands still is read whole
    topics = sorted({topic for topic, _ in reference.queues_on_disk(root)})
    assert rows_of(load(spark, root, subscribe=",".join(topics), **EVERYTHING)) == expected(root)
    assert followed() == sorted(place for place in stored if place[0] in ("Plain", "Batch"))
    report.append(f"Spark and {BROKER_4_9_7}: {len(first['log'])} rows while it ran, {len(stored)} in the end")
