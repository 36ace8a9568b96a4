"""The sink as Spark drives it: a data frame and a stream into a topic, failures planted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from rmqclient import Message, Producer, PullConsumer, PullStatus
from rmqclient.local.backend import store_of
from rmqclient.spark.writing import staging
from rmqclient.store.inspect.verify import verify
from tests.spark.sink.sink_retried import ROWS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "s"


def numbers(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    return spark.range(0, count, 1, parts).select(
        F.col("id").cast("string").alias("value"), F.concat(F.lit("k"), F.col("id") % 50).alias("key")
    )


def save(frame: DataFrame, root: Path, **options: str) -> None:
    frame.write.format("rmq").options(topic="out", **options).mode("append").save(str(root))


def served(root: Path, topic: str = "out") -> dict[int, list[int]]:
    """Return the numbers that were written, by queue, in the order of the queue."""
    found: dict[int, list[int]] = {}
    with PullConsumer(root, group="look") as consumer:
        for queue in consumer.queues(topic):
            offset, bodies = 0, found.setdefault(queue.queue_id, [])
            while (result := consumer.pull(queue, offset, limit=1_000)).status is PullStatus.FOUND:
                bodies += [int(message.body) for message in result.messages]
                offset = result.next_offset
    return found


def all_of(queues: dict[int, list[int]]) -> Counter[int]:
    return Counter(number for numbers in queues.values() for number in numbers)


def test_a_data_frame_is_written_row_for_row_in_the_order_of_each_part(spark: SparkSession, root: Path) -> None:
    row = spark.sql(
        "SELECT cast('hello' AS binary) VALUE, 'k1 k2' Key, 'other' topic, 3 partition, 'blue' tags, "
        "map('a', 'b') properties, timestamp'2013-01-01 05:15:00.5' born_timestamp, 1 AS n"
    ).drop("n")
    row.write.format("rmq").mode("append").save(str(root))
    with PullConsumer(root, group="look") as consumer:
        (message,) = consumer.pull(consumer.queues("other")[3], 0).messages
    assert (message.body, message.keys, message.tags, message.properties["a"]) == (b"hello", ("k1", "k2"), "blue", "b")
    assert message.born_timestamp == 1_357_017_300_500

    save(numbers(spark, 20_000), root)
    queues = served(root)
    assert all_of(queues) == Counter(range(20_000))
    for found in queues.values():  # parts 0 to 9,999 and from there on, one after the other
        assert found == sorted(found)
    assert verify(root) == []


def test_tasks_know_the_process_of_their_driver(spark: SparkSession) -> None:
    def drivers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch([pa.array([staging._driver()], pa.int64())], ["pid"])

    (found,) = spark.range(0, 1, 1, 1).mapInArrow(drivers, "pid long").collect()
    java = spark._jvm
    assert java is not None
    assert found.pid == java.java.lang.ProcessHandle.current().pid()


def test_what_was_read_from_one_topic_is_written_to_another(spark: SparkSession, root: Path) -> None:
    save(numbers(spark, 2_000), root)
    read = spark.read.format("rmq").option("subscribe", "out").load(str(root))
    read.drop("offset", "timestamp").write.format("rmq").option("topic", "copy").mode("append").save(str(root))
    assert served(root, "copy") == served(root)
    with PullConsumer(root, group="look") as consumer:
        first, second = (consumer.pull(consumer.queues(topic)[1], 0).messages[0] for topic in ("out", "copy"))
    assert (first.keys, first.born_timestamp) == (second.keys, second.born_timestamp)


@pytest.mark.guarantee("G26")
def test_errors_of_rows_and_modes_reach_the_user_and_leave_nothing(spark: SparkSession, root: Path) -> None:
    with pytest.raises(Exception, match=r'mode\("overwrite"\): a log only grows'):
        numbers(spark, 1).write.format("rmq").option("topic", "out").mode("overwrite").save(str(root))
    with pytest.raises(Exception, match="column id: a write to rmq takes value, key"):
        spark.range(1).write.format("rmq").option("topic", "out").mode("append").save(str(root))
    bad = numbers(spark, 10_000).withColumn("value", F.when(F.col("value") != "9000", F.col("value")))
    with pytest.raises(Exception, match="row 4000 of part 1: column value is null"):
        save(bad, root)
    with Producer(root) as producer:
        assert store_of(producer._backend, "a test").state.published_to == 0
    assert not any((root / "spark/.staging").iterdir())


@pytest.mark.guarantee("G25")
def test_a_stream_is_written_once_beside_a_producer_and_its_query_is_told_to_tasks(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with Producer(root) as producer:
        producer.send(Message("beside", b"1"))
        add_numbers(spark, tmp_path / "in", range(5_000))
        run_stream(spark, tmp_path / "in", root, checkpoint)
        add_numbers(spark, tmp_path / "in", range(5_000, 10_000))
        query = run_stream(spark, tmp_path / "in", root, checkpoint)
        producer.send(Message("beside", b"2"))
    assert all_of(served(root)) == Counter(range(10_000))
    ledger = root / "spark" / query.id / "topics/out/ledger.json"
    assert ledger.exists()  # its name came from the task: internal to Spark

    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # as if the driver had died before Spark noted the commit: the batch comes again
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    run_stream(spark, tmp_path / "in", root, checkpoint)
    assert all_of(served(root)) == Counter(range(10_000))


@pytest.mark.spark
@pytest.mark.guarantee("G25")
def test_parts_whose_first_attempt_failed_are_written_once(root: Path, tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.spark.sink.sink_retried", str(root), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    for kind in ("batch", "stream"):
        assert list((tmp_path / kind).iterdir()), "no attempt failed"
        assert all_of(served(root, kind)) == Counter(range(ROWS))
    assert not any((root / "spark/.staging").iterdir())


@pytest.mark.guarantee("G25")
def test_a_lost_checkpoint_adds_nothing_under_the_same_name(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    numbers(spark, 3_000).write.parquet(str(tmp_path / "in"))
    for _ in range(2):
        run_stream(spark, tmp_path / "in", root, tmp_path / "checkpoint", txnAppId="mine")
        shutil.rmtree(tmp_path / "checkpoint")
    assert all_of(served(root)) == Counter(range(3_000))


def add_numbers(spark: SparkSession, source: Path, which: range) -> None:
    frame = numbers(spark, 10_000).where(f"int(value) BETWEEN {which.start} AND {which.stop - 1}")
    frame.write.mode("append").parquet(str(source))


def run_stream(spark: SparkSession, source: Path, root: Path, checkpoint: Path, **options: str) -> StreamingQuery:
    frame = spark.readStream.schema("value string, key string").parquet(str(source))
    query = (
        frame.writeStream.format("rmq")
        .options(topic="out", checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start(str(root))
    )
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    return query
