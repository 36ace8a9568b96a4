"""Columns that a Spark read computes: a unique key for each row, and what Spark's Kafka source has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

import pyarrow as pa

from rmqclient import Compression, Producer
from rmqclient.arrow.columns import schema_of
from rmqclient.arrow.derived import derived
from rmqclient.spark.reading.batch_reader import BatchReader
from rmqclient.spark.scan.columns import schema_with
from rmqclient.spark.scan.read_options import parse
from rmqclient.store import Message
from tests.support.written import SMALL


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compressed batches of five messages in two queues, each of them before a single message."""
    root = tmp_path_factory.mktemp("derived") / "store"
    with Producer(root, config=SMALL) as producer:
        producer.create_topic("orders", 2)
        for _ in range(6):
            batch = [Message("orders", b"%d" % number, properties={"n": str(number)}) for number in range(5)]
            producer.send_batch(batch, compression=Compression.ZLIB)
            producer.send(Message("orders", b"0"))
    return root


def read(root: Path, *columns: str, **options: str) -> list[dict[str, Any]]:
    asked = parse({"path": str(root), "subscribe": "orders", "batchRows": "3"} | options, streaming=False)
    reader = BatchReader(asked, schema_with(columns))
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


@pytest.mark.guarantee("G119")
@pytest.mark.parametrize("options", [{"split": "queue"}, {"split": "log"}, {"maxRecordsPerPartition": "7"}])
def test_queue_offset_and_index_are_the_key_of_a_row(root: Path, options: dict[str, str]) -> None:
    # Given batches that are cut by the size of an Arrow batch, and by tasks
    rows = read(root, "value", "topic", "partition", "offset", "index", **options)
    # Then no two rows have one key, and it tells the place in the batch
    assert len({(row["topic"], row["partition"], row["offset"], row["index"]) for row in rows}) == len(rows) == 36
    assert all(row["value"] == b"%d" % row["index"] for row in rows)
    # And it does so without any other column
    assert sorted(row["index"] for row in read(root, "index", **options)) == sorted(row["index"] for row in rows)


def test_records_of_two_brokers_at_one_place_of_their_logs_are_two_records() -> None:
    # Given one record of each of two brokers, and a batch of the second that goes on in the next Arrow batch
    kinds = pa.schema([("commit_log_offset", pa.int64()), ("broker_name", pa.string()), ("flag", pa.int32())])
    batches = [
        pa.record_batch([[0, 0, 0], ["a", "b", "b"], [0, 0, 0]], schema=kinds),
        pa.record_batch([[0, 9], ["b", "b"], [0, 0]], schema=kinds),
    ]
    found = [
        value
        for batch in derived(batches, schema_of(["index"]), ["index"])
        for value in batch.column("index").to_pylist()
    ]
    assert found == [0, 0, 1, 2, 0]


def test_headers_and_the_kind_of_time_are_those_of_kafkas_source(root: Path) -> None:
    row, *_ = (row for row in read(root, "Headers", "timestampType", "value") if row["value"] == b"3")
    assert {"key": "n", "value": b"3"} in row["headers"]
    assert row["timestampType"] == 1
