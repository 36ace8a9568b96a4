"""Rows that a sink writes, without Spark's own processes, and what is then in the store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqclient import PullConsumer, PullStatus, ReceivedMessage
from rmqclient.spark.writing import staging
from rmqclient.spark.writing.writer import BatchWriter, StreamWriter, Written
from rmqclient.store import MessageQueue

TYPES: dict[str, DataType] = {
    "value": BinaryType(),
    "key": StringType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "tags": StringType(),
    "properties": MapType(StringType(), StringType()),
    "born_timestamp": TimestampType(),
}
ARROW: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "key": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "born_timestamp": pa.timestamp("us", tz="UTC"),
}


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = [name for name in ARROW if any(name in row for row in rows)]
    return pa.record_batch([pa.array([row.get(name) for row in rows], ARROW[name]) for name in names], names)


def schema_of(batch: pa.RecordBatch) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in batch.schema.names])


def write(root: Path, *parts: list[dict[str, Any]], **options: str) -> None:
    """Write as Spark does: each part by a task of its own, then the commit."""
    batches = [batch_of(part) for part in parts]
    writer = BatchWriter({"path": str(root), **options}, schema_of(batches[0]), overwrite=False)
    writer.commit([staged(writer, number, batch) for number, batch in enumerate(batches)])


def staged(writer: BatchWriter | StreamWriter, part: int, batch: pa.RecordBatch, query: str | None = None) -> Written:
    inner = writer._staging
    found = staging.stage(inner.options.root, inner.run, part, 0, iter([batch]), inner.options.topic)
    return Written(inner.run, found, query)


def stream(root: Path, number: int, *parts: list[dict[str, Any]], query: str = "q", **options: str) -> None:
    """Write a micro-batch as Spark does: another writer commits than the one that has staged."""
    batches = [batch_of(part) for part in parts]
    given = {"path": str(root), "topic": "out", **options}
    tasks = StreamWriter(given, schema_of(batches[0]), overwrite=False)
    messages = [staged(tasks, part, batch, query) for part, batch in enumerate(batches)]
    StreamWriter(given, schema_of(batches[0]), overwrite=False).commit(messages, number)


def rows_of(root: Path, topic: str = "out") -> list[ReceivedMessage]:
    """Return every message of a topic, queue by queue."""
    with PullConsumer(root, group="look") as consumer:
        return [message for queue in consumer.queues(topic) for message in messages_of(consumer, queue)]


def messages_of(consumer: PullConsumer, queue: MessageQueue) -> Iterable[ReceivedMessage]:
    offset = 0
    while (result := consumer.pull(queue, offset, limit=1_000)).status is PullStatus.FOUND:
        yield from result.messages
        offset = result.next_offset


def numbered(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number} for number in range(first, first + count)]


def bodies(messages: Iterable[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def left_in_staging(root: Path) -> list[str]:
    try:
        return sorted(path.name for path in (root / staging.DIRECTORY).iterdir() if any(path.iterdir()))
    except FileNotFoundError:
        return []
