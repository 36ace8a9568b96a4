"""Spark reads and writes topics of real clusters: the rows of the directories, once, through restarts of a query."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from pyspark.sql import functions as sql

from tests.interop.cluster.clusters import Cluster
from tests.interop.cluster.on_spark import standalone_job
from tests.interop.cluster.on_spark.standalone import environment, standalone
from tests.spark.rows import Row, load, row_of_line, rows_of
from tests.support.java import why_no_spark
from tests.support.lines import Line, of_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(bool(why_no_spark()), reason=str(why_no_spark()))

MESSAGES = 200
TOPICS = ("Plain", "Batch", "Delayed", "Retried", "Transactions", "%DLQ%retrying")
COMPRESSED = 1
SET_ON_DELIVERY = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
EVERYTHING = {"includeProperties": "true", "includeMetadata": "true"}

Name = Callable[[str], str]


def place(row: Row) -> tuple[Any, ...]:
    return row["topic"], row["store_host"], row["partition"], row["offset"]


def test_rows_are_what_java_wrote_and_what_stands_in_the_directories(
    spark: SparkSession,
    cluster: Cluster,
    report: list[str],
) -> None:
    # Given what a broker stores: properties, batches, delays, retries, dead letters and transactions
    cluster.run("workload", MESSAGES)
    found = rows_of(load(spark, cluster.url, subscribe=",".join(TOPICS), **EVERYTHING))
    assert {row["broker_name"] for row in found} == {"broker-a", "broker-b"}
    rows = {place(row): row | {"broker_name": ""} for row in found}
    assert len(rows) == len(found) > MESSAGES
    # Then Java reads the same messages
    lines = of_kind(cluster.run("inspect", "readers", *TOPICS), "message")
    as_java_sees_them = {each: seen(row) for each, row in rows.items()}
    assert as_java_sees_them == {place(row): seen(row) for row in map(row_of_opened, lines)}
    # And the directories of the brokers have them
    for node in cluster.brokers:
        mine = {each: row for each, row in rows.items() if row["store_host"] == node.address}
        stored = rows_of(load(spark, node.root, subscribe=",".join(topics_of(mine)), **EVERYTHING))
        assert {place(row): row for row in stored} == mine
    report.append(f"{cluster.java.variant}: Spark read {len(found)} messages as Java and as the directories have them")


def row_of_opened(line: Line) -> Row:
    """Return the row of a message whose body Java has decompressed."""
    return row_of_line(line | {"sys_flag": line["sys_flag"] & ~COMPRESSED}) | {"sys_flag": line["sys_flag"]}


def seen(row: Row) -> Row:
    """Return a row without what Java shows otherwise: what it sets itself, and the id of a message of a batch.

    Brokers of 5.x store the id of the batch behind that of each message, and Java takes the last one. Java 5 clears the
    flag of a body that it has decompressed.
    """
    properties = {name: value for name, value in row["properties"].items() if name not in SET_ON_DELIVERY}
    return {name: value for name, value in row.items() if name != "msg_id"} | {
        "properties": properties,
        "sys_flag": row["sys_flag"] & ~COMPRESSED,
    }


def topics_of(rows: dict[tuple[Any, ...], Row]) -> list[str]:
    return sorted({row["topic"] for row in rows.values()})


def numbers(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop, 1, 2).select(
        sql.col("id").cast("string").alias("value"),
        sql.concat(sql.lit("k"), sql.col("id") % 10).alias("key"),
        sql.concat(sql.lit("tag"), sql.col("id") % 3).alias("tags"),
    )


def save(frame: DataFrame, cluster: Cluster, topic: str) -> None:
    frame.write.format("rmq").option("topic", topic).mode("append").save(cluster.url)


def values(frame: DataFrame) -> Counter[int]:
    return Counter(int(row.value) for row in frame.select("value").collect())


def test_what_is_written_is_read_by_tag_by_time_and_by_condition(
    spark: SparkSession,
    cluster: Cluster,
    name: Name,
) -> None:
    topic = name("Numbers")
    save(numbers(spark, 0, 5_000), cluster, topic)
    assert values(load(spark, cluster.url, subscribe=topic)) == Counter(range(5_000))
    tagged = load(spark, cluster.url, subscribe=topic, subExpression="tag1")
    assert values(tagged) == Counter(range(1, 5_000, 3))
    rows = load(spark, cluster.url, subscribe=topic, minPartitions=5, **EVERYTHING)
    assert values(rows.where("tags = 'tag2' and broker_name = 'broker-a'")) <= Counter(range(2, 5_000, 3))
    middle = rows.select(sql.percentile_approx("timestamp", 0.5)).collect()[0][0]
    later = rows.where(sql.col("timestamp") >= sql.lit(middle))
    millis = rows.select(sql.max(sql.unix_millis(sql.lit(middle)))).collect()[0][0]
    by_option = load(
        spark,
        cluster.url,
        subscribe=topic,
        startingTimestamp=millis,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert values(by_option) == values(later)
    # And the rows of a key have their order
    per_key: dict[str, list[int]] = {}
    for row in sorted(rows.collect(), key=lambda row: (row.broker_name, row.partition, row.offset)):
        per_key.setdefault(row.key, []).append(int(row.value))
    halves = [[n for n in mine if (n < 2_500) is first] for mine in per_key.values() for first in (True, False)]
    assert all(half == sorted(half) for half in halves), "each of the two tasks keeps its order"


def test_a_stream_that_is_restarted_reads_and_writes_each_message(
    spark: SparkSession,
    cluster: Cluster,
    name: Name,
    tmp_path: Path,
) -> None:
    source, target = name("From"), name("To")

    def run() -> None:
        options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
        rows = spark.readStream.format("rmq").options(**options).load(cluster.url)
        writer = rows.select("key", "value").writeStream.format("rmq").option("topic", target)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start(cluster.url).awaitTermination()

    for start in (0, 1_000, 2_000):
        save(numbers(spark, start, start + 1_000), cluster, source)
        run()
    offsets = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert set(json.loads(offsets.read_text().splitlines()[-1])[source]) == {"broker-a", "broker-b"}
    written = load(spark, cluster.url, subscribe=target, **EVERYTHING)
    assert values(written.dropDuplicates(["msg_id"])) == Counter(range(3_000))


def test_a_spark_cluster_of_two_workers_reads_and_writes(
    spark: SparkSession,
    cluster: Cluster,
    name: Name,
    tmp_path: Path,
    report: list[str],
) -> None:
    source, target = name("Here"), name("There")
    save(numbers(spark, 0, 20_000), cluster, source)
    with standalone(tmp_path, workers=2) as master:
        command = [sys.executable, standalone_job.__file__, master, cluster.url, source, target]
        ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == {"read": 20_000, "written": 20_000, "executors": 2}
    report.append(f"{cluster.java.variant}: 2 executors of a Spark standalone cluster read and wrote 20,000 messages")
