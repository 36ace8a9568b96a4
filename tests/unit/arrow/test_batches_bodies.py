"""Bodies in batches that are compressed, and stores that a broker wrote."""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lz4.frame
import orjson
import pyarrow as pa
import pytest
import zstandard

from rmqclient.arrow.batches import BatchReader
from rmqclient.store.errors import BodyUnreadable
from rmqclient.store.inspect.view import LocalView
from tests.support.lines import by_place, of_kind
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.unit.arrow.read_rows import FULL, HandMade, Row, Windows, both, never, row_of

GOLDEN = Path(__file__).parents[2] / "compat" / "golden"


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
