"""Options of a read: parsed and checked once, named as in Spark's Kafka source.

==================================== ================== ============================================================
option                               default            meaning
==================================== ================== ============================================================
path                                 required           directory of the store, URL of an archive, or
                                                        ``rocketmq://host:9876``, a cluster
archive                              none               URL of an archive of that store, read if files are gone
archive.*                            none               options of the archive's file system
subscribe                            one of these three topic names, separated by commas
subscribePattern                                        a regular expression for whole topic names
assign                                                  ``{"orders": [0, 1]}``: queues 0 and 1 of orders
startingOffsets                      earliest; stream:  ``earliest``, ``latest`` or ``{"orders": {"0": 23, "1": -2}}``:
                                     latest             -2 is the earliest, -1 the latest (stream only)
endingOffsets                        latest             the same, with -1; batch only
startingTimestamp, endingTimestamp   none               ms; the first message stored then or later
startingOffsetsByTimestamp           none               ``{"orders": {"0": 1700000000000}}``, for each queue
endingOffsetsByTimestamp             none               the same; batch only
startingOffsetsByTimestampStrategy   error              ``latest``: begin at the end if every message is older
failOnDataLoss                       true               false: messages that are gone or damaged are skipped
failOnUnreadableBody                 true               false: null for a body that cannot be decompressed
maxOpenedBodyBytes                   64m                largest decompressed body; at most 1g
maxOffsetsPerTrigger                 none               most messages of one micro-batch, over all queues in
                                                        proportion. A compressed batch counts as its messages, by
                                                        samples, and is never divided; in a cluster it counts as one
maxBytesPerTrigger                   none               most bytes of records of one micro-batch, approximate
minOffsetsPerTrigger                 none               a micro-batch waits for this many messages,
maxTriggerDelay                      15m                but at most this long
minPartitions                        none               least number of tasks
maxRecordsPerPartition               none               most messages of one task
maxBytesPerPartition                 128m               most bytes of one task, approximate
split                                auto               ``queue``: by consume queues; ``log``: by ranges of the log
subExpression                        *                  tags: ``paid || refunded``
where                                none               conditions on topic, partition, offset and tags that spare
                                                        reading: :mod:`rmqclient.arrow.where`
batchRows, batchBytes                10000, 4m          size of an Arrow batch
columns                              none               the only columns to read: ``partition,offset,tags``
includeProperties, includeMetadata   false              more columns
includeHeaders                       false              includeProperties, and the same as headers of Kafka
commitGroup                          none               group whose offsets follow a stream's finished batches
consumerGroup                        rmqclient-spark    cluster only: group under which brokers are asked; see below
pullsAtOnce                          64                 cluster only: requests of a task that are under way at once
==================================== ================== ============================================================

In a cluster, JSON names the broker of each queue: ``{"orders": {"broker-a": {"0": 23}}}``. There is no archive, and
``split=log`` is refused. The group ``consumerGroup`` has no offsets and no members: brokers only look up whether it may
read, and create it unless they are told not to.

Limits of a micro-batch and ``commitGroup`` are for a stream, and refused in a batch.

The ``starting...`` options count for a new query only: a restarted stream continues at its checkpoint. Options
that only concern a Kafka broker (``kafka.*`` and some more) are accepted and do nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import orjson

from rmqclient.arrow.ranges import in_words
from rmqclient.arrow.where import Where, parse_where
from rmqclient.filters.tag import TagFilter, parse_tags
from rmqclient.names import check_group
from rmqclient.spark.scan.queue_json import by_broker, from_json
from rmqclient.store import MessageQueue
from rmqclient.store.bodies import DEFAULT_LIMIT

EARLIEST, LATEST = -2, -1

Point: TypeAlias = Literal["earliest", "latest"] | dict[MessageQueue, int]
"""Where reading begins or ends. In a mapping, -2 stands for the earliest offset and -1 for the latest."""

DEFAULT_GROUP = "rmqclient-spark"

_CLUSTER = "rocketmq://"
_TABLE = (
    "Spark does not hand the options of a table to a Python source when it is read. Make a view with the same OPTIONS: "
    "CREATE TEMPORARY VIEW orders USING rmq OPTIONS (path './store', subscribe 'orders')"
)
_NO_PATH = f"load the directory of a store: .load('./store'). If this is a table of CREATE TABLE USING rmq: {_TABLE}"
_SELECTIONS = ("subscribe", "subscribePattern", "assign")
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIMES = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_OF_KAFKA = re.compile(r"kafka\..*|kafkaconsumer\.polltimeoutms|fetchoffset\..*|groupidprefix|paths", re.IGNORECASE)
_ARCHIVE = "archive."


@dataclass(frozen=True)
class Selection:
    """The queues to read: those of the named topics, those of the topics that match, or the assigned ones."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[MessageQueue, ...] = ()


@dataclass(frozen=True)
class ReadOptions:
    """Checked options of one read. Made by :func:`parse`."""

    path: str
    selection: Selection
    archive: str | None = None
    archive_options: dict[str, str] = field(default_factory=dict)
    starting: Point = "earliest"
    starting_timestamp: int | None = None
    starting_timestamps: dict[MessageQueue, int] = field(default_factory=dict)
    too_late_is_latest: bool = False
    ending: Point = "latest"
    ending_timestamp: int | None = None
    ending_timestamps: dict[MessageQueue, int] = field(default_factory=dict)
    fail_on_data_loss: bool = True
    fail_on_unreadable_body: bool = True
    max_opened_body_bytes: int = DEFAULT_LIMIT
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int = 1
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int = 128 << 20
    split: Literal["auto", "queue", "log"] = "auto"
    tags: TagFilter = field(default_factory=lambda: parse_tags(None))
    """Those of ``subExpression`` and ``where`` together."""
    where: Where = field(default_factory=Where)
    batch_rows: int = 10_000
    batch_bytes: int = 4 << 20
    properties: bool = False
    metadata: bool = False
    commit_group: str | None = None
    consumer_group: str = DEFAULT_GROUP
    pulls_at_once: int = 64

    @property
    def is_cluster(self) -> bool:
        """Whether ``path`` is the URL of a RocketMQ cluster."""
        return _is_cluster(self.path)


_OF_CLUSTER = ("consumerGroup", "pullsAtOnce")
_OF_STREAMS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitGroup")
_NAMES = (
    *("path", "archive", *_SELECTIONS, "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss"),
    *("failOnUnreadableBody", "maxOpenedBodyBytes"),
    *("minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition", "split", "subExpression", "where"),
    *("batchRows", "batchBytes", "columns", "includeProperties", "includeHeaders", "includeMetadata"),
    *_OF_STREAMS,
    *_OF_CLUSTER,
)
_KNOWN = {name.lower() for name in _NAMES}


def parse(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Return the options of a read. Names may be in any case. Raises ValueError, InvalidName."""
    options = _own(given)
    if streaming and (ends := [name for name in _NAMES if name.startswith("ending") and name.lower() in options]):
        raise ValueError(f"option {ends[0]}: a stream has no end; leave it out, or use spark.read")
    if not streaming and (others := [name for name in _OF_STREAMS if name.lower() in options]):
        raise ValueError(f"option {others[0]}: only a stream has it; leave it out, or use spark.readStream")
    if "maxtriggerdelay" in options and "minoffsetspertrigger" not in options:
        raise ValueError("option maxTriggerDelay: nothing is waited for without minOffsetsPerTrigger: give both")
    read = _Reading(options)
    read.check_kind()
    starting: Point = "latest" if streaming else "earliest"
    where = parse_where(options.get("where")).with_tags(parse_tags(options.get("subexpression")).tags)
    return ReadOptions(
        path=_absolute(read.required("path", _NO_PATH)),
        selection=read.selection(),
        archive=_absolute(options["archive"]) if options.get("archive") else None,
        archive_options={name[len(_ARCHIVE) :]: value for name, value in options.items() if name.startswith(_ARCHIVE)},
        starting=read.point("startingOffsets", starting, refused=None if streaming else LATEST),
        starting_timestamp=read.number("startingTimestamp", None, least=0),
        starting_timestamps=read.by_queue("startingOffsetsByTimestamp"),
        too_late_is_latest=read.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        ending=read.point("endingOffsets", "latest", refused=EARLIEST),
        ending_timestamp=read.number("endingTimestamp", None, least=0),
        ending_timestamps=read.by_queue("endingOffsetsByTimestamp"),
        fail_on_data_loss=read.flag("failOnDataLoss", True),
        fail_on_unreadable_body=read.flag("failOnUnreadableBody", True),
        max_opened_body_bytes=read.number("maxOpenedBodyBytes", DEFAULT_LIMIT, units=_SIZES) or 1,
        max_offsets_per_trigger=read.number("maxOffsetsPerTrigger", None),
        max_bytes_per_trigger=read.number("maxBytesPerTrigger", None, units=_SIZES),
        min_offsets_per_trigger=read.number("minOffsetsPerTrigger", None),
        max_trigger_delay_ms=read.number("maxTriggerDelay", 15 * 60_000, units=_TIMES) or 0,
        min_partitions=read.number("minPartitions", 1) or 1,
        max_records_per_partition=read.number("maxRecordsPerPartition", None),
        max_bytes_per_partition=read.number("maxBytesPerPartition", 128 << 20, units=_SIZES) or 1,
        split=read.split(),
        tags=TagFilter(where.tags or frozenset()),
        where=where,
        batch_rows=read.number("batchRows", 10_000) or 1,
        batch_bytes=read.number("batchBytes", 4 << 20, units=_SIZES) or 1,
        properties=read.columns()[0],
        metadata=read.columns()[1],
        commit_group=check_group(options["commitgroup"]) if "commitgroup" in options else None,
        consumer_group=check_group(options.get("consumergroup", DEFAULT_GROUP)),
        pulls_at_once=read.number("pullsAtOnce", 64) or 1,
    )


def more_columns(given: Mapping[str, str]) -> tuple[bool, bool, bool]:
    """Return whether the options ask for properties, for metadata, and for headers of Kafka. Raises ValueError."""
    return _Reading(_own(given)).columns()


def only_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that the options name; none if every column is wanted. Raises ValueError."""
    text = _own(given).get("columns")
    names = () if text is None else tuple(each.strip() for each in text.split(","))
    if len(set(names)) < len(names) or "" in names:
        raise ValueError(f"option columns={text}: give each column once, separated by commas")
    return names


def has_selection(given: Mapping[str, str]) -> bool:
    """Return whether the options name topics to read, as those of a write never do."""
    return any(name.lower() == each.lower() for name in given for each in _SELECTIONS)


def _absolute(path: str) -> str:
    """Return the path of a directory as executors find it, which have another working directory; a URL as it is.

    Spark and Hadoop write ``file:/data/store`` for a directory.
    """
    return path if "://" in path else str(Path(path.removeprefix("file:")).absolute())


def _is_cluster(path: str) -> bool:
    return path.startswith(_CLUSTER)


def _own(given: Mapping[str, str]) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items() if not _OF_KAFKA.fullmatch(name)}
    if "provider" in options:  # of a table that is made
        raise ValueError(f"CREATE TABLE USING rmq: {_TABLE}")
    for name in options:
        if name not in _KNOWN and not name.startswith(_ARCHIVE):
            near = difflib.get_close_matches(name, _KNOWN, 1)
            meant = f"; did you mean {next(each for each in _NAMES if each.lower() == near[0])}?" if near else ""
            raise ValueError(f"option {name}: the rmq source has no option of this name{meant}")
    return options


class _Reading:
    """Reads the values of options. Its errors name the option that is wrong."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self.is_cluster = _is_cluster(options.get("path", ""))

    def check_kind(self) -> None:
        """Raise ValueError for an option that only a store has, or only a cluster."""
        if not self.is_cluster:
            if others := [name for name in _OF_CLUSTER if name.lower() in self._options]:
                raise ValueError(f"option {others[0]}: only a cluster has it: load('rocketmq://host:9876')")
            return
        for name, value in self._options.items():
            if name == "archive" or name.startswith(_ARCHIVE):
                raise ValueError(f"option {name}: a cluster has no archive; leave it out")
            if name == "split" and value.lower() == "log":
                raise ValueError("option split=log: the log of a broker cannot be read from afar; leave it out")

    def required(self, name: str, what_to_do: str) -> str:
        value = self._options.get(name.lower())
        if not value:
            raise ValueError(f"option {name} is missing: {what_to_do}")
        return value

    def columns(self) -> tuple[bool, bool, bool]:
        headers = self.flag("includeHeaders", False)
        properties = self.flag("includeProperties", False) or headers
        return properties, self.flag("includeMetadata", False), headers

    def flag(self, name: str, default: bool) -> bool:
        value = self._options.get(name.lower(), str(default)).strip().lower()
        if value not in {"true", "false"}:
            raise ValueError(f"option {name}={value}: give true or false")
        return value == "true"

    def number(
        self, name: str, default: int | None, *, least: int = 1, units: Mapping[str, int] | None = None
    ) -> int | None:
        if name.lower() not in self._options:
            return default
        text = self._options[name.lower()].strip().lower()
        found = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", text)
        unit = (units or {"": 1}).get(found[2] or next(iter(units or {"": 1}))) if found else None
        if found is None or unit is None or int(found[1]) * unit < least:
            allowed = f", with an optional unit: {' '.join(each for each in units if each)}" if units else ""
            raise ValueError(f"option {name}={text}: give a number of at least {least}{allowed}")
        return int(found[1]) * unit

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self._options.get(name.lower(), allowed[0]).lower()
        if value not in allowed:
            raise ValueError(f"option {name}={value}: give {' or '.join(allowed)}")
        return value

    def split(self) -> Literal["auto", "queue", "log"]:
        return {"auto": "auto", "queue": "queue", "log": "log"}[self.choice("split", ("auto", "queue", "log"))]  # type: ignore[return-value]

    def selection(self) -> Selection:
        given = [name for name in _SELECTIONS if name.lower() in self._options]
        if len(given) != 1:
            raise ValueError(
                f"options {', '.join(given) or 'for topics are missing'}: give one of {', '.join(_SELECTIONS)}: "
                '.option("subscribe", "orders,payments")'
            )
        value = self._options[given[0].lower()]
        if given[0] == "subscribe":
            return Selection(topics=_topics(value))
        if given[0] == "subscribePattern":
            return Selection(pattern=_pattern(value))
        return Selection(assigned=self._assigned(value))

    def point(self, name: str, default: Point, *, refused: int | None) -> Point:
        value = self._options.get(name.lower())
        word = default if value is None else value.strip().lower()
        if word in ("earliest", "latest"):
            if refused is not None and word == ("latest" if refused == LATEST else "earliest"):
                raise ValueError(f"option {name}={word}: that selects no messages")
            return "earliest" if word == "earliest" else "latest"
        points = self.by_queue(name, least=EARLIEST)
        for queue, offset in points.items():
            if offset == refused:
                raise ValueError(f"option {name}: {offset} for {in_words(queue)} selects no messages")
        return points

    def by_queue(self, name: str, *, least: int = 0) -> dict[MessageQueue, int]:
        text = self._options.get(name.lower())
        if text is None:
            return {}
        example = self._example("23", "42")
        try:
            found = from_json(_object(name, text, example))
        except ValueError:
            raise _malformed(name, text, example) from None
        if any(number < least for number in found.values()) or not self._are_of_this_kind(found):
            raise _malformed(name, text, example)
        return found

    def _assigned(self, text: str) -> tuple[MessageQueue, ...]:
        example = self._example("[0, 1]")
        found = []
        for topic, broker_name, ids in by_broker(_object("assign", text, example)):
            if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
                raise _malformed("assign", text, example)
            found += [MessageQueue(topic, each, broker_name) for each in ids]
        if not found:
            raise ValueError(f"option assign={text}: names no queue")
        if not self._are_of_this_kind(found):
            raise _malformed("assign", text, example)
        return tuple(sorted(set(found)))

    def _are_of_this_kind(self, queues: Iterable[MessageQueue]) -> bool:
        """Return whether each queue names a broker, in a cluster, or none does, in a store."""
        return all(bool(queue.broker_name) is self.is_cluster for queue in queues)

    def _example(self, *values: str) -> str:
        numbers = values[0] if values[0].startswith("[") else _numbered(values)
        return f'{{"orders": {{"broker-a": {numbers}}}}}' if self.is_cluster else f'{{"orders": {numbers}}}'


def _numbered(values: Sequence[str]) -> str:
    return "{" + ", ".join(f'"{number}": {value}' for number, value in enumerate(values)) + "}"


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(each.strip() for each in text.split(",")))
    if "" in topics:
        raise ValueError(f"option subscribe={text}: a topic is missing between the commas")
    return topics


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"option subscribePattern={text}: not a regular expression: {error}") from None
    return text


def _object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise _malformed(name, text, example) from None
    if not isinstance(found, dict):
        raise _malformed(name, text, example)
    return found


def _malformed(name: str, text: str, example: str) -> ValueError:
    return ValueError(f"option {name}={text[:200]}: give JSON such as {example}")
