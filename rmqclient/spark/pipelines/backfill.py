"""Backfill: sends a range of messages, transformed, to another topic, each once and in order.

The first run settles the range of each queue, and writes it to ``<target store>/spark/NAME.backfill.json``. The range
is sent in chunks. Each chunk is one batch write with ``txnAppId=NAME`` and its number as ``txnVersion``. After a kill,
run the backfill again under the same name: it skips the chunks that are in the log, and completes a chunk that was
half-way (:mod:`rmqclient.spark.writing.committing`).

A message keeps its queue id by default, and the messages of a queue keep their order. A Python function may shuffle its
rows. Its result is therefore sorted by commit log offset, and must keep that column. The messages of a compressed batch
have one commit log offset; the column ``position`` keeps their order, if the function keeps that column.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from rmqclient.arrow.columns import PROPERTIES, USUAL
from rmqclient.errors import NotOnCluster
from rmqclient.names import check_group, check_topic
from rmqclient.spark.pipelines.reading import (
    POSITION,
    Options,
    Topics,
    asked_for,
    is_cluster,
    messages,
    queues_json,
    with_position,
)
from rmqclient.spark.reading.places import open_place
from rmqclient.spark.scan import offsets
from rmqclient.spark.scan.queue_json import from_json, to_json
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.spark.writing.ledger import Ledger
from rmqclient.store import RESERVED_PROPERTIES
from rmqclient.store.settings.document import replace_file

ORDER = "commit_log_offset"
_FILTERS = ("subexpression", "where")
_WRITTEN = ("key", "value", "partition", "tags", "properties", "born_timestamp")


@dataclass(frozen=True)
class Plan:
    """The settings of a backfill, the same for all its runs."""

    store: str
    topics: tuple[str, ...]
    to: str
    select: tuple[str, ...]
    where: str | None
    keep_queues: bool
    chunk: int
    """Most messages of one chunk."""

    starting: dict[str, dict[str, int]]
    ending: dict[str, dict[str, int]]
    identity: str | None
    """Of the store that is read; None if it has none."""

    filters: dict[str, str]
    """Options of the source that choose messages of the range."""


@dataclass(frozen=True)
class Backfilled:
    """The result of a backfill."""

    name: str
    to: str
    chunks: int
    messages_read: int
    """Number of messages in the range."""

    chunks_written: int
    """Chunks written by this run; the other chunks were in the log already."""

    messages_written: int
    """Messages written by this run."""


def backfill(
    spark: SparkSession,
    store: str | os.PathLike[str],
    topics: Topics,
    to: str,
    name: str,
    *,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    select: Sequence[str] = (),
    where: str | None = None,
    keep_queues: bool = True,
    chunk: int = 1_000_000,
    target_store: str | os.PathLike[str] | None = None,
    options: Options | None = None,
) -> Backfilled:
    """Write a range of ``topics`` to the topic ``to`` of the same store, or of ``target_store``.

    ``options`` of the source give the range (``startingTimestamp``, ``endingOffsets`` and so on), evaluated by the
    first run under ``name``. Without them, the range is all messages that exist then. ``where`` is a condition in SQL.
    ``select`` are expressions that replace columns row by row, such as ``"upper(tags) AS tags"``. ``transform`` gets
    the data frame with the source's columns, and returns one with some of these columns, and possibly more or fewer
    rows. It must return the same rows each time. With ``keep_queues=False``, the key of a row chooses its queue.

    ``store`` may be a cluster, and the target may not: raises NotOnCluster.

    Raises ValueError if ``name`` belongs to another backfill, or if the result of ``transform`` lacks the column for
    the order; UnknownTopic; DataLost; and the errors of the sink, such as BatchConflict, inside Spark's exception.
    """
    check_topic(to)
    check_group(name)
    if to in topics and target_store is None:
        raise ValueError(f"topic {to} is one of the topics to read: write to another topic")
    if is_cluster(target_store or store):
        raise NotOnCluster(
            "a backfill writes each message once, which a cluster cannot promise: give target_store, a directory, or "
            "write to the cluster at least once with frame.write.format('rmq')"
        )
    root = Path(target_store or store).absolute()
    asked = asked_for(store, topics, options or {})
    wanted = Plan(
        os.fspath(store),
        tuple(topics),
        to,
        tuple(select),
        where,
        keep_queues,
        chunk,
        starting={},
        ending={},
        identity=open_place(asked).identity(),
        filters={key.lower(): str(value) for key, value in (options or {}).items() if key.lower() in _FILTERS},
    )
    plan = _settle(root / "spark" / f"{name}.backfill.json", wanted, asked)
    ledger = Ledger(root, name, to)
    chunks = list(_chunks(plan))
    written = rows = 0
    for number, (start, end) in enumerate(chunks):
        if ledger.read().is_done(number):
            continue
        frame = _read(spark, plan, start, end, options or {})
        frame = _in_order(transform(frame)) if transform else frame
        writer = _outgoing(frame, plan).write.format("rmq").mode("append").option("topic", to)
        writer.option("txnAppId", name).option("txnVersion", number).save(str(root))
        done = ledger.read().done.get(number)
        rows += done.rows if done else 0
        written += 1
    read = offsets.count(offsets.between(from_json(plan.starting), from_json(plan.ending)).values())
    return Backfilled(name, to, len(chunks), read, written, rows)


def _settle(path: Path, wanted: Plan, asked: ReadOptions) -> Plan:
    """Return the plan of the first run; if this is the first run, make and write it."""
    if path.exists():
        # Older versions wrote neither of these two.
        found: dict[str, Any] = {"identity": wanted.identity, "filters": wanted.filters}
        found |= json.loads(path.read_bytes())
        plan = Plan(**found | {"topics": tuple(found["topics"]), "select": tuple(found["select"])})
        for field in dataclasses.fields(Plan):
            before, now = getattr(plan, field.name), getattr(wanted, field.name)
            if field.name not in ("starting", "ending") and before != now:
                raise ValueError(
                    f"{path.stem.removesuffix('.backfill')} is a backfill with {field.name}={before!r}, not {now!r}: "
                    "give this backfill another name"
                )
        return plan
    place = open_place(asked)
    there = offsets.available(place, asked.selection)
    start = offsets.starting(place, there, asked)
    end = offsets.ending(place, there, asked)
    plan = dataclasses.replace(
        wanted, starting=to_json(start), ending=to_json({queue: max(end[queue], start[queue]) for queue in end})
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(asdict(plan), indent=2).encode())
    return plan


def _chunks(plan: Plan) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the offsets at which each chunk begins and ends, always the same for a plan."""
    start, end = from_json(plan.starting), from_json(plan.ending)
    while start != end:
        until = offsets.in_proportion(start, end, plan.chunk)
        yield to_json(start), to_json(until)
        start = until


def _read(spark: SparkSession, plan: Plan, start: dict[str, Any], end: dict[str, Any], options: Options) -> DataFrame:
    others = {name: value for name, value in options.items() if not name.lower().startswith(("starting", "ending"))}
    chunk = {
        "assign": queues_json(from_json(start)),
        "startingOffsets": json.dumps(start),
        "endingOffsets": json.dumps(end),
    }
    rows = with_position(messages(spark, plan.store, (), [*USUAL, *PROPERTIES, ORDER], others | chunk))
    rows = rows.where(plan.where) if plan.where else rows
    for expression in plan.select:
        (column,) = rows.select(sql.expr(expression)).columns
        rows = rows.withColumn(column, sql.expr(expression))
    return rows


def _in_order(rows: DataFrame) -> DataFrame:
    if ORDER not in rows.columns:
        raise ValueError(f"the function left out the column {ORDER}, which gives the order of the messages: keep it")
    return rows.orderBy(ORDER, *(name for name in (POSITION,) if name in rows.columns))


def _outgoing(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return the columns that the sink takes, without the properties that the store sets itself."""
    names = [name for name in _WRITTEN if name in rows.columns and (name != "partition" or plan.keep_queues)]
    rows = rows.select(*names)
    if "properties" in names:
        reserved = sorted(RESERVED_PROPERTIES)
        own = sql.map_filter("properties", lambda name, _: ~name.isin(reserved))
        rows = rows.withColumn("properties", own)
    return rows
