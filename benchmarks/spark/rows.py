"""Rows: the same messages in a store, in Parquet, in JSON lines and in Kafka, and how Spark reads each."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from benchmarks.child import Begin
from benchmarks.measure import Span
from benchmarks.spark.kafka import Kafka
from rmqclient import Message, Producer
from rmqclient.spark.scan.columns import schema_of
from rmqclient.store.inspect.view import LocalView

TOPIC = "benchmark"
QUEUES = 8
TAGS = tuple(f"kind-{number}" for number in range(10))

STORE = "the store"
PARQUET = "Parquet"
JSON = "JSON lines"
TUPLES = "a source that yields tuples"
KAFKA = "kafka"
TUNED_KAFKA = "kafka, tuned for long reads"
CLUSTER = "a RocketMQ cluster"

TUNING = {
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
}
_COLUMNS = frozenset(schema_of().names)
_ALL = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in schema_of())
_FIRST_ORDER = 1_000_000_000
_TEXT_BYTES = 1 << 20
_STRIDE = 7_919
"""Distance of two messages' notes in the text they are cut from, in bytes: notes of neighbours do not overlap."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The same messages in one form."""

    name: str
    files: Path
    messages: int
    columns: frozenset[str]
    read: Callable[[SparkSession, str | None], DataFrame]
    """Returns the DataFrame; takes a schema if only some columns are wanted."""
    projects: bool = True
    """Whether it is measured with a schema of only some columns."""
    is_whole: bool = True
    """Whether it has all messages, with their tags and times in the store."""


def fill(begin: Begin, root: Path, messages: int, body_bytes: int) -> Span:
    """Send messages one by one to the 8 queues of a topic in turn, each with its own key, tag and body."""
    body = _bodies(body_bytes)
    with Producer(root) as producer:
        producer.create_topic(TOPIC, QUEUES)
        begin()
        begun_ns = time.monotonic_ns()
        for number, tag in enumerate(islice(cycle(TAGS), messages)):
            producer.send(Message(TOPIC, body(number), tags=tag, keys=(f"order-{number}",)))
        return Span(messages=messages, record_bytes=0, begun_ns=begun_ns, ended_ns=time.monotonic_ns())


def of_store(root: Path, messages: int) -> Rows:
    """Return the messages of a store, through the source."""

    def read(spark: SparkSession, schema: str | None) -> DataFrame:
        reader = spark.read.format("rmq").option("subscribe", TOPIC)
        return (reader.schema(schema) if schema else reader).load(str(root))

    return Rows(name=STORE, files=root, messages=messages, columns=_COLUMNS, read=read)


def of_tuples(root: Path, messages: int) -> Rows:
    """Return the first messages of a store, through the source that yields tuples."""
    of_queue = messages // QUEUES

    def read(spark: SparkSession, _schema: str | None) -> DataFrame:
        reader = spark.read.format("tuples").option("subscribe", TOPIC).option("messages", of_queue)
        return reader.load(str(root))

    return Rows(
        name=TUPLES,
        files=root,
        messages=of_queue * QUEUES,
        columns=_COLUMNS,
        read=read,
        projects=False,
        is_whole=False,
    )


def of_parquet(directory: Path, messages: int) -> Rows:
    """Return the messages that were written to Parquet."""

    def read(spark: SparkSession, schema: str | None) -> DataFrame:
        return spark.read.schema(schema or _ALL).parquet(str(directory))

    return Rows(name=PARQUET, files=directory, messages=messages, columns=_COLUMNS, read=read)


def of_json(directory: Path, messages: int) -> Rows:
    """Return the messages that were written as JSON lines, the body as text."""

    def read(spark: SparkSession, _schema: str | None) -> DataFrame:
        return spark.read.schema(_ALL.replace("value binary", "value string")).json(str(directory))

    return Rows(name=JSON, files=directory, messages=messages, columns=_COLUMNS, read=read, projects=False)


def of_kafka(kafka: Kafka, topic: str, messages: int, *, tuned: bool) -> Rows:
    """Return the messages of a topic of a broker, with the defaults of Kafka's clients or tuned for long reads."""

    def read(spark: SparkSession, _schema: str | None) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.servers)
        return reader.options(**(TUNING if tuned else {})).option("subscribe", topic).load()

    return Rows(
        name=TUNED_KAFKA if tuned else KAFKA,
        files=kafka.files,
        messages=messages,
        columns=_COLUMNS - {"tags"},
        read=read,
        projects=False,
        is_whole=False,
    )


def of_cluster(url: str, topic: str, messages: int, files: Path) -> Rows:
    """Return the messages of a topic of a RocketMQ cluster; ``files`` is the directory of its broker.

    They are grouped by queue alone, as Kafka's are, with which they are compared.
    """

    def read(spark: SparkSession, schema: str | None) -> DataFrame:
        reader = spark.read.format("rmq").option("subscribe", topic)
        return (reader.schema(schema) if schema else reader).load(url)

    columns = _COLUMNS - {"tags"}
    return Rows(name=CLUSTER, files=files, messages=messages, columns=columns, read=read, is_whole=False)


def write_parquet(rows: DataFrame, directory: Path) -> None:
    """Write all columns, with Spark's defaults."""
    rows.write.mode("overwrite").parquet(str(directory))


def write_json(rows: DataFrame, directory: Path) -> None:
    """Write all columns; the body as text."""
    rows.withColumn("value", sql.col("value").cast("string")).write.json(str(directory))


def write_kafka(rows: DataFrame, kafka: Kafka, topic: str) -> None:
    """Write key, value and partition with Spark's connector; Kafka has no tags."""
    chosen = rows.select(sql.lit(topic).alias("topic"), "partition", "key", "value")
    chosen.write.format("kafka").option("kafka.bootstrap.servers", kafka.servers).save()


def write_cluster(rows: DataFrame, url: str, topic: str) -> None:
    """Write key, value and tags to a topic of a RocketMQ cluster."""
    rows.select("key", "value", "tags").write.format("rmq").option("topic", topic).mode("append").save(url)


def write_store(rows: DataFrame, root: Path) -> None:
    """Write key, value and tags into a topic of 8 queues of a new store."""
    with Producer(root) as producer:
        producer.create_topic(TOPIC, QUEUES)
    chosen = rows.select("key", "value", "tags")
    chosen.write.format("rmq").mode("append").option("topic", TOPIC).save(str(root))


def count_store(root: Path) -> int:
    """Return the number of messages in the topic."""
    view = LocalView(root)
    return sum(len(view.offsets(queue)) for queue in view.queues() if queue.topic == TOPIC)


def into_page_cache(directory: Path) -> None:
    """Read all files, so that the next reader finds them in memory."""
    chunk = bytearray(1 << 20)
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(chunk):
                    pass


def _bodies(size: int) -> Callable[[int], bytes]:
    """Return the parts of a JSON document of a given size: a number, an amount, and an incompressible note."""
    alphabet = string.ascii_letters + string.digits + "-_"
    text = "".join(random.Random(size).choices(alphabet, k=_TEXT_BYTES + size)).encode()
    room = size - len(_document(0, b""))

    def body(number: int) -> bytes:
        at = number * _STRIDE % _TEXT_BYTES
        return _document(number, text[at : at + room])

    return body


def _document(number: int, note: bytes) -> bytes:
    return b'{"order":%d,"amount":%d,"note":"%b"}' % (_FIRST_ORDER + number, 100_000 + number * 31 % 900_000, note)
