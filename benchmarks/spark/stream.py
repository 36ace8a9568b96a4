"""Streams: how long a micro-batch takes while a producer sends, and the cost of a task that has almost nothing to do.

Runs in a child, in one session. The producer is another child and sends a fixed number of messages a second.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.child import Begin, Child
from benchmarks.spark import rows as spark_rows
from benchmarks.spark.scans import spark_session
from benchmarks.traffic import KEYS
from rmqclient import Message, Producer

NOOP = "dropped"
PARQUET = "to Parquet"
STORE = "to another store"
SPARK = "of Spark itself"

_CORES = 2
_FEW_TASKS = spark_rows.QUEUES
"""The source that yields tuples has one for each queue at least."""
_BODY = bytes(100)
_NOT_COUNTED = 5
"""Batches of each query that are not counted: the first ones are slower."""
_START_S = 60.0
_LONGEST_BATCH_S = 10.0
_TINY = 20_000
"""Messages behind the tasks that have little to do."""


class Job(NamedTuple):
    """The work of the child."""

    rounds: int
    batches: int
    rate: int
    """Messages a second."""
    tasks: int
    """A multiple of the number of queues."""


class Batches(NamedTuple):
    """The micro-batches of one query."""

    sink: str
    median_ms: float
    p95_ms: float
    messages_a_second: float


class Task(NamedTuple):
    """The cost of one more task for a core."""

    source: str
    ms: float


class Measured(NamedTuple):
    """The results of the child."""

    batches: list[Batches]
    tasks: list[Task]


def measure(begin: Begin, directory: Path, job: Job) -> Measured:
    """Run a query into every sink in every round, then few and many tasks from every source in every round.

    A shorter query and a round of tasks come first and do not count.
    """
    begin()
    stream, tiny = directory / "stream", directory / "tiny"
    spark_rows.fill(lambda: None, tiny, _TINY, len(_BODY))
    with spark_session() as spark:
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 10 * (job.batches + _NOT_COUNTED))
        _batches(spark, stream / "not-counted", NOOP, job.batches // 2, job.rate)
        batches = [
            _batches(spark, stream / f"{number}-{sink}", sink, job.batches, job.rate)
            for number in range(job.rounds)
            for sink in (NOOP, PARQUET, STORE)
        ]
        tasks = [_task(spark, tiny, source, job.tasks) for _ in range(1 + job.rounds) for source in _SOURCES]
    for path in (stream, tiny):  # not sooner: tasks of a query that was stopped still write for a moment
        shutil.rmtree(path)
    return Measured(batches, tasks[len(_SOURCES) :])


def send_steadily(begin: Begin, root: Path, rate: int, end: Path) -> None:
    """Send messages one by one at a fixed rate until the file ``end`` exists."""
    keys = cycle(KEYS)
    sent = 0
    with Producer(root) as producer:
        begin()
        begun_ns = time.monotonic_ns()
        while not end.exists():
            while sent < (time.monotonic_ns() - begun_ns) * rate // 10**9:
                producer.send(Message(spark_rows.TOPIC, _BODY, tags=spark_rows.TAGS[0], keys=(next(keys),)))
                sent += 1
            time.sleep(0.001)


def _batches(spark: SparkSession, directory: Path, sink: str, count: int, rate: int) -> Batches:
    """Run one query on a new store while a producer sends to it. Raises RuntimeError if it makes too few batches."""
    directory.mkdir(parents=True)
    root, target, end = directory / "store", directory / "target", directory / "end"
    for path in (root, target) if sink == STORE else (root,):
        with Producer(path) as producer:
            producer.create_topic(spark_rows.TOPIC, spark_rows.QUEUES)
    sender = Child(send_steadily, root, rate, end)
    try:
        sender.wait_until_ready()
        stream = spark.readStream.format("rmq").option("subscribe", spark_rows.TOPIC).load(str(root))
        query = _into(stream, sink, target).option("checkpointLocation", str(directory / "checkpoint")).start()
        sender.begin()
        counted = _progress(query, count)
    finally:
        end.touch()
        sender.result()
    query.stop()
    took_ms = [each.durationMs["triggerExecution"] for each in counted]
    rows = sum(each.numInputRows for each in counted)
    return Batches(sink, statistics.median(took_ms), _p95(took_ms), rows / sum(took_ms) * 1e3)


def _progress(query: StreamingQuery, count: int) -> list[StreamingQueryProgress]:
    """Wait for a number of batches after those that are not counted, and return them."""
    wanted = count + _NOT_COUNTED
    deadline = time.monotonic() + _START_S + wanted * _LONGEST_BATCH_S
    while time.monotonic() < deadline and query.isActive:
        if (last := query.lastProgress) and last.batchId >= wanted:
            return [each for each in query.recentProgress if each.numInputRows][_NOT_COUNTED:]
        time.sleep(0.2)
    raise RuntimeError(f"less than {wanted} micro-batches, and not one more: {query.exception()}")


def _into(stream: DataFrame, sink: str, target: Path) -> DataStreamWriter:
    if sink == NOOP:
        return stream.writeStream.format("noop")
    if sink == PARQUET:
        return stream.writeStream.format("parquet").option("path", str(target))
    chosen = stream.select("key", "value", "tags")
    return chosen.writeStream.format("rmq").option("topic", spark_rows.TOPIC).option("path", str(target))


def _p95(values: list[int]) -> float:
    return sorted(values)[len(values) * 95 // 100]


def _task(spark: SparkSession, root: Path, source: str, tasks: int) -> Task:
    took_s = []
    for count in (_FEW_TASKS, tasks):
        begun = time.monotonic()
        _SOURCES[source](spark, root, count).write.format("noop").mode("overwrite").save()
        took_s.append(time.monotonic() - begun)
    return Task(source, (took_s[1] - took_s[0]) / (tasks - _FEW_TASKS) * _CORES * 1e3)


def _of_store(spark: SparkSession, root: Path, tasks: int) -> DataFrame:
    reader = spark.read.format("rmq").option("subscribe", spark_rows.TOPIC).option("minPartitions", tasks)
    return reader.load(str(root))


def _of_tuples(spark: SparkSession, root: Path, tasks: int) -> DataFrame:
    reader = spark.read.format("tuples").option("subscribe", spark_rows.TOPIC)
    return reader.option("parts", tasks // spark_rows.QUEUES).load(str(root))


def _of_spark(spark: SparkSession, _root: Path, tasks: int) -> DataFrame:
    return spark.range(0, _TINY, 1, tasks)


_SOURCES: dict[str, Callable[[SparkSession, Path, int], DataFrame]] = {
    spark_rows.STORE: _of_store,
    spark_rows.TUPLES: _of_tuples,
    SPARK: _of_spark,
}
