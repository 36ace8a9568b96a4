"""The records of a broker's answer as rows: those that were asked for, in their order, each checked."""

from __future__ import annotations

import struct

import pytest

from rmqclient.arrow.columns import METADATA, PROPERTIES, USUAL, schema_of
from rmqclient.arrow.record_batches import record_batch
from rmqclient.store import STOPPED, Collector, Columns
from rmqclient.store.inspect.view import LocalView
from rmqclient.store.layout import FOUND, RECORD_HEADER
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.written import written_store
from tests.unit.arrow.read_rows import Row, row_of, rows_of

SCHEMA = schema_of(USUAL | PROPERTIES | METADATA)
TOPIC = b"orders"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The 120 records of queue 0 of orders."""
    root = written_store(tmp_path_factory.mktemp("answers") / "store")
    view = LocalView(root)
    found = []
    for _, record in reference.read_commit_log(root):
        if record.topic == "orders":
            part = view.log(record.commit_log_offset, record.size)
            at = record.commit_log_offset - part.base
            found.append(bytes(memoryview(part.content)[at : at + record.size]))
    return found


def collector(rows: int = 10_000, tags: tuple[str, ...] = ()) -> Collector:
    return Collector(Columns(tuple(SCHEMA.names), rows=rows, size=4 << 20), tags=tags)


def taken(found: Collector) -> list[Row]:
    return rows_of(iter([record_batch(found.columns, SCHEMA)]), SCHEMA)


def offsets(found: Collector) -> list[int]:
    return [row["offset"] for row in taken(found)] if found.columns.rows else []


def test_rows_are_the_records_with_the_names_that_the_reader_gives(records: list[bytes]) -> None:
    found = collector()
    found.columns.come_from(b"broker-a", b"shown")
    body = b"".join(records)
    assert found.add_pulled(body, 0, TOPIC, 0, 0, 120, True) == (len(body), STOPPED["END"], 120)
    decoded = [each for record in records if isinstance(each := reference.decode(record, 0), ReferenceRecord)]
    named = {"broker_name": "broker-a", "topic": "shown"}
    assert taken(found) == [row_of(record) | named for record in decoded]


@pytest.mark.parametrize(
    ("born_ms", "year"), [(2**63 - 1, 9997), (-(2**63), 2), (253_402_300_800_000, 9997), (1_800_000_000_000, 2027)]
)
def test_a_time_that_no_calendar_has_becomes_the_nearest_one(records: list[bytes], born_ms: int, year: int) -> None:
    found, record = collector(), bytearray(records[0])
    struct.pack_into(">q", record, RECORD_HEADER.at["born_timestamp"], born_ms)
    found.add_pulled(bytes(record), 0, TOPIC, 0, 0, 1, False)
    assert [row["born_timestamp"].year for row in taken(found)] == [year]


def test_only_the_offsets_that_are_wanted_become_rows(records: list[bytes]) -> None:
    found = collector()
    body = b"".join(records)
    assert found.add_pulled(body, 0, TOPIC, 0, 7, 12, True)[1:] == (STOPPED["END"], 12)
    assert offsets(found) == [7, 8, 9, 10, 11]


def test_a_full_batch_is_taken_and_the_rest_follows(records: list[bytes]) -> None:
    found, body = collector(rows=50), b"".join(records)
    at, why, following = found.add_pulled(body, 0, TOPIC, 0, 0, 120, True)
    assert (why, following) == (STOPPED["FULL"], 50)
    assert offsets(found) == list(range(50))
    at, why, following = found.add_pulled(body, at, TOPIC, 0, following, 120, True)
    assert (why, following) == (STOPPED["FULL"], 100)
    assert offsets(found) == list(range(50, 100))
    assert found.add_pulled(body, at, TOPIC, 0, following, 120, True)[1:] == (STOPPED["END"], 120)


def test_a_missing_message_is_told_where_all_are_wanted(records: list[bytes]) -> None:
    found, body = collector(), records[0] + records[3]
    at, why, following = found.add_pulled(body, 0, TOPIC, 0, 0, 120, True)
    assert (at, why, following) == (len(records[0]), STOPPED["GAP"], 1)
    assert found.add_pulled(body, at, TOPIC, 0, 3, 120, True)[1:] == (STOPPED["END"], 4)
    assert offsets(found) == [0, 3]
    assert found.add_pulled(body, 0, TOPIC, 0, 0, 120, False)[1:] == (STOPPED["END"], 4)
    assert offsets(found) == [0, 3], "a broker that selects by tag leaves messages out"


def test_a_record_of_another_queue_or_a_damaged_one_ends_it(records: list[bytes]) -> None:
    found = collector()
    assert found.add_pulled(records[0], 0, TOPIC, 1, 0, 120, True) == (0, STOPPED["OTHER"], 0)
    assert found.add_pulled(records[0], 0, b"order", 0, 0, 120, True) == (0, STOPPED["OTHER"], 0)
    assert found.add_pulled(records[0][:-1], 0, TOPIC, 0, 0, 120, True) == (0, STOPPED["SHORT"], 0)
    damaged = bytearray(records[0])
    damaged[11] ^= 1  # the CRC of its body
    at, why, _ = found.add_pulled(bytes(damaged), 0, TOPIC, 0, 0, 120, True)
    assert at == 0
    assert why == FOUND["BAD_BODY_CRC"]
    assert found.columns.rows == 0


def test_a_record_that_only_a_store_would_take_for_torn_is_a_row() -> None:
    found, record = collector(), ReferenceRecord(topic="orders", body=b"x", properties=b"note\x01a\x00b\x02")
    assert found.add_pulled(reference.encode(record, False), 0, TOPIC, 0, 0, 1, True)[1:] == (STOPPED["END"], 1)
    assert taken(found)[0]["properties"] == {"note": "a\x00b"}


def test_properties_that_are_no_texts_end_it() -> None:
    found, record = collector(), ReferenceRecord(topic="orders", body=b"x", properties=b"note\x01\xff\x02")
    assert found.add_pulled(reference.encode(record, False), 0, TOPIC, 0, 0, 1, True) == (0, FOUND["BAD_SIZE"], 0)


def test_tags_are_compared_as_texts(records: list[bytes]) -> None:
    found = collector(tags=("tag1",))
    found.add_pulled(b"".join(records), 0, TOPIC, 0, 0, 120, False)
    tags = {row["tags"] for row in taken(found)}
    assert tags == {"tag1"}
