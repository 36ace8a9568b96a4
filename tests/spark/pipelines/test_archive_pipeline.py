"""The archive, as any reader of its directory sees it, against a plain loop over the same messages."""

# ruff: noqa: PLC0415 - Spark need not be installed

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqclient import Compression, Message, Producer
from rmqclient.errors import DataLost
from rmqclient.store.errors import NotInstalled
from tests.spark.pipeline_store import MESSAGES, ORDERS, PAYMENTS, make_store, read_all, send
from tests.support.written import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOP = Path(__file__).parents[3]
TOPICS = [ORDERS, PAYMENTS, "%DLQ%billing"]
KIB = 1 << 10

KILLED = """
import sys
from rmqclient.spark import session
from rmqclient.spark.pipelines.archive import archive
from tests.spark.conftest import QUICK

archive(session("local[2]", **QUICK), sys.argv[1], ["orders", "payments"], sys.argv[2], batch_bytes=4 << 10)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def rows_in(target: Path) -> list[dict[str, Any]]:
    """Return what a reader finds that knows nothing of Spark."""
    from pyarrow import dataset

    rows: list[dict[str, Any]] = dataset.dataset(target, partitioning="hive").to_table().to_pylist()
    return rows


def places(rows: list[dict[str, Any]]) -> Counter[tuple[str, int, int]]:
    return Counter((row["topic"], row["partition"], row["offset"]) for row in rows)


def places_in(root: Path, *topics: str) -> Counter[tuple[str, int, int]]:
    return Counter((each.topic, each.queue_id, each.queue_offset) for each in read_all(root, *topics))


def send_more(root: Path) -> None:
    with Producer(root) as producer:
        for number in range(MESSAGES, MESSAGES + 50):
            send(producer, number)


@pytest.mark.guarantee("G28")
def test_run_after_run_every_message_is_there_once_as_it_was(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.archive import archive

    target = tmp_path / "archive"
    first = archive(spark, root, TOPICS, target, batch_bytes=32 * KIB, metadata=True)
    assert first.batches > 1
    assert archive(spark, root, TOPICS, target).messages == 0
    send_more(root)
    assert archive(spark, root, TOPICS, target, metadata=True).messages == 50

    rows = {(row["topic"], row["partition"], row["offset"]): row for row in rows_in(target)}
    messages = read_all(root, *TOPICS)
    assert len(rows) == sum(places(rows_in(target)).values()) == len(messages) == first.messages + 50
    for message in messages:
        row = rows[message.topic, message.queue_id, message.queue_offset]
        assert row["value"] == message.body
        assert (row["key"], row["tags"]) == (" ".join(message.keys) or None, message.tags)
        assert dict(row["properties"]) == dict(message.properties)
        assert row["timestamp"].timestamp() * 1000 == pytest.approx(message.store_timestamp, abs=0.01)
        assert row["msg_id"] == message.message_id
        assert row["day"] == time.strftime("%Y-%m-%d", time.gmtime(message.store_timestamp / 1000))


@pytest.mark.crash
@pytest.mark.guarantee("G28")
def test_a_killed_archive_goes_on_with_nothing_lost_or_doubled(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.archive import archive

    target = tmp_path / "archive"
    command = [sys.executable, "-c", KILLED, str(root), str(target)]
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 120
        while len(list(target.rglob("*.parquet"))) < 3:
            assert child.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
    before = places(rows_in(target))
    assert set(before.values()) == {1}
    send_more(root)
    added = archive(spark, root, [ORDERS, PAYMENTS], target)
    assert added.messages > 50
    assert places(rows_in(target)) == places_in(root, ORDERS, PAYMENTS)


def test_a_continuous_archive_follows_what_is_sent_and_ends_in_order_at_a_signal(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    from rmqclient.spark.pipelines.archive import archive

    target = tmp_path / "archive"

    def send_then_stop() -> None:
        wait_until(lambda: any(target.rglob("*.parquet")))
        send_more(root)
        wait_until(lambda: sum(places(rows_in(target)).values()) == MESSAGES + 50)
        os.kill(os.getpid(), signal.SIGTERM)

    other = threading.Thread(target=send_then_stop)
    other.start()
    archived = archive(spark, root, [ORDERS, PAYMENTS], target, every=0.2)
    other.join()
    assert archived.messages == MESSAGES + 50
    assert archived.batches > 1
    assert places(rows_in(target)) == places_in(root, ORDERS, PAYMENTS)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_small_files_become_few_and_their_rows_stay_in_order(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    from pyarrow import dataset, parquet

    from rmqclient.spark.pipelines.archive import archive

    target = tmp_path / "archive*[new]"  # a name, and no pattern
    archive(spark, root, TOPICS, target, batch_bytes=12 * KIB)
    before = places(rows_in(target))
    (day,) = target.glob("topic=orders/*")
    files = set(day.iterdir())
    listed = dataset.dataset(day)
    merged = archive(spark, root, TOPICS, target, merge=True).merged_files
    assert merged >= len(files) > 1
    (file,) = day.glob("*.parquet")
    assert places(rows_in(target)) == before
    order = [(row["partition"], row["offset"]) for row in parquet.read_table(file).to_pylist()]
    assert order == sorted(order)
    with pytest.raises(FileNotFoundError):
        listed.to_table()
    send_more(root)
    archive(spark, root, TOPICS, target)
    assert places(rows_in(target)) == places_in(root, *TOPICS)


@pytest.mark.guarantee("G117")
def test_any_reader_finds_topics_as_texts_and_no_other_file(spark: SparkSession, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.archive import archive
    from rmqclient.spark.pipelines.compact import compact

    # Given an archive whose topics are numbers to those who guess
    topics = ["007", "12"]
    with Producer(tmp_path / "store", config=SMALL) as producer:
        for topic in topics:
            producer.send(Message(topic, topic.encode(), keys="k"))
    target, latest = tmp_path / "archive", tmp_path / "latest"
    archived = archive(spark, tmp_path / "store", topics, target)
    assert (archived.messages, archived.files) == (2, 2)
    # Then each reader finds them as they are
    assert sorted((row["topic"], row["value"]) for row in rows_in(target)) == [("007", b"007"), ("12", b"12")]
    assert {(row.topic, bytes(row.value)) for row in spark.read.parquet(str(target)).collect()} == {
        ("007", b"007"),
        ("12", b"12"),
    }
    # And each file is one of Parquet, here and in what a compaction leaves
    compact(spark, tmp_path / "store", topics, latest)
    found = [path for each in (target, latest) for path in each.rglob("*") if path.is_file()]
    assert {path.suffix for path in found} == {".parquet"}


def test_an_archive_of_an_older_version_keeps_its_identity_and_has_files_of_parquet_only(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from rmqclient.spark.pipelines.output.published import Published

    # Given a target that had its identity in a file
    target = tmp_path / "archive"
    with Published(target) as published:
        identity = published.work / "_published.json"
        for mark in target.iterdir():
            mark.rmdir()
        (target / "_published.json").write_bytes(identity.read_bytes())
    # When it is opened again
    with Published(target):
        assert not any(path.is_file() for path in target.rglob("*"))
    # Then it is still told from a target of another work directory
    other = tmp_path / "other"
    with Published(other):
        pass
    with pytest.raises(DataLost), Published(target, other.with_name("other.work")):
        pass


@pytest.mark.guarantee("G97")
def test_a_merge_keeps_the_columns_of_every_file(spark: SparkSession, tmp_path: Path) -> None:
    from pyarrow import parquet

    from rmqclient.spark.pipelines.archive import archive

    # Given an archive whose first run had fewer columns
    root, target = make_store(tmp_path / "store"), tmp_path / "archive"
    archive(spark, root, [ORDERS], target, properties=False)
    for _ in range(4):
        send_more(root)
        archive(spark, root, [ORDERS], target, metadata=True)
    table = parquet.read_table  # as any reader that merges schemas
    before = [row for file in sorted(target.rglob("*.parquet")) for row in table(file).to_pylist() if "msg_id" in row]
    # When its small files are merged
    assert archive(spark, root, [ORDERS], target, metadata=True, merge=True).merged_files >= 5
    # Then the rows that had more columns have them still
    after = [row for file in target.rglob("*.parquet") for row in table(file).to_pylist() if row.get("msg_id")]
    assert before
    assert sorted(row["msg_id"] for row in after) == sorted(row["msg_id"] for row in before)
    assert all(row["properties"] for row in after)


def test_a_merge_keeps_the_order_of_a_compressed_batch(spark: SparkSession, tmp_path: Path) -> None:
    from pyarrow import parquet

    from rmqclient.spark.pipelines.archive import archive

    # Given an archive of batches, which have one offset each, in small files
    store, target = tmp_path / "store", tmp_path / "archive"
    with Producer(store, config=SMALL) as producer:
        producer.create_topic("batches", 1)
        for first in range(0, 800, 100):
            batch = [Message("batches", b"%03d" % number) for number in range(first, first + 100)]
            producer.send_batch(batch, compression=Compression.ZLIB)
    options: dict[str, str | int | bool] = {"maxOffsetsPerTrigger": 200}
    archive(spark, store, ["batches"], target, merge=True, options=options)
    # Then its rows have their order when these are one
    (file,) = target.glob("topic=batches/*/*.parquet")
    assert parquet.read_table(file, partitioning=None)["value"].to_pylist() == [
        b"%03d" % number for number in range(800)
    ]


def test_a_file_system_that_exchanges_no_directories_keeps_its_small_files(
    spark: SparkSession, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqclient.spark.pipelines.archive import archive
    from rmqclient.spark.pipelines.output import small_files

    def refuse(*_: Path) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(small_files, "exchange", refuse)
    with pytest.raises(OSError, match="cannot exchange two directories in one step; nothing was merged"):
        archive(spark, root, [ORDERS], tmp_path / "archive", batch_bytes=8 * KIB, merge=True)
    assert places(rows_in(tmp_path / "archive")) == places_in(root, ORDERS)


@pytest.mark.skipif(importlib.util.find_spec("deltalake") is None, reason="deltalake is not installed")
def test_a_delta_table_has_every_message_once_also_when_a_batch_comes_again(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    from rmqclient.spark.pipelines.archive import archive
    from rmqclient.spark.pipelines.compact import compact

    target = tmp_path / "table"
    archive(spark, root, TOPICS, target, batch_bytes=48 * KIB, table_format="delta")
    newest = max(
        (target.with_name("table.work") / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name)
    )
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    send_more(root)
    archive(spark, root, TOPICS, target, table_format="delta")
    assert places(DeltaTable(str(target)).to_pyarrow_table().to_pylist()) == places_in(root, *TOPICS)

    keys = {message.keys[0] for message in read_all(root, ORDERS) if message.keys}
    for _ in range(2):
        compact(spark, root, [ORDERS], tmp_path / "latest", table_format="delta")
        latest = DeltaTable(str(tmp_path / "latest")).to_pyarrow_table()["key"].to_pylist()
        assert sorted(latest) == sorted(keys)


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from rmqclient.spark.pipelines.output.delta import DeltaLog

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"pip install 'rmqclient\[delta\]'"):
        DeltaLog(tmp_path)


def test_a_target_in_an_object_store_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from rmqclient.spark.pipelines.archive import archive

    with pytest.raises(ValueError, match="s3://bucket/x: give a directory"):
        archive(None, tmp_path, [ORDERS], "s3://bucket/x")  # type: ignore[arg-type]
