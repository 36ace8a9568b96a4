"""Backfill: a range of messages, transformed, into another topic, each once, in order.

What is read is settled by the first run, and written down in ``<target store>/spark/NAME.backfill.json``: from which
offset to which of every queue, in chunks. Each chunk is one batch write with ``txnAppId=NAME`` and its number as
``txnVersion``, so a run that was killed is run again under the same name: chunks that are in the log are passed over,
and one that was half-way is brought to its end (:mod:`rmqclient.spark.writing.committing`).

A message keeps its queue id, unless that is asked otherwise, and the messages of a queue keep their order. A Python
function may shuffle its rows; so its result is sorted by their place in the commit log, and has to keep that column.
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

from rmqclient.names import check_group, check_topic
from rmqclient.spark.pipelines.reading import Options, Topics, asked_for, messages
from rmqclient.spark.reading import offsets
from rmqclient.spark.reading.columns import PROPERTIES, USUAL
from rmqclient.spark.reading.location import Location
from rmqclient.spark.reading.offsets import from_json, to_json
from rmqclient.spark.writing.ledger import Ledger
from rmqclient.store import RESERVED_PROPERTIES
from rmqclient.store.settings.document import replace_file

ORDER = "commit_log_offset"
_WRITTEN = ("key", "value", "partition", "tags", "properties", "born_timestamp")


@dataclass(frozen=True)
class Plan:
    """What a backfill is, for all its runs."""

    store: str
    topics: tuple[str, ...]
    to: str
    select: tuple[str, ...]
    where: str | None
    keep_queues: bool
    chunk: int
    """Most messages of one batch."""

    starting: dict[str, dict[str, int]]
    ending: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Backfilled:
    """What a backfill has done, over all its runs."""

    name: str
    to: str
    chunks: int
    messages_read: int
    """Messages in the range."""

    chunks_written: int
    """By this run; the others were in the log."""

    messages_written: int
    """By this run."""


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

    The range is what ``options`` of the source say (``startingTimestamp``, ``endingOffsets`` and so on), as they mean
    it at the first run under ``name``; without them all that is there. ``where`` is a condition in SQL; ``select`` are
    expressions that replace columns, such as ``"upper(tags) AS tags"``, row by row; ``transform`` gets the data frame
    with the source's columns and returns one with some of them, or more rows, or fewer. It must give the same rows each
    time. With ``keep_queues=False`` queues are chosen by key.

    Raises ValueError when ``name`` stands for another backfill, or the result has no column for the order;
    UnknownTopic, DataLost, and what the sink raises, BatchConflict among others (inside of Spark's exception).
    """
    check_topic(to)
    check_group(name)
    if to in topics and target_store is None:
        raise ValueError(f"topic {to} is one of those that are read: write to another one")
    root = Path(target_store or store).absolute()
    wanted = Plan(os.fspath(store), tuple(topics), to, tuple(select), where, keep_queues, chunk, starting={}, ending={})
    plan = _settle(root / "spark" / f"{name}.backfill.json", wanted, options or {})
    ledger = Ledger(root, name)
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


def _settle(path: Path, wanted: Plan, options: Options) -> Plan:
    """Return the plan of the first run; write it down if this is it."""
    if path.exists():
        found = json.loads(path.read_bytes())
        plan = Plan(**found | {"topics": tuple(found["topics"]), "select": tuple(found["select"])})
        for field in dataclasses.fields(Plan):
            before, now = getattr(plan, field.name), getattr(wanted, field.name)
            if field.name not in ("starting", "ending") and before != now:
                raise ValueError(
                    f"{path.stem.removesuffix('.backfill')} is a backfill with {field.name}={before!r}, not {now!r}: "
                    "give this one another name"
                )
        return plan
    asked = asked_for(wanted.store, wanted.topics, options)
    view = Location.of(asked).open()
    there = offsets.available(view, asked.selection)
    start = offsets.starting(view, there, asked)
    end = offsets.ending(view, there, asked)
    plan = dataclasses.replace(
        wanted, starting=to_json(start), ending=to_json({queue: max(end[queue], start[queue]) for queue in end})
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(asdict(plan), indent=2).encode())
    return plan


def _chunks(plan: Plan) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield begin and end of each batch; the same for the same plan."""
    start, end = from_json(plan.starting), from_json(plan.ending)
    while start != end:
        until = offsets.limited(start, end, plan.chunk)
        yield to_json(start), to_json(until)
        start = until


def _read(spark: SparkSession, plan: Plan, start: dict[str, Any], end: dict[str, Any], options: Options) -> DataFrame:
    others = {name: value for name, value in options.items() if not name.lower().startswith(("starting", "ending"))}
    chunk = {
        "assign": json.dumps({topic: [int(each) for each in queues] for topic, queues in start.items()}),
        "startingOffsets": json.dumps(start),
        "endingOffsets": json.dumps(end),
    }
    rows = messages(spark, plan.store, (), [*USUAL, *PROPERTIES, ORDER], others | chunk)
    rows = rows.where(plan.where) if plan.where else rows
    for expression in plan.select:
        (column,) = rows.select(sql.expr(expression)).columns
        rows = rows.withColumn(column, sql.expr(expression))
    return rows


def _in_order(rows: DataFrame) -> DataFrame:
    if ORDER not in rows.columns:
        raise ValueError(f"the function left out the column {ORDER}, which tells the order of the messages: keep it")
    return rows.orderBy(ORDER)


def _outgoing(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return the columns that the sink takes; what the store sets itself is left out of the properties."""
    names = [name for name in _WRITTEN if name in rows.columns and (name != "partition" or plan.keep_queues)]
    rows = rows.select(*names)
    if "properties" in names:
        reserved = sorted(RESERVED_PROPERTIES)
        own = sql.map_filter("properties", lambda name, _: ~name.isin(reserved))
        rows = rows.withColumn("properties", own)
    return rows
