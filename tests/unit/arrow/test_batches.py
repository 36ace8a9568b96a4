"""Batches of rows: both ways of reading give what the oracle reads, in any columns and parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqclient import Message, Producer, StoreConfig
from rmqclient.arrow import batches
from rmqclient.arrow.batches import BatchReader
from rmqclient.filters.tag import TagFilter, parse_tags
from rmqclient.store import MessageQueue
from rmqclient.store.inspect.view import LocalView, LogPart
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.sweeps import share_of
from tests.support.written import appending
from tests.unit.arrow.read_rows import (
    FULL,
    HandMade,
    Row,
    Rows,
    Windows,
    both,
    by_log,
    by_queues,
    end_of,
    everything,
    never,
    records,
    row_of,
    rows_of,
)

SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=share_of(40))


@both
def test_rows_are_what_the_oracle_reads(read: Callable[..., list[Row]], root: Path, expected: Rows) -> None:
    assert len(list((root / "commitlog").iterdir())) > 2  # with blank records between them
    assert len(list((root / "consumequeue" / "orders" / "0").iterdir())) > 1
    assert read(LocalView(root)) == expected


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
        (pa.schema([("body", pa.binary())]), {}, "'body' is not a column"),
        (pa.schema([("offset", pa.int32())]), {}, "column offset is of type int64, not int32"),
        (pa.schema([("value", pa.string())]), {}, "column value is of type binary, not string"),
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


@both
@pytest.mark.parametrize("part_bytes", [8, 100, 333, 4_096])
def test_parts_of_the_log_that_end_within_records_are_asked_for_again(
    read: Callable[..., list[Row]], root: Path, expected: Rows, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PART_BYTES", part_bytes)
    view = Windows(LocalView(root))
    assert read(view) == expected
    assert len(view.asked) > end_of(view) // 8_192
