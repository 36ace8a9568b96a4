"""Messages: those of topics as a dataset of Arrow, which DuckDB, Polars and pandas query.

A dataset hands a query's columns and conditions to :meth:`Messages.scanner`. Only the columns that the query names are
read; conditions on ``topic``, ``partition`` and ``offset`` leave out whole ranges of queues, one that wants a single
tag leaves out the records of others, and Arrow applies all of them to the rows that are read. Times leave out nothing:
a clock that was set back stores later messages with earlier times, and a condition may miss none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow import fs

from rmqclient.arrow.columns import ALL, IN_ENTRIES, USUAL, schema_of, stored_schema
from rmqclient.arrow.derived import derived
from rmqclient.arrow.location import Location
from rmqclient.arrow.ranges import Ranges
from rmqclient.arrow.store_files import Reading, StoreFiles
from rmqclient.arrow.where import Where, parse_where
from rmqclient.errors import DataLost
from rmqclient.filters.tag import TagFilter
from rmqclient.store import MessageQueue
from rmqclient.store.errors import UnknownTopic
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_CHUNK = 1 << 16
"""Queue offsets that a condition takes or leaves out together."""


def messages(
    store: str | Path,
    topics: str | Iterable[str],
    *,
    columns: Iterable[str] = tuple(USUAL),
    where: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    archive: str | None = None,
    archive_options: Mapping[str, str] | None = None,
    skip_lost: bool = False,
    unreadable_as_null: bool = False,
) -> Messages:
    """Return the messages that topics have now, as a dataset. Later messages are not in it, however often it is read.

    ``store`` is the directory of a store, or the URL of an archive (``file:///archive``, ``s3://bucket/prefix``). Dead
    letters are in ``%DLQ%`` and the name of their group.
    ``archive`` is the URL of an archive with the messages that the directory no longer has, and ``archive_options`` are
    those of its file system. The columns are described in :mod:`rmqclient.arrow.columns`; they may be named in any
    case. ``where`` is a condition as in :mod:`rmqclient.arrow.where`. Messages stored at ``since`` or later, and before
    ``until``, are read.

    A message that is gone or damaged raises DataLost when it is read, or is left out with ``skip_lost``. A body that
    cannot be decompressed raises BodyUnreadable, or is null with ``unreadable_as_null``.

    Raises ValueError for a column that does not exist and for a time without a zone, FilterError for a condition that
    cannot be read, UnknownTopic, NoSuchStore, and as :func:`rmqclient.archive.view.open_view`.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    schema = schema_of(columns)
    if not names or not schema.names:
        raise ValueError("give at least one topic and one column")
    conditions = parse_where(where)
    times = _ms("since", since), _ms("until", until)
    location = _located(store, archive, archive_options)
    tags = TagFilter(conditions.tags or frozenset())
    reading = Reading(_pass_over if skip_lost else _fail, tags, null_unreadable=unreadable_as_null)
    files = StoreFiles.at(location)
    return Messages(location, files.identity(), _present(files, names, conditions, *times), schema, reading)


def topics(
    store: str | Path, *, archive: str | None = None, archive_options: Mapping[str, str] | None = None
) -> list[str]:
    """Return the names of all topics of a store or an archive, sorted. Raises as :func:`messages`."""
    return StoreFiles.at(_located(store, archive, archive_options)).topics()


def _located(store: str | Path, archive: str | None, options: Mapping[str, str] | None) -> Location:
    return Location(str(store), archive, tuple(sorted((options or {}).items())))


class Messages(pads.Dataset):  # type: ignore[misc] # pyarrow is published without types
    """Messages as a :class:`pyarrow.dataset.Dataset`. Made by :func:`messages`.

    It can be read again and again, by several threads at a time, and gives the same messages each time. The rows of a
    queue come in its order, one queue after another. It has the C stream interface of Arrow, too.
    """

    def __init__(
        self,
        location: Location,
        identity: str | None,
        ranges: Ranges,
        schema: pa.Schema,
        reading: Reading,
        condition: Any = None,
    ) -> None:
        # The base is an interface here: its constructor and its C++ half are for files.
        self._location = location
        self._identity = identity
        self._ranges = ranges
        self._schema = schema
        self._reading = reading
        self._condition = condition

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> pads.Scanner:  # noqa: A002 - Arrow's name
        """Return what reads these columns of the messages for which a condition holds.

        ``columns`` is a list of names, or a dictionary of expressions by name; None takes all. ``filter`` is a
        :class:`pyarrow.compute.Expression`. How batches are cut, and how far is read ahead, has no effect here.
        """
        condition = _both(self._condition, filter)
        asked = self._schema.names if columns is None else columns
        read = self._read_schema(asked, condition)
        batches = self._batches(_matching(self._ranges, condition), read, _with_tag(self._reading, condition))
        reader = pa.RecordBatchReader.from_batches(read, batches)
        return pads.Scanner.from_batches(reader, columns=asked, filter=condition)

    def to_reader(self, columns: Any = None, filter: Any = None) -> pa.RecordBatchReader:  # noqa: A002 - Arrow's name
        """Return the messages as a stream of record batches, with columns and condition as for :meth:`scanner`."""
        return self.scanner(columns, filter).to_reader()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the messages by Arrow's C stream interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def filter(self, expression: Any) -> Messages:
        """Return the messages for which the condition holds, too."""
        condition = _both(self._condition, expression)
        return self._with(self._schema, condition)

    def count_rows(self, filter: Any = None, **_: Any) -> int:  # noqa: A002 - Arrow's name
        """Return the number of messages for which a condition holds."""
        return sum(batch.num_rows for batch in self.to_reader(self._schema.names[:1], filter))

    def sort_by(self, sorting: Any, **_: Any) -> pa.Table:
        """Return the messages as a table that is sorted."""
        return self.to_table().sort_by(sorting)

    def join(self, right_dataset: Any, *args: Any, **options: Any) -> pa.Table:
        """Return the messages as a table that is joined with another one."""
        right = right_dataset.to_table() if isinstance(right_dataset, pads.Dataset) else right_dataset
        return self.to_table().join(right, *args, **options)

    def join_asof(self, right_dataset: Any, *args: Any, **options: Any) -> pa.Table:
        """Return the messages as a table that is joined with another one by the nearest key."""
        right = right_dataset.to_table() if isinstance(right_dataset, pads.Dataset) else right_dataset
        return self.to_table().join_asof(right, *args, **options)

    def get_fragments(self, filter: Any = None) -> NoReturn:  # noqa: A002 - Arrow's interface
        """Raise NotImplementedError: messages are in no files that Arrow reads."""
        raise NotImplementedError("messages of a store have no fragments: use scanner(), to_table() or to_reader()")

    def replace_schema(self, schema: pa.Schema) -> Messages:
        """Return the messages with the columns of a schema. Raises ValueError for a column with another type."""
        own = schema_of(schema.names)
        if not own.equals(schema):
            raise ValueError(f"columns cannot have other names or types: give {own}")
        return self._with(own, self._condition)

    @property
    def partition_expression(self) -> Any:
        """The condition that holds for every message."""
        return pads.scalar(True) if self._condition is None else self._condition

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._location, self._identity, self._ranges, self._schema, self._reading, self._condition)

    def __repr__(self) -> str:
        found = sum(len(offsets) for offsets in self._ranges.values())
        return f"<messages of {self._location.path}: {found} records in {len(self._ranges)} queues>"

    def _with(self, schema: pa.Schema, condition: Any) -> Messages:
        return Messages(self._location, self._identity, self._ranges, schema, self._reading, condition)

    def _read_schema(self, columns: Any, condition: Any) -> pa.Schema:
        """Return the columns that a scan needs. Expressions name theirs in their text, or, by number, those of all."""
        texts = [str(condition), *(map(str, columns.values()) if isinstance(columns, Mapping) else ())]
        named = {word for text in texts for word in re.findall(r"\w+", text)}
        named |= set(self._schema.names if "FieldPath" in named else () if isinstance(columns, Mapping) else columns)
        read = [name for name in dict.fromkeys([*self._schema.names, *ALL]) if name in named]
        return schema_of(read or self._schema.names[:1])  # without a column there would be no rows

    def _batches(self, ranges: Ranges, schema: pa.Schema, reading: Reading) -> Iterator[pa.RecordBatch]:
        stored = stored_schema(schema)
        if IN_ENTRIES.issuperset(stored.names):  # which do not tell how many messages a compressed batch has
            stored = schema_of([*stored.names, "flag"])
        files = StoreFiles.at(self._location)  # each scan has its own, as it may be in a thread of its own
        if files.identity() != self._identity:
            raise DataLost(f"{self._location.path} holds another store than when this dataset was made: make it anew")
        yield from derived(files.batches(stored, ranges, reading), schema, schema.names)


@dataclass(frozen=True)
class _Chunk:
    """A range of a queue, and the condition that holds for each message in it."""

    queue: MessageQueue
    offsets: range

    def condition(self) -> Any:
        """Return the condition, as an expression of Arrow."""
        topic = pads.field("topic") == self.queue.topic
        partition = pads.field("partition") == pa.scalar(self.queue.queue_id, pa.int32())
        offset = pads.field("offset")
        return topic & partition & (offset >= self.offsets.start) & (offset < self.offsets.stop)


def _with_tag(reading: Reading, condition: Any) -> Reading:
    """Return how messages are read of which a condition wants one tag; others are told by their entries alone."""
    tag = None if condition is None else pads.get_partition_keys(condition).get("tags")
    if not tag or (reading.tags.tags and tag not in reading.tags.tags):  # no tag, or one that Arrow rules out later
        return reading
    return replace(reading, tags=TagFilter(frozenset((tag,))))


def _matching(ranges: Ranges, condition: Any) -> Ranges:
    """Return the parts of the ranges where the condition may hold."""
    if condition is None:
        return ranges
    chunks = [
        _Chunk(queue, range(start, min(start + _CHUNK, offsets.stop)))
        for queue, offsets in ranges.items()
        for start in range(offsets.start, offsets.stop, _CHUNK)
    ]
    kept = _simplified(chunks, condition)
    found: Ranges = {}
    for chunk in kept:
        before = found.get(chunk.queue, chunk.offsets)
        found[chunk.queue] = range(min(before.start, chunk.offsets.start), chunk.offsets.stop)
    return found


def _simplified(chunks: Sequence[_Chunk], condition: Any) -> Iterator[_Chunk]:
    """Yield the chunks that Arrow does not rule out.

    Arrow compares a condition with what is known of a file only when it lists the files of a dataset: so each chunk
    stands for a file, which is never opened.
    """
    form, none = pads.IpcFileFormat(), fs.LocalFileSystem()
    files = [form.make_fragment(str(n), none, chunk.condition()) for n, chunk in enumerate(chunks)]
    dataset = pads.FileSystemDataset(files, schema_of(ALL), form, none)
    for fragment in dataset.get_fragments(condition):
        yield chunks[int(fragment.path)]


def _present(
    files: StoreFiles, topics: Sequence[str], where: Where, since_ms: int | None, until_ms: int | None
) -> Ranges:
    """Return the wanted ranges of the messages that the topics have now."""
    queues = files.queues(topics)
    if unknown := sorted(set(topics) - {queue.topic for queue in queues}):
        raise UnknownTopic(f"{', '.join(unknown)}: no such topic; topics there: {', '.join(files.topics())}")
    found = {}
    for queue, known in files.ranges(queues).items():
        start = known.start if since_ms is None else files.offset_by_time(queue, known, since_ms)
        stop = known.stop if until_ms is None else files.offset_by_time(queue, known, until_ms)
        found[queue] = range(start, max(start, stop))
    return where.apply({queue: offsets for queue, offsets in found.items() if offsets})


def _ms(name: str, time: datetime | None) -> int | None:
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError(f"{name}={time!r} names no time zone: write datetime(..., tzinfo=UTC), or .astimezone()")
    return max(0, int(time.timestamp() * 1000))


def _both(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one & other


def _fail(what: str) -> None:
    raise DataLost(f"{what}. To leave such messages out, pass skip_lost=True")


def _pass_over(what: str) -> None:
    _log.warning("%s; left out because of skip_lost=True", what)
