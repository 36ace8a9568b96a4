"""Scans: rows a second that Spark reads and writes, in a store and in the other forms of the same messages.

Runs in a child, in one session. Every round measures each form of the messages in turn, right after its files were read
once: the forms do not all fit into memory together.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from benchmarks.child import Begin
from benchmarks.machine import REPOSITORY
from benchmarks.measure import touch_pages
from benchmarks.spark import rows as spark_rows
from benchmarks.spark.kafka import Kafka
from benchmarks.spark.rows import Rows
from benchmarks.spark.tuples import TupleSource
from rmqclient.spark import session

SCAN = "scan"
AGGREGATE = "aggregate"
PROJECTED = "aggregate, its columns asked for"
BODILESS = "aggregate without the body, its columns asked for"
ARCHIVE = "write Parquet"
WRITE = "write"

_QUERIES = {
    SCAN: None,
    AGGREGATE: None,
    PROJECTED: "partition int, offset long, value binary, timestamp timestamp, tags string",
    BODILESS: "partition int, offset long, timestamp timestamp, tags string",
}
_MEMORY = "3g"
_WARM_MESSAGES = 40_000
_RECORD_BYTES = 256
"""Somewhat more bytes than a record has besides its body."""


class Cluster(NamedTuple):
    """A RocketMQ cluster that runs, and may make topics."""

    url: str
    files: Path
    """The directory of its broker's files."""


class Job(NamedTuple):
    """The work of one child."""

    messages: int
    tuples: int
    body_bytes: int
    rounds: int
    kafka: Kafka | None
    cluster: Cluster | None = None


class Taken(NamedTuple):
    """Rows a second of one form, in one round."""

    name: str
    rate: float


def figure(what: str, form: str) -> str:
    """Return the name of a figure."""
    return f"{what}: {form}"


def measure(begin: Begin, directory: Path, job: Job) -> list[Taken]:
    """Put the messages into every form and measure each in every round.

    A round with few messages comes first and does not count, because Java compiles code only after a while.
    """
    begin()
    with spark_session(job.kafka) as spark:
        if job.messages > _WARM_MESSAGES:
            few = job._replace(messages=_WARM_MESSAGES, tuples=_WARM_MESSAGES, rounds=1)
            _measure(spark, directory / "warm", few)
        return _measure(spark, directory / "measured", job)


@contextmanager
def spark_session(kafka: Kafka | None = None) -> Iterator[SparkSession]:
    """Open a session with two cores, and stop it at the end."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    settings = {"spark.driver.memory": _MEMORY, "spark.log.level": "OFF"}
    if kafka is not None:
        settings["spark.jars"] = kafka.connector
    spark = session("local[2]", "benchmarks", **settings)
    spark.dataSource.register(TupleSource)
    try:
        yield spark
    finally:
        spark.stop()


def _measure(spark: SparkSession, directory: Path, job: Job) -> list[Taken]:
    directory.mkdir()
    taken: list[Taken] = []
    forms = list(_forms(spark, directory, job, taken))
    for _ in range(job.rounds):
        known: dict[str, list[Row]] = {}
        for rows in forms:
            spark_rows.into_page_cache(rows.files)
            taken += _read(spark, rows, known)
        taken += _write(spark, {rows.name: rows for rows in forms}, directory / "written", job)
    shutil.rmtree(directory)
    return taken


def _forms(spark: SparkSession, directory: Path, job: Job, taken: list[Taken]) -> Iterator[Rows]:
    """Write the messages in every form; Parquet gets them from the source that yields tuples."""
    root, parquet, json = directory / "store", directory / "parquet", directory / "json"
    spark_rows.fill(lambda: None, root, job.messages, job.body_bytes)
    spark_rows.write_parquet(spark_rows.of_tuples(root, job.messages).read(spark, None), parquet)
    of_parquet = spark_rows.of_parquet(parquet, job.messages)
    spark_rows.write_json(of_parquet.read(spark, None), json)
    yield spark_rows.of_store(root, job.messages)
    yield of_parquet
    yield spark_rows.of_json(json, job.messages)
    yield spark_rows.of_tuples(root, job.tuples)
    if job.kafka is not None:
        topic = directory.name
        begun = time.monotonic()
        spark_rows.write_kafka(of_parquet.read(spark, None), job.kafka, topic)
        taken.append(Taken(figure(WRITE, spark_rows.KAFKA), job.messages / (time.monotonic() - begun)))
        yield spark_rows.of_kafka(job.kafka, topic, job.messages, tuned=False)
        yield spark_rows.of_kafka(job.kafka, topic, job.messages, tuned=True)
    if job.cluster is not None:
        topic = f"scans-{uuid.uuid4().hex[:8]}"
        begun = time.monotonic()
        spark_rows.write_cluster(of_parquet.read(spark, None), job.cluster.url, topic)
        taken.append(Taken(figure(WRITE, spark_rows.CLUSTER), job.messages / (time.monotonic() - begun)))
        yield spark_rows.of_cluster(job.cluster.url, topic, job.messages, job.cluster.files)
    os.sync()


def _read(spark: SparkSession, rows: Rows, known: dict[str, list[Row]]) -> Iterator[Taken]:
    for query, schema in _QUERIES.items():
        if schema is None or rows.projects:
            begun = time.monotonic()
            frame = rows.read(spark, schema)
            if query == SCAN:
                frame.write.format("noop").mode("overwrite").save()
            else:
                result = sorted(_aggregated(rows, frame).collect())
                _check(rows, result, known.setdefault(query, result))
            yield Taken(figure(query, rows.name), rows.messages / (time.monotonic() - begun))


def _aggregated(rows: Rows, frame: DataFrame) -> DataFrame:
    by = [column for column in ("partition", "tags") if column in rows.columns]
    body = [sql.sum(sql.length("value"))] if "value" in frame.columns else []
    numbers = [sql.max("offset"), sql.min("timestamp"), sql.max("timestamp"), *body]
    return frame.groupBy(*by).agg(sql.count("*").alias("messages"), *numbers)


def _check(rows: Rows, result: list[Row], first: list[Row]) -> None:
    """Raise RuntimeError unless all messages were read and equal those of the first form."""
    if sum(row["messages"] for row in result) != rows.messages:
        raise RuntimeError(f"{rows.name}: not {rows.messages} messages: {result}")
    if rows.is_whole and result != first:
        raise RuntimeError(f"{rows.name}: {result} instead of {first}")


def _write(spark: SparkSession, forms: dict[str, Rows], target: Path, job: Job) -> Iterator[Taken]:
    """Write Parquet from the store and from Parquet, and a store from Parquet."""
    store, parquet = forms[spark_rows.STORE], forms[spark_rows.PARQUET]
    for name, rows, write in (
        (figure(ARCHIVE, store.name), store, spark_rows.write_parquet),
        (figure(ARCHIVE, parquet.name), parquet, spark_rows.write_parquet),
        (figure(WRITE, store.name), parquet, spark_rows.write_store),
    ):
        spark_rows.into_page_cache(rows.files)
        touch_pages(target, job.messages * (job.body_bytes + _RECORD_BYTES))
        begun = time.monotonic()
        write(rows.read(spark, None), target)
        yield Taken(name, rows.messages / (time.monotonic() - begun))
        if write is spark_rows.write_store and (count := spark_rows.count_store(target)) != rows.messages:
            raise RuntimeError(f"{count} instead of {rows.messages} messages were written to the store")
        shutil.rmtree(target)
        os.sync()
