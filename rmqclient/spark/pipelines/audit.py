"""Audit: reports the content of the log, read from the log itself.

- By topic and hour of the store time: messages, bytes, repeated messages, and quantiles of the latency from sending to
  storing. The rows of ``%RETRY%group`` and ``%DLQ%group`` name the group: they count its retries and dead letters.
- By queue: the offsets that exist, and the offsets without a readable message.
- By group and queue: the committed offset in ``config/consumerOffset.json``, and its lag. The file is written every
  five seconds while the store is open; ``rmq group lag`` shows the present state.

The audit writes nothing to the store and takes no lock, so the store may be a broker's, or a copy. For a cluster it
leaves out the groups, whose offsets the brokers have: ``rmq group lag`` shows them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.window import Window

from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqclient.spark.pipelines.reading import (
    Options,
    Topics,
    asked_for,
    latency_ms,
    messages,
    offsets_json,
    queues_json,
)
from rmqclient.spark.reading.places import open_place
from rmqclient.spark.scan.offsets import available
from rmqclient.store import MessageQueue
from rmqclient.store.settings.config_file import read_consumer_offsets

_COLUMNS = ("topic", "broker_name", "partition", "offset", "timestamp", "born_timestamp", "size", "msg_id")
_QUEUE = ("topic", "broker_name", "partition")
_QUANTILES = (0.5, 0.95, 0.99)
_ACCURACY = 10_000
"""Accuracy of quantiles: the error is at most a ten-thousandth of the ranks."""
_MS_OF_AN_HOUR = 3_600_000


@dataclass(frozen=True)
class TopicHour:
    """The messages stored in a topic in an hour."""

    topic: str
    group: str | None
    """The group that retried or gave up these messages; None for any other topic."""

    hour_ms: int
    messages: int
    bytes: int
    """Bytes of whole records."""

    doubled: int
    """Messages whose message id the topic has already, as after a replay."""

    latency_p50_ms: int
    latency_p95_ms: int
    latency_p99_ms: int
    latency_max_ms: int


@dataclass(frozen=True)
class QueueFinding:
    """The findings about one queue."""

    topic: str
    queue_id: int
    first: int
    end: int
    """Exclusive."""

    messages: int
    """More than there are offsets if compressed batches are among them."""

    missing: int
    """Offsets without a readable message."""

    gaps: tuple[tuple[int, int], ...]
    """The first ranges of offsets without a readable message, each as (first, exclusive end)."""

    broker_name: str = ""
    """The broker of the queue in a cluster; empty for a store."""


@dataclass(frozen=True)
class GroupFinding:
    """The lag of a group in one queue."""

    group: str
    topic: str
    queue_id: int
    committed: int
    end: int
    lag: int


@dataclass(frozen=True)
class Audited:
    """The result of :func:`audit`."""

    hours: list[TopicHour]
    queues: list[QueueFinding]
    groups: list[GroupFinding]

    @property
    def is_clean(self) -> bool:
        """Whether every offset has a message."""
        return not any(queue.missing for queue in self.queues)


def audit(
    spark: SparkSession,
    store: str | os.PathLike[str],
    topics: Topics = (),
    *,
    most_gaps: int = 100,
    options: Options | None = None,
) -> Audited:
    """Audit some topics as they are now. By default, audit all topics except the store's own.

    The report lists at most ``most_gaps`` ranges without messages for each queue. ``options`` are those of the source,
    except the options for offsets.
    """
    asked = asked_for(store, topics, options or {})
    place = open_place(asked)
    there = available(place, asked.selection)
    there = {queue: offsets for queue, offsets in there.items() if offsets}
    groups = [] if asked.is_cluster else _groups(Path(store), there)
    if not there:
        return Audited([], [], groups)
    rows = messages(spark, store, (), _COLUMNS, dict(options or {}) | _exactly(there)).persist()
    try:
        return Audited(_hours(rows), _queues(rows, there, most_gaps), groups)
    finally:
        rows.unpersist()


def _exactly(there: dict[MessageQueue, range]) -> dict[str, str | int | bool]:
    """Return the options that read these offsets and skip lost messages."""
    return {
        "assign": queues_json(there),
        "startingOffsets": offsets_json({queue: offsets.start for queue, offsets in there.items()}),
        "endingOffsets": offsets_json({queue: offsets.stop for queue, offsets in there.items()}),
        "failOnDataLoss": False,
    }


def _hours(rows: DataFrame) -> list[TopicHour]:
    copies = Window.partitionBy("topic", "msg_id").orderBy("timestamp", *_QUEUE[1:], "offset")
    quantiles = sql.percentile_approx("latency", list(_QUANTILES), _ACCURACY)
    found = (
        rows.withColumns(
            {
                "latency": latency_ms(),
                "copy": sql.row_number().over(copies),
                "rows_of_record": sql.count("*").over(Window.partitionBy(*_QUEUE, "offset")),
                "hour_ms": sql.floor(sql.unix_millis("timestamp") / sql.lit(_MS_OF_AN_HOUR)) * sql.lit(_MS_OF_AN_HOUR),
            }
        )
        .groupBy("topic", "hour_ms")
        .agg(
            sql.count("*").alias("messages"),
            sql.round(sql.sum(sql.col("size") / sql.col("rows_of_record"))).cast("long").alias("bytes"),
            sql.count_if(sql.col("copy") > 1).alias("doubled"),
            quantiles.alias("quantiles"),
            sql.max("latency").alias("latency_max_ms"),
        )
        .orderBy("topic", "hour_ms")
        .collect()
    )
    return [
        TopicHour(
            topic=row["topic"],
            group=_group_of(row["topic"]),
            hour_ms=row["hour_ms"],
            messages=row["messages"],
            bytes=row["bytes"],
            doubled=row["doubled"],
            latency_p50_ms=row["quantiles"][0],
            latency_p95_ms=row["quantiles"][1],
            latency_p99_ms=row["quantiles"][2],
            latency_max_ms=row["latency_max_ms"],
        )
        for row in found
    ]


def _queues(rows: DataFrame, there: dict[MessageQueue, range], most_gaps: int) -> list[QueueFinding]:
    before = sql.lag("offset").over(Window.partitionBy(*_QUEUE).orderBy("offset"))
    holes = sql.when(
        sql.col("offset") - sql.col("before") > 1, sql.struct((sql.col("before") + 1).alias("start"), "offset")
    )
    found = (
        rows.select(*_QUEUE, "offset", before.alias("before"))
        .groupBy(*_QUEUE)
        .agg(
            sql.count("*").alias("messages"),
            sql.count_if(sql.coalesce("before", sql.lit(-1)) < sql.col("offset")).alias("found"),
            sql.min("offset").alias("first"),
            sql.max("offset").alias("last"),
            sql.slice(sql.array_sort(sql.collect_list(holes)), 1, most_gaps).alias("holes"),
        )
        .collect()
    )
    by_queue = {MessageQueue(row["topic"], row["partition"], row["broker_name"]): row for row in found}
    return [_finding(queue, offsets, by_queue.get(queue), most_gaps) for queue, offsets in sorted(there.items())]


def _finding(queue: MessageQueue, offsets: range, row: Row | None, most_gaps: int) -> QueueFinding:
    if row is None:
        gaps, count, found = [(offsets.start, offsets.stop)], 0, 0
    else:
        inside = [(hole["start"], hole["offset"]) for hole in row["holes"]]
        around = [(offsets.start, row["first"]), *inside, (row["last"] + 1, offsets.stop)]
        gaps, count, found = [gap for gap in around if gap[0] < gap[1]], row["messages"], row["found"]
    return QueueFinding(
        topic=queue.topic,
        queue_id=queue.queue_id,
        first=offsets.start,
        end=offsets.stop,
        messages=count,
        missing=len(offsets) - found,
        gaps=tuple(gaps[:most_gaps]),
        broker_name=queue.broker_name,
    )


def _groups(root: Path, there: dict[MessageQueue, range]) -> list[GroupFinding]:
    found = []
    for (topic, group), committed in sorted(read_consumer_offsets(root).items()):
        for queue_id, offset in sorted(committed.items()):
            end = there.get(MessageQueue(topic, queue_id), range(0)).stop
            if MessageQueue(topic, queue_id) in there:
                found.append(GroupFinding(group, topic, queue_id, offset, end, max(0, end - offset)))
    return sorted(found, key=lambda each: (each.group, each.topic, each.queue_id))


def _group_of(topic: str) -> str | None:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None
