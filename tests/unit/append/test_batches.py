"""Arrow record batches of the messages of a store, compared with what the oracle reads in its bytes."""

from __future__ import annotations

import gzip
import os
import re
import socket
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

import lz4.frame
import pyarrow as pa
import zstandard
from pyspark.sql.pandas.types import to_arrow_schema

from rmqclient import Message, Producer, StoreConfig
from rmqclient.filters.tag import TagFilter, parse_tags
from rmqclient.spark.reading import batches
from rmqclient.spark.reading.batches import BatchReader
from rmqclient.spark.reading.columns import schema_of
from rmqclient.store import MessageQueue
from rmqclient.store.errors import BodyUnreadable
from rmqclient.store.inspect.view import LocalView, LogPart, View
from tests.support.lines import by_place, of_kind
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.written import SMALL, appending, copy_with_runtime_file, overwrite, written_store

GOLDEN = Path(__file__).parents[2] / "compat" / "golden"

FULL = to_arrow_schema(schema_of(properties=True, metadata=True), timezone="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)

Row = dict[str, Any]


# --- what is read, and what is expected -----------------------------------------------------------


def text_of(host: bytes, port: int) -> str:
    return f"{socket.inet_ntop(socket.AF_INET6 if len(host) == 16 else socket.AF_INET, host)}:{port}"


def first(record: ReferenceRecord, name: str) -> str | None:
    """The first property of a name, empty or not."""
    pairs = [pair.split("\x01", 1) for pair in record.properties.decode().split("\x02") if "\x01" in pair]
    return next((value for other, value in pairs if other == name), None)


def row_of(record: ReferenceRecord) -> Row:
    """Return a record as the source gives it, by the oracle."""
    unique = first(record, "UNIQ_KEY")
    return {
        "key": first(record, "KEYS"),
        "value": record.opened_body,
        "topic": record.topic,
        "partition": record.queue_id,
        "offset": record.queue_offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.store_timestamp),
        "born_timestamp": EPOCH + timedelta(milliseconds=record.born_timestamp),
        "tags": first(record, "TAGS"),
        "properties": {name: value for name, value in record.property_map.items() if name != "__CRC32#"},
        "commit_log_offset": record.commit_log_offset,
        "size": record.size,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "born_host": text_of(record.born_host, record.born_port),
        "store_host": text_of(record.store_host, record.store_port),
        "msg_id": unique
        if unique is not None
        else reference.offset_message_id(record.store_host, record.store_port, record.commit_log_offset),
    }


def rows_of(read: Iterator[pa.RecordBatch], schema: pa.Schema) -> list[Row]:
    """Return the rows of batches, each of which is whole and has exactly this schema."""
    rows: list[Row] = []
    for batch in read:
        batch.validate(full=True)
        assert batch.schema.equals(schema, check_metadata=True)
        assert batch.num_rows > 0
        rows += batch.to_pylist()
    for row in rows:
        if "properties" in row:
            names = [name for name, _ in row["properties"]]
            assert len(set(names)) == len(names)
            row["properties"] = dict(row["properties"])
    return rows


def everything(view: View) -> dict[MessageQueue, range]:
    return {queue: view.offsets(queue) for queue in view.queues()}


def never(sentence: str) -> None:
    raise AssertionError(f"lost: {sentence}")


def by_queues(view: View, schema: pa.Schema = FULL, on_lost: Callable[[str], None] = never, **limits: Any) -> list[Row]:
    """Read every queue by its entries; return the rows in the order of the log, if they tell where they stand."""
    reader = BatchReader(view, schema, on_lost=on_lost, **limits)
    rows = []
    for queue, offsets in everything(view).items():
        rows += rows_of(reader.read_queue(queue, offsets.start, offsets.stop), schema)
    return sorted(rows, key=lambda row: row["commit_log_offset"]) if "commit_log_offset" in schema.names else rows


def by_log(view: View, schema: pa.Schema = FULL, on_lost: Callable[[str], None] = never, **limits: Any) -> list[Row]:
    """Read every queue along the log."""
    log = view.log_range()
    reader = BatchReader(view, schema, on_lost=on_lost, **limits)
    return rows_of(reader.read_log(log.start, end_of(view), everything(view)), schema)


def end_of(view: View) -> int:
    """Where the last record ends that has an entry."""
    end = view.log_range().start
    for queue, offsets in everything(view).items():
        for number in offsets[-1:]:
            offset, size, _ = reference.ENTRY.unpack(view.entries(queue, number, number + 1))
            end = max(end, offset + size)
    return end


both = pytest.mark.parametrize("read", [by_queues, by_log])


class Windows:
    """A view that gives no more of the log than what is asked for, like one of files elsewhere."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.log_file_bytes = view.log_file_bytes
        self.entries_per_file = view.entries_per_file
        self.queues, self.offsets, self.entries = view.queues, view.offsets, view.entries
        self.log_range, self.release = view.log_range, view.release
        self.asked: list[int] = []

    def log(self, commit_log_offset: int, size: int) -> LogPart:
        content, base, file_end = self._view.log(commit_log_offset, size)
        self.asked.append(size)
        at = commit_log_offset - base
        return LogPart(bytes(memoryview(content)[at : at + size]), commit_log_offset, file_end)


class HandMade:
    """A view of records that no producer would write, in files of some size."""

    def __init__(self, records: Sequence[ReferenceRecord], *, crc: bool = True, file_bytes: int = 8_192) -> None:
        self.log_file_bytes = file_bytes
        self.entries_per_file = 8
        self.records: list[ReferenceRecord] = []
        self._entries: dict[MessageQueue, list[bytes]] = defaultdict(list)
        self.content = bytearray()
        for record in records:
            self._append(record, crc)
        self.end = len(self.content)
        self.content += bytes(-len(self.content) % file_bytes)

    def _append(self, record: ReferenceRecord, crc: bool) -> None:
        queue = self._entries[MessageQueue(record.topic, record.queue_id)]
        number = len(queue) if record.in_a_queue else 0
        size = len(reference.encode(record, crc))
        left = self.log_file_bytes - len(self.content) % self.log_file_bytes
        if size + 8 > left:
            self.content += (left.to_bytes(4, "big") + bytes.fromhex("cbd43194")).ljust(left, b"\0")
        placed = replace(record, queue_offset=number, commit_log_offset=len(self.content), size=size)
        self.content += reference.encode(placed, crc)
        self.records.append(placed)
        if record.in_a_queue:
            queue.append(reference.ENTRY.pack(placed.commit_log_offset, size, placed.tags_code))

    def queues(self) -> list[MessageQueue]:
        return sorted(queue for queue, entries in self._entries.items() if entries)

    def offsets(self, queue: MessageQueue) -> range:
        return range(len(self._entries[queue]))

    def log_range(self) -> range:
        return range(self.end)

    def entries(self, queue: MessageQueue, first: int, stop: int) -> bytes:
        file_end = first - first % self.entries_per_file + self.entries_per_file
        return b"".join(self._entries[queue][first : min(stop, file_end)])

    def log(self, commit_log_offset: int, size: int) -> LogPart:  # noqa: ARG002
        base = commit_log_offset - commit_log_offset % self.log_file_bytes
        file_end = base + self.log_file_bytes
        return LogPart(memoryview(self.content)[base:file_end], base, file_end)

    def release(self) -> None:
        pass


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_store(tmp_path_factory.mktemp("batches") / "store")


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    return copy_with_runtime_file(original, tmp_path / "store")


class Rows(list[Row]):
    """Rows that say little of themselves when a test fails."""

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"


@pytest.fixture
def expected(root: Path) -> Rows:
    return Rows(row_of(record) for _, record in reference.read_commit_log(root))


# --- rows -----------------------------------------------------------------------------------------


@both
def test_rows_are_what_the_oracle_reads(read: Callable[..., list[Row]], root: Path, expected: Rows) -> None:
    assert len(list((root / "commitlog").iterdir())) > 2  # with blank records between them
    assert len(list((root / "consumequeue" / "orders" / "0").iterdir())) > 1
    assert read(LocalView(root)) == expected


TEXT = st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), max_size=12)
NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "KEYSX", "TAG", "a", "ключ", "__CRC32#", ""]) | TEXT
RECORDS = st.builds(
    ReferenceRecord,
    topic=st.sampled_from(["t", "orders", "%RETRY%billing", "%DLQ%billing", "x" * 127]),
    queue_id=st.integers(0, 2) | st.just(2**31 - 1),
    body=st.binary(max_size=40) | st.builds(bytes, st.integers(0, 3_000)),
    properties=st.lists(st.tuples(NAMES, TEXT), max_size=6).map(
        lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    ),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 0x1, 0x8]),
    born_timestamp=st.integers(0, 2**42),
    store_timestamp=st.integers(0, 2**42),
    born_host=st.binary(min_size=4, max_size=4),
    born_port=st.integers(0, 65_535),
    reconsume_times=st.integers(0, 2**31 - 1),
)


@st.composite
def records(draw: st.DrawFn) -> ReferenceRecord:
    record = draw(RECORDS)
    flags = record.sys_flag
    hosts: dict[str, Any] = {}
    for bit, name in ((0x10, "born_host"), (0x20, "store_host")):
        if draw(st.booleans()):
            flags |= bit
            hosts[name] = draw(st.binary(min_size=16, max_size=16) | st.just(bytes(15) + b"\1"))
    body = zlib.compress(record.body) if flags & 0x1 else record.body
    return replace(record, body=body, sys_flag=flags, **hosts)


@SHARED
@given(st.lists(records(), min_size=1, max_size=25), st.booleans())
@example([ReferenceRecord(topic="t", properties=b"a\x011\x02b\x012\x02a\x013\x02b\x01\x02c\x01x\x01y")], True)
@example(
    [ReferenceRecord(topic="t", properties=b"KEYS\x01\x02KEYS\x01k\x02TAGS\x01"), ReferenceRecord(topic="t")], True
)
def test_odd_records_are_read_alike_by_both_ways(made: list[ReferenceRecord], crc: bool) -> None:
    # Properties can end like a CRC that does not match
    view = HandMade([record for record in made if reference.decode(reference.encode(record, crc), 0)], crc=crc)
    expected = [row_of(record) for record in view.records]
    assert by_queues(view) == expected
    assert by_log(view) == expected
    assert by_log(view, rows=3) == by_queues(view, rows=4) == expected


def test_bodies_of_4_mib_between_small_ones_are_whole(tmp_path: Path) -> None:
    bodies = [bytes([number]) * (4 << 20) if number % 2 else b"small" for number in range(6)]
    with Producer(tmp_path / "store", config=replace(StoreConfig(), commit_log_file_bytes=9 << 20)) as producer:
        for body in bodies:
            producer.send(Message("large", body), sharding_key="same")
    view = LocalView(tmp_path / "store")
    for read in (by_queues, by_log):
        assert [row["value"] for row in read(view)] == bodies
        assert [row["value"] for row in read(Windows(view))] == bodies


@SHARED
@given(names=st.lists(st.sampled_from(FULL.names), unique=True))
def test_any_columns_in_any_order_are_those_of_all(root: Path, expected: Rows, names: list[str]) -> None:
    schema = pa.schema([FULL.field(name) for name in names])
    view = LocalView(root)
    assert by_log(view, schema) == [{name: row[name] for name in names} for row in expected]
    in_order: list[Row] = expected
    if "commit_log_offset" not in names:
        in_order = sorted(expected, key=lambda row: (row["topic"], row["partition"], row["offset"]))
    assert by_queues(view, schema) == [{name: row[name] for name in names} for row in in_order]


@pytest.mark.parametrize("name", FULL.names)
def test_each_column_can_be_alone(root: Path, expected: Rows, name: str) -> None:
    schema = pa.schema([FULL.field(name)])
    assert by_log(LocalView(root), schema) == [{name: row[name]} for row in expected]


@both
def test_without_columns_there_is_the_number_of_rows(
    read: Callable[..., list[Row]], root: Path, expected: Rows
) -> None:
    assert read(LocalView(root), pa.schema([])) == [{}] * len(expected)


def test_what_entries_tell_is_answered_without_the_log(root: Path, expected: Rows) -> None:
    class WithoutLog(Windows):
        def log(self, commit_log_offset: int, size: int) -> LogPart:
            raise AssertionError(f"looked at {size} bytes at {commit_log_offset}")

    names = ["offset", "commit_log_offset", "topic", "size", "partition"]
    rows = by_queues(WithoutLog(LocalView(root)), pa.schema([FULL.field(name) for name in names]))
    assert rows == [{name: row[name] for name in names} for row in expected]


# --- which messages -------------------------------------------------------------------------------


@SHARED
@given(data=st.data())
def test_parts_of_the_log_together_give_each_message_once(root: Path, expected: Rows, data: st.DataObject) -> None:
    view = LocalView(root)
    begins = [row["commit_log_offset"] for row in expected]
    cuts = sorted(data.draw(st.sets(st.sampled_from(begins[1:]), max_size=5)))
    reader = BatchReader(view, FULL, on_lost=never, rows=data.draw(st.integers(1, 50)))
    rows = []
    for start, stop in zip([0, *cuts], [*cuts, end_of(view)], strict=True):
        rows += rows_of(reader.read_log(start, stop, everything(view)), FULL)
    assert rows == expected


@SHARED
@given(data=st.data())
def test_only_wanted_queue_offsets_of_wanted_queues_are_read(root: Path, expected: Rows, data: st.DataObject) -> None:
    view = LocalView(root)
    wanted: dict[MessageQueue, range] = {}
    for queue in data.draw(st.sets(st.sampled_from(view.queues()))):
        stop = data.draw(st.integers(0, len(view.offsets(queue))))
        wanted[queue] = range(data.draw(st.integers(0, stop)), stop)
    rows = [
        row for row in expected if row["offset"] in wanted.get(MessageQueue(row["topic"], row["partition"]), range(0))
    ]
    reader = BatchReader(view, FULL, on_lost=never)
    assert rows_of(reader.read_log(0, end_of(view), wanted), FULL) == rows
    for queue, offsets in wanted.items():
        found = rows_of(reader.read_queue(queue, offsets.start, offsets.stop), FULL)
        assert found == [row for row in rows if MessageQueue(row["topic"], row["partition"]) == queue]


@both
def test_messages_of_transactions_that_are_not_committed_are_no_messages(read: Callable[..., list[Row]]) -> None:
    flags = [0, 0x4, 0x8, 0xC, 0x4, 0]
    view = HandMade([ReferenceRecord(topic="t", body=b"%d" % number, sys_flag=f) for number, f in enumerate(flags)])
    assert [row["value"] for row in read(view)] == [b"0", b"2", b"5"]


@both
@pytest.mark.parametrize("expression", ["*", "Aa", "BB", "Aa || c", "none", "ключ || BB"])
def test_tags_are_compared_and_not_only_their_hashes(read: Callable[..., list[Row]], expression: str) -> None:
    tags = ["Aa", "BB", "c", "ключ", "AaX", None]
    assert reference.java_hash("Aa") == reference.java_hash("BB")
    made = [
        ReferenceRecord(
            topic="t", body=b"%d" % number, properties=b"" if tag is None else f"TAGS\x01{tag}\x02".encode()
        )
        for number, tag in enumerate(tags * 3)
    ]
    wanted: TagFilter = parse_tags(expression)
    found = read(HandMade(made), tags=wanted)
    assert [row["tags"] for row in found] == [tag for tag in tags * 3 if wanted.matches(tag)]
    names = pa.schema([FULL.field("offset")])  # without the column of tags, and with no other that needs the log
    assert len(read(HandMade(made), names, tags=wanted)) == len(found)


def test_what_another_process_appends_meanwhile_is_read_alike_by_both_ways(root: Path) -> None:
    view = LocalView(root)
    with appending(root):
        for _ in range(3):
            end, wanted = end_of(view), everything(view)
            reader = BatchReader(view, FULL, on_lost=never)
            along = rows_of(reader.read_log(0, end, wanted), FULL)
            listed = []
            for queue, offsets in wanted.items():
                listed += rows_of(reader.read_queue(queue, offsets.start, offsets.stop), FULL)
            listed.sort(key=lambda row: row["commit_log_offset"])
            assert along == [row for row in listed if row["commit_log_offset"] < end]
            assert len(along) > 180


# --- batches --------------------------------------------------------------------------------------


def test_a_batch_ends_with_its_rows_or_with_the_message_that_has_too_many_bytes() -> None:
    view = HandMade([ReferenceRecord(topic="t", body=b"x" * 99) for _ in range(25)])
    queue = MessageQueue("t", 0)

    def batches_with(**limits: Any) -> list[int]:
        reader = BatchReader(view, pa.schema([FULL.field("value"), FULL.field("topic")]), on_lost=never, **limits)
        along = [batch.num_rows for batch in reader.read_log(0, view.end, {queue: range(25)})]
        assert [batch.num_rows for batch in reader.read_queue(queue, 0, 25)] == along
        return along

    assert batches_with() == [25]
    assert batches_with(rows=10) == [10, 10, 5]
    assert batches_with(rows=25) == [25]
    assert batches_with(rows=1) == [1] * 25
    assert batches_with(size=1_000) == [11, 11, 3]
    assert batches_with(size=999) == [10, 10, 5]
    assert batches_with(size=1) == [1] * 25


def test_a_batch_stays_as_it_is_while_others_are_read(root: Path, expected: Rows) -> None:
    view = LocalView(root)
    reader = BatchReader(view, FULL, on_lost=never, rows=7)
    held = list(reader.read_log(0, end_of(view), everything(view)))
    assert rows_of(iter(held), FULL) == expected


def test_two_readings_of_one_reader_do_not_mix(root: Path) -> None:
    view = LocalView(root)
    reader = BatchReader(view, FULL, on_lost=never, rows=5)
    queue = MessageQueue("orders", 0)
    one, other = reader.read_queue(queue, 0, 60), reader.read_queue(queue, 60, 120)
    pairs = list(zip(one, other, strict=True))
    assert rows_of((pair[0] for pair in pairs), FULL) == rows_of(reader.read_queue(queue, 0, 60), FULL)
    assert rows_of((pair[1] for pair in pairs), FULL) == rows_of(reader.read_queue(queue, 60, 120), FULL)


@pytest.mark.parametrize(
    ("schema", "limits", "told"),
    [
        (pa.schema([("body", pa.binary())]), {}, "'body' is no column"),
        (pa.schema([("offset", pa.int32())]), {}, "column offset is of type int64, and not int32"),
        (pa.schema([("value", pa.string())]), {}, "column value is of type binary, and not string"),
        (FULL, {"rows": 0}, "rows=0"),
        (FULL, {"rows": 1 << 25}, "rows=33554432"),
        (FULL, {"size": 0}, "size=0"),
        (FULL, {"size": 2 << 30}, "size=2147483648"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_by_name(
    root: Path, schema: pa.Schema, limits: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        BatchReader(LocalView(root), schema, on_lost=never, **limits)


# --- parts of the log -----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("part_bytes", [8, 100, 333, 4_096])
def test_parts_of_the_log_that_end_within_records_are_asked_for_again(
    read: Callable[..., list[Row]], root: Path, expected: Rows, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PART_BYTES", part_bytes)
    view = Windows(LocalView(root))
    assert read(view) == expected
    assert len(view.asked) > end_of(view) // 8_192


# --- messages that are lost -----------------------------------------------------------------------


def file_of(root: Path, number: int) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def flip(root: Path, commit_log_offset: int, mask: int = 1) -> None:
    """Change bits of one byte of the log."""
    path = file_of(root, commit_log_offset // SMALL.commit_log_file_bytes)
    position = commit_log_offset - int(path.name)
    overwrite(path, position, bytes([path.read_bytes()[position] ^ mask]))


FIELDS = {
    "total_size": 3,
    "a larger total_size": 2,
    "magic": 4,
    "body_crc": 8,
    "queue_id": 15,
    "another queue_id": 12,
    "queue_offset": 27,
    "a far queue_offset": 24,
    "commit_log_offset": 30,
    "sys_flag": 39,
    "a host that is IPv6": 39,
    "store_timestamp": 60,
    "body_size": 87,
    "body": 90,
}


@both
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", [0, 77, 179])
def test_a_damaged_record_is_told_and_all_others_are_read(
    read: Callable[..., list[Row]], root: Path, expected: Rows, field: str, number: int
) -> None:
    damaged = expected[number]
    flip(root, damaged["commit_log_offset"] + FIELDS[field], 0x10 if "IPv6" in field else 1)
    lost: list[str] = []
    assert read(LocalView(root), on_lost=lost.append) == expected[:number] + expected[number + 1 :]
    (sentence,) = lost
    place = f"{damaged['topic']}, queue {damaged['partition']}, offset {damaged['offset']}"
    assert sentence.startswith(f"{place}, at {damaged['commit_log_offset']} of the commit log: cannot be read: ")


@both
def test_a_damaged_topic_or_property_is_told(read: Callable[..., list[Row]], root: Path, expected: Rows) -> None:
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    number = 40
    at = log.index(expected[number]["topic"].encode(), expected[number]["commit_log_offset"])
    flip(root, at)  # still a name, of no topic that is wanted
    flip(root, log.index(b"UNIQ_KEY", expected[90]["commit_log_offset"]) + 12)
    lost: list[str] = []
    rows = read(LocalView(root), on_lost=lost.append)
    assert rows == [row for place, row in enumerate(expected) if place not in {number, 90}]
    assert len(lost) == 2


@both
def test_losing_a_message_can_end_the_reading(read: Callable[..., list[Row]], root: Path, expected: Rows) -> None:
    flip(root, expected[5]["commit_log_offset"] + 90)

    def fail(sentence: str) -> None:
        raise LookupError(sentence)

    with pytest.raises(
        LookupError, match=r"offset \d+, at \d+ of the commit log: cannot be read: the CRC of the record"
    ):
        read(LocalView(root), on_lost=fail)


@both
@pytest.mark.parametrize("gone", [0, 1, 2])
@pytest.mark.parametrize("is_shortened", [False, True])
def test_a_removed_or_shortened_file_is_told_and_all_others_are_read(
    read: Callable[..., list[Row]], root: Path, expected: Rows, gone: int, is_shortened: bool
) -> None:
    view = LocalView(root)
    before, end = everything(view), end_of(view)
    path = file_of(root, gone)
    removed = range(int(path.name), int(path.name) + SMALL.commit_log_file_bytes)
    if is_shortened:
        os.truncate(path, 4_096)
    else:
        path.unlink()
    lost: list[str] = []
    reader = BatchReader(view, FULL, on_lost=lost.append)
    rows = []
    if read is by_log:
        rows = rows_of(reader.read_log(0, end, before), FULL)
    else:
        for queue, offsets in before.items():
            rows += rows_of(reader.read_queue(queue, offsets.start, offsets.stop), FULL)
        rows.sort(key=lambda row: row["commit_log_offset"])
    assert rows == [row for row in expected if row["commit_log_offset"] not in removed]
    sentences = []
    for queue in before:
        numbers = [
            row["offset"]
            for row in expected
            if MessageQueue(row["topic"], row["partition"]) == queue and row["commit_log_offset"] in removed
        ]
        sentences.append(f"{queue.topic}, queue {queue.queue_id}, offsets {numbers[0]} to {numbers[-1]}, at ")
    assert len(lost) == len(sentences)
    assert all(sentence.startswith(begin) for sentence, begin in zip(sorted(lost), sorted(sentences), strict=True))
    why = "the file has 4096 bytes instead of 36864" if is_shortened else "the file is not there any more"
    assert all(why in sentence for sentence in lost)


@both
def test_what_retention_removes_while_it_is_read_is_told(
    read: Callable[..., list[Row]], root: Path, expected: Rows
) -> None:
    # Given a reading that stands within the first file
    view = LocalView(root)
    queue, stop = MessageQueue("orders", 0), len(LocalView(root).offsets(MessageQueue("orders", 0)))
    orders = [row for row in expected if row["topic"] == "orders"]
    lost: list[str] = []
    reader = BatchReader(view, FULL, on_lost=lost.append, rows=10)
    reading = (
        reader.read_log(0, end_of(view), {queue: range(stop)}) if read is by_log else reader.read_queue(queue, 0, stop)
    )
    found = rows_of(iter([next(reading)]), FULL)
    # When that is removed, and its blocks are let go of
    file_of(root, 0).unlink()
    view.release()
    found += rows_of(reading, FULL)
    # Then each message is either read or told
    told = {int(number) for sentence in lost for number in numbers_in(sentence)}
    assert {row["offset"] for row in found}.isdisjoint(told)
    assert {row["offset"] for row in found} | told == set(range(stop))
    assert found == [row for row in orders if row["offset"] not in told]
    assert told == {row["offset"] for row in orders[10:] if row["commit_log_offset"] < SMALL.commit_log_file_bytes}


def numbers_in(sentence: str) -> range:
    """Return the queue offsets of a sentence."""
    found = re.search(r", offsets? (\d+)(?: to (\d+))?[,:]", sentence)
    assert found is not None
    return range(int(found[1]), int(found[2] or found[1]) + 1)


@both
def test_entries_that_are_gone_are_told(read: Callable[..., list[Row]], root: Path, expected: Rows) -> None:
    view = LocalView(root)
    before, end = everything(view), end_of(view)
    (file, *_) = sorted((root / "consumequeue" / "orders" / "0").iterdir())
    file.unlink()
    file_of(root, 0).unlink()
    lost: list[str] = []
    reader = BatchReader(LocalView(root), FULL, on_lost=lost.append)
    queue = MessageQueue("orders", 0)
    if read is by_log:
        rows = rows_of(reader.read_log(0, end, {queue: before[queue]}), FULL)
    else:
        rows = rows_of(reader.read_queue(queue, 0, before[queue].stop), FULL)
    told = {number for sentence in lost for number in numbers_in(sentence)}
    assert told.isdisjoint(row["offset"] for row in rows)
    assert told | {row["offset"] for row in rows} == set(before[queue])
    assert all(row in expected for row in rows)


@both
def test_an_entry_that_points_elsewhere_does_not_bring_another_message(
    read: Callable[..., list[Row]], root: Path, expected: Rows
) -> None:
    path = min((root / "consumequeue" / "orders" / "0").iterdir())
    entries = path.read_bytes()
    overwrite(path, 20 * 10, entries[20 * 12 : 20 * 13])  # of a message that stands two further on
    overwrite(path, 20 * 20, bytes(20))
    overwrite(path, 20 * 30, reference.ENTRY.pack(1 << 50, 200, 0))
    overwrite(path, 20 * 40, reference.ENTRY.pack(0, 2**31 - 1, 0))
    lost: list[str] = []
    view = LocalView(root)
    rows = read(view, on_lost=lost.append)
    told = {number for sentence in lost for number in numbers_in(sentence)}
    orders = [row["offset"] for row in rows if row["topic"] == "orders"]
    assert len(rows) + len(told) == len(expected)
    assert all(row in expected for row in rows)
    assert told | set(orders) == set(range(120))
    if read is by_queues:
        assert told == {10, 20, 30, 40}


@both
@pytest.mark.parametrize("at", [12, 15, 20, 27])
def test_a_damaged_number_in_a_brokers_record_is_noticed(read: Callable[..., list[Row]], at: int) -> None:
    # Given records with a CRC of the body only: nothing in them protects queue id and queue offset
    view = HandMade([ReferenceRecord(topic="t", body=b"%d" % number) for number in range(30)], crc=False)
    view.content[view.records[10].commit_log_offset + at] ^= 1
    lost: list[str] = []
    rows = read(view, on_lost=lost.append)
    assert [row["value"] for row in rows] == [b"%d" % number for number in range(30) if number != 10]
    assert [numbers_in(sentence) for sentence in lost] == [range(10, 11)]


# --- compressed bodies ----------------------------------------------------------------------------


def compressed(body: bytes, kind: int) -> ReferenceRecord:
    """Return a record whose body is compressed as SYSFLAG tells: 0 and 3 zlib, 1 LZ4, 2 Zstandard."""
    pack = (zlib.compress, lz4.frame.compress, zstandard.ZstdCompressor().compress, zlib.compress)[kind]
    return ReferenceRecord(topic="t", body=pack(body), sys_flag=kind << 8 | 0x1)


@both
def test_bodies_are_opened(read: Callable[..., list[Row]]) -> None:
    sent = [b"%d" % number * (number * 500) for number in range(12)]
    made = [
        ReferenceRecord(topic="t", body=body) if number % 3 == 0 else compressed(body, number % 4)
        for number, body in enumerate(sent)
    ]
    view = HandMade(made)
    for limits in ({}, {"size": 3_000}, {"rows": 2}, {"null_unreadable": True}):
        assert read(view, **limits) == [row_of(record) for record in view.records]
        assert [row["value"] for row in read(view, **limits)] == sent


UNREADABLE = [
    (compressed(bytes(10_000), 2), "opens to more than 9999"),
    (ReferenceRecord(topic="t", body=b"damaged", sys_flag=0x301), "is damaged"),
    (replace(compressed(b"x" * 5_000, 1), sys_flag=0x501), "in a way that is not known: 5"),
]


@both
@pytest.mark.parametrize(("record", "why"), UNREADABLE)
def test_a_body_that_cannot_be_opened_is_an_error_with_its_place_or_null(
    read: Callable[..., list[Row]], record: ReferenceRecord, why: str
) -> None:
    made = [compressed(b"%d" % number * 1_000, 2) for number in range(9)]
    made[4] = record
    view = HandMade(made)
    place = re.escape(
        f"t, queue 0, offset 4, at {view.records[4].commit_log_offset} of the commit log: cannot be read:"
    )

    with pytest.raises(BodyUnreadable, match=f"{place} a .*{why}"):
        read(view, max_opened_body_bytes=9_999)

    rows = read(view, max_opened_body_bytes=9_999, null_unreadable=True, rows=6)
    expected = [row_of(each) if each.queue_offset != 4 else None for each in view.records]
    assert [row["value"] for row in rows] == [None if each is None else each["value"] for each in expected]
    assert [row for row in rows if row["offset"] != 4] == [each for each in expected if each is not None]
    assert rows[4]["size"] == view.records[4].size


@both
def test_a_body_that_nobody_asks_for_is_not_opened(read: Callable[..., list[Row]]) -> None:
    view = HandMade([record for record, _ in UNREADABLE])
    without_value = pa.schema([field for field in FULL if field.name != "value"])
    assert [row["offset"] for row in read(view, without_value, max_opened_body_bytes=1)] == [0, 1, 2]


@pytest.mark.parametrize("limit", [0, -1, (1 << 30) + 1])
def test_a_limit_of_bodies_that_cannot_be_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f"max_opened_body_bytes={limit}: a body opens to 1 to 1,073,741,824 bytes"):
        BatchReader(HandMade([]), FULL, max_opened_body_bytes=limit, on_lost=never)


# --- stores of a broker ---------------------------------------------------------------------------


@both
@pytest.mark.parametrize("name", ["broker-4.9.7-stopped", "broker-4.9.7-killed"])
def test_a_brokers_messages_are_what_rocketmq_read(read: Callable[..., list[Row]], name: str, tmp_path: Path) -> None:
    view = LocalView(unpacked(name, tmp_path))
    text = gzip.decompress((GOLDEN / f"{name}.jsonl.gz").read_bytes())
    manifest = [orjson.loads(line) for line in text.splitlines()]
    records = [line for line in by_place(of_kind(manifest, "record")) if line["sys_flag"] & 0xC not in {0x4, 0xC}]
    rows = read(view)
    assert len(rows) == len(records) > 200
    for row, line in zip(rows, records, strict=True):
        for field in ("topic", "commit_log_offset", "size", "flag", "sys_flag", "reconsume_times", "properties"):
            assert row[field] == line[field]
        assert (row["partition"], row["offset"]) == (line["queue_id"], line["queue_offset"])
        assert (row["born_host"], row["store_host"]) == (line["born_host"], line["store_host"])
        assert row["msg_id"] == line["properties"].get("UNIQ_KEY", row["msg_id"])
    for queue in of_kind(manifest, "queue"):
        offsets = [
            row["commit_log_offset"]
            for row in rows
            if (row["topic"], row["partition"]) == (queue["topic"], queue["queue_id"])
        ]
        assert offsets == queue["commit_log_offsets"]


@both
@pytest.mark.parametrize("name", ["store-4.9.8-clean", "store-4.9.8-broker-tx-retry-dlq"])
def test_a_brokers_store_is_read_as_by_the_oracle(read: Callable[..., list[Row]], name: str, tmp_path: Path) -> None:
    root = unpacked(name, tmp_path)
    expected = [row_of(record) for _, record in reference.read_commit_log(root) if record.in_a_queue]
    assert read(LocalView(root)) == expected
    assert read(Windows(LocalView(root))) == expected


def unpacked(name: str, directory: Path) -> Path:
    with tarfile.open(GOLDEN / f"{name}.tgz") as archive:
        archive.extractall(directory, filter="data")
    (root,) = directory.iterdir()
    return root
