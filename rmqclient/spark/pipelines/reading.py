"""Reading: reads the messages for a pipeline, with only the columns that the pipeline needs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from rmqclient.arrow.ranges import Offsets
from rmqclient.place import CLUSTER_SCHEME, scheme_of
from rmqclient.spark.reading.places import open_place
from rmqclient.spark.scan.columns import schema_with
from rmqclient.spark.scan.offsets import selected
from rmqclient.spark.scan.queue_json import to_json
from rmqclient.spark.scan.read_options import ReadOptions, parse
from rmqclient.store import MessageQueue

Topics: TypeAlias = Sequence[str]
"""Names of topics; empty if the options select the topics."""

Options: TypeAlias = Mapping[str, str | int | bool]

POSITION = "position"

_MS_OF_A_DAY = 86_400_000


def messages(
    spark: SparkSession, store: str | os.PathLike[str], topics: Topics, columns: Iterable[str], options: Options
) -> DataFrame:
    """Return the present messages of ``topics``. ``options`` are those of the source, such as ``startingTimestamp``."""
    reader = spark.read.format("rmq").schema(schema_with(columns))
    return reader.options(**_options(topics, options)).load(os.fspath(store))


def with_position(rows: DataFrame) -> DataFrame:
    """Return rows as they were read, with a column that orders the rows of each queue, also those of one batch.

    A compressed batch is one record: all of its rows have one offset.
    """
    return rows.withColumn(POSITION, sql.monotonically_increasing_id())


def growing_messages(
    spark: SparkSession, store: str | os.PathLike[str], topics: Topics, columns: Iterable[str], options: Options
) -> DataFrame:
    """Return the stream of all present and future messages of ``topics``, from the earliest message on."""
    reader = spark.readStream.format("rmq").schema(schema_with(columns))
    return reader.options(**{"startingOffsets": "earliest"} | _options(topics, options)).load(os.fspath(store))


def asked_for(
    store: str | os.PathLike[str], topics: Topics, options: Options, *, streaming: bool = False
) -> ReadOptions:
    """Return the options of a read of ``topics``; without topics, of all but the store's own. Raises ValueError."""
    selection = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": ".*"}
    return parse(_told(options) | selection | {"path": os.fspath(store)}, streaming=streaming)


def check_topics(store: str | os.PathLike[str], topics: Topics, options: Options) -> None:
    """Raise UnknownTopic for a topic to which nothing was ever sent: a stream would wait for it and read nothing."""
    asked = asked_for(store, topics, options, streaming=True)
    if topics:
        place = open_place(asked)
        selected(place, asked.selection)


def _options(topics: Topics, options: Options) -> dict[str, str]:
    if isinstance(topics, str):
        raise ValueError(f"topics {topics!r}: give a list of names, such as [{topics!r}]")  # noqa: TRY004 - as others
    return ({"subscribe": ",".join(topics)} if topics else {}) | _told(options)


def _told(options: Options) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def offsets_json(offsets: Offsets) -> str:
    """Return offsets as the JSON of an option."""
    return json.dumps(to_json(offsets))


def queues_json(queues: Iterable[MessageQueue]) -> str:
    """Return queues as the JSON of the option ``assign``."""
    found: dict[str, Any] = {}
    for queue in sorted(queues):
        if queue.broker_name:
            found.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
        else:
            found.setdefault(queue.topic, []).append(queue.queue_id)
    return json.dumps(found)


def is_cluster(store: str | os.PathLike[str]) -> bool:
    """Return whether a store is a cluster, named by its URL."""
    return scheme_of(store) == CLUSTER_SCHEME


def day_of(timestamp: str) -> Column:
    """Return the day in UTC of a column of times, independent of the session's time zone."""
    days = sql.floor(sql.unix_millis(timestamp) / sql.lit(_MS_OF_A_DAY)).cast("int")
    return sql.date_add(sql.lit("1970-01-01").cast("date"), days)


def latency_ms() -> Column:
    """Return the milliseconds from sending, by the producer's clock, to storing."""
    return sql.unix_millis("timestamp") - sql.unix_millis("born_timestamp")


def local_directory(target: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a directory to write to. Raises ValueError for a URL."""
    text = os.fspath(target)
    if "://" in text:
        raise ValueError(
            f"{text}: give a directory that the driver and every executor see under the same path; an object store "
            "lacks the atomic rename that makes each message appear exactly once"
        )
    return Path(text).absolute()
