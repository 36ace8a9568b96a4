"""Each row of a sink once: batches that come again, attempts, aborts, and drivers that died."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from rmqclient import Producer
from rmqclient.errors import BatchConflict, MessageRejected, StoreBusy, StoreFull
from rmqclient.spark.writing import committing, ledger, staging
from rmqclient.spark.writing.writer import BatchWriter, StreamWriter
from rmqclient.store import StoreConfig, open_store
from rmqclient.store.kernel._kernel import RobustMutex
from rmqclient.store.settings.disk import Disk, Usage
from tests.spark.sink.sink_rows import (
    batch_of,
    bodies,
    left_in_staging,
    numbered,
    rows_of,
    schema_of,
    staged,
    stream,
    write,
)


@pytest.mark.guarantee("G25")
def test_a_batch_that_comes_again_adds_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        stream(tmp_path / "s", 0, numbered(10), numbered(10, 10))
    stream(tmp_path / "s", 1, numbered(10, 20))
    assert bodies(rows_of(tmp_path / "s")) == list(range(30))


@pytest.mark.guarantee("G25")
def test_another_query_is_another_application_and_one_name_outlives_a_lost_checkpoint(tmp_path: Path) -> None:
    for query in ("q1", "q2"):
        stream(tmp_path / "named", 0, numbered(10), query=query, txnappid="mine")
        stream(tmp_path / "unnamed", 0, numbered(10), query=query)
    assert bodies(rows_of(tmp_path / "named")) == list(range(10))
    assert len(rows_of(tmp_path / "unnamed")) == 20


@pytest.mark.guarantee("G25")
def test_a_named_batch_that_comes_with_other_rows_is_refused_and_one_in_another_order_is_not(tmp_path: Path) -> None:
    stream(tmp_path / "s", 0, numbered(10), numbered(10, 10), txnappid="mine")
    stream(tmp_path / "s", 0, numbered(15)[::-1], numbered(5, 15), txnappid="mine")
    with pytest.raises(BatchConflict, match=r"written with 20 rows, and comes again with 10.*another txnAppId"):
        stream(tmp_path / "s", 0, numbered(10), txnappid="mine")
    with pytest.raises(BatchConflict, match="written with other rows, and comes again with 20"):
        stream(tmp_path / "s", 0, numbered(20, 1), txnappid="mine")
    assert bodies(rows_of(tmp_path / "s")) == list(range(20))


@pytest.mark.guarantee("G25")
def test_a_batch_write_with_a_version_is_done_once_and_one_without_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path / "s", numbered(10), topic="once", txnappid="daily", txnversion="20261121")
        write(tmp_path / "s", numbered(10), topic="each")
    write(tmp_path / "s", numbered(10, 10), topic="once", txnappid="daily", txnversion="20261120")
    assert bodies(rows_of(tmp_path / "s", "once")) == list(range(20))
    assert len(rows_of(tmp_path / "s", "each")) == 20


@pytest.mark.guarantee("G25")
@pytest.mark.parametrize("name", [{}, {"txnappid": "mine"}], ids=["a query", "a name"])
def test_numbers_that_begin_again_are_refused_where_their_rows_are_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: dict[str, str]
) -> None:
    # Given more batches than are remembered
    monkeypatch.setattr(ledger, "_KEPT", 3)
    for number in range(6):
        stream(tmp_path / "s", number, numbered(1, number), **name)
    # When remembered ones come again, then nothing is added
    for number in (3, 5):
        stream(tmp_path / "s", number, numbered(1, number), **name)
    # When old numbers come, with the same rows or others, then they are refused
    for number, first in ((0, 0), (2, 100)):
        with pytest.raises(BatchConflict, match=rf"batch {number} .* remembered, 3 to 5"):
            stream(tmp_path / "s", number, numbered(1, first), **name)
    assert bodies(rows_of(tmp_path / "s")) == list(range(6))


@pytest.mark.guarantee("G25")
def test_each_topic_has_batches_of_its_own_as_after_a_checkpoint_was_copied(tmp_path: Path) -> None:
    for topic in ("a", "b"):
        stream(tmp_path / "s", 0, numbered(10), topic=topic)
        write(tmp_path / "s", numbered(10, 10), topic=topic, txnappid="job", txnversion="1")
        assert bodies(rows_of(tmp_path / "s", topic)) == list(range(20))


@pytest.mark.guarantee("G25")
def test_only_the_newest_batch_of_a_query_may_come_again_with_other_rows(tmp_path: Path) -> None:
    for number in range(2):
        stream(tmp_path / "s", number, numbered(5, 5 * number))
    stream(tmp_path / "s", 1, numbered(5, 50))
    with pytest.raises(BatchConflict, match=r"batch 0 .* other rows"):
        stream(tmp_path / "s", 0, numbered(5, 60))
    assert bodies(rows_of(tmp_path / "s")) == list(range(10))


@pytest.mark.guarantee("G25")
def test_a_query_on_a_copied_checkpoint_may_not_drop_its_newest_batch_for_that_of_the_first_one(tmp_path: Path) -> None:
    # Given a query, and another one with its id, which stands in the copy of the checkpoint
    for number in range(2):
        stream(tmp_path / "s", number, numbered(5, 5 * number), checkpointlocation=f"file:{tmp_path}/first")
    with pytest.raises(BatchConflict, match=r"other rows.*checkpoint was lost or copied"):
        stream(tmp_path / "s", 1, numbered(5, 50), checkpointlocation=f"{tmp_path}/copy")
    # When the first one computes its newest batch anew, then it goes on
    stream(tmp_path / "s", 1, numbered(5, 50), checkpointlocation=f"{tmp_path}/first")
    assert bodies(rows_of(tmp_path / "s")) == list(range(10))


@pytest.mark.guarantee("G25")
def test_the_ledger_of_another_store_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        stream(tmp_path / name, 0, numbered(5))
    shutil.rmtree(tmp_path / "other/spark")
    shutil.copytree(tmp_path / "one/spark", tmp_path / "other/spark")
    with pytest.raises(BatchConflict, match="the ledger of another store"):
        stream(tmp_path / "other", 0, numbered(5))


@pytest.mark.guarantee("G25")
def test_batches_that_an_older_version_wrote_are_remembered(tmp_path: Path) -> None:
    # Given the ledger of an older version, which knew no topics
    stream(tmp_path / "s", 0, numbered(5))
    directory = tmp_path / "s/spark/q"
    page = orjson.loads((directory / "topics/out/ledger.json").read_bytes())
    del page["store"]
    (directory / "ledger.json").write_bytes(orjson.dumps(page | {"format": 1}))
    shutil.rmtree(directory / "topics")
    # When its last batch comes again, and the next one
    stream(tmp_path / "s", 0, numbered(5))
    stream(tmp_path / "s", 1, numbered(5, 5))
    # Then each row is there once
    assert bodies(rows_of(tmp_path / "s")) == list(range(10))


@pytest.mark.guarantee("G25")
def test_what_two_attempts_of_a_part_staged_is_appended_once_and_nothing_stays(tmp_path: Path) -> None:
    batch = batch_of(numbered(100))
    given = {"path": str(tmp_path / "s"), "topic": "out"}
    tasks = StreamWriter(given, schema_of(batch), overwrite=False)
    first, second = staged(tasks, 0, batch, "q"), staged(tasks, 0, batch, "q")
    assert first.staged.file != second.staged.file
    assert first.staged.is_same(second.staged)
    StreamWriter(given, schema_of(batch), overwrite=False).commit([second], 0)
    assert bodies(rows_of(tmp_path / "s")) == list(range(100))
    assert left_in_staging(tmp_path / "s") == []
    assert sorted(path.name for path in (tmp_path / "s/spark/q/topics/out").iterdir()) == ["ledger.json", "lock"]


@pytest.mark.guarantee("G26")
def test_an_abort_leaves_nothing(tmp_path: Path) -> None:
    batch = batch_of(numbered(100))
    for kind in (StreamWriter, BatchWriter):
        given = {"path": str(tmp_path / "s"), "topic": "out"}
        tasks = kind(given, schema_of(batch), overwrite=False)
        message = staged(tasks, 0, batch, "q")
        assert left_in_staging(tmp_path / "s") != []
        if isinstance(tasks, StreamWriter):
            StreamWriter(given, schema_of(batch), overwrite=False).abort([None, message], 0)
        else:
            tasks.abort([None, message])
        assert left_in_staging(tmp_path / "s") == []
    with open_store(tmp_path / "s") as store:
        assert (store.topics.topics(), store.state.published_to) == ([], 0)


def test_what_a_dead_driver_left_is_removed_by_the_next_commit_and_what_a_living_one_has_is_kept(
    tmp_path: Path,
) -> None:
    root = tmp_path / "s"
    stream(root, 0, numbered(1))
    namespace = staging._namespace()
    dead = f"{'0' * 32}.{namespace}.{2**22 + 1}.5"
    stranger = f"{'1' * 32}.{namespace + 1}.1.5"
    for run in (dead, stranger, alive := staging.new_run()):
        (root / staging.DIRECTORY / run).mkdir()
        (root / staging.DIRECTORY / run / "00000-0-a").touch()
    stream(root, 1, numbered(1, 1))
    assert left_in_staging(root) == sorted([stranger, alive])


def test_a_staged_file_that_was_changed_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    batches = [batch_of(numbered(100)), batch_of(numbered(100, 100))]
    writer = BatchWriter({"path": str(tmp_path / "s"), "topic": "out"}, schema_of(batches[0]), overwrite=False)
    messages = [staged(writer, part, batch) for part, batch in enumerate(batches)]
    path = tmp_path / "s" / messages[1].staged.file
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(BatchConflict, match="differs from what its task staged"):
        writer.commit(messages)
    with open_store(tmp_path / "s") as store:
        assert store.state.published_to == 0


def test_a_topic_that_was_made_smaller_meanwhile_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    batch = batch_of(numbered(10))
    writer = BatchWriter({"path": str(tmp_path / "s"), "topic": "out"}, schema_of(batch), overwrite=False)
    message = staged(writer, 0, batch)
    with Producer(tmp_path / "s") as producer:
        producer.create_topic("out", 1)
    with pytest.raises(MessageRejected, match="'out' was made with 1 queues while rows for 4 queues were staged"):
        writer.commit([message])
    assert rows_of(tmp_path / "s") == []


def test_a_second_driver_of_the_same_application_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream(tmp_path / "s", 0, numbered(1), txnappid="mine")
    monkeypatch.setattr(committing, "_LOCK_TIMEOUT_S", 0.05)
    with (
        ledger.Ledger(tmp_path / "s", "mine", "out").held(1),
        pytest.raises(StoreBusy, match=r"another driver .* application 'mine' .* txnAppId of its own"),
    ):
        stream(tmp_path / "s", 1, numbered(1, 1), txnappid="mine")
    assert bodies(rows_of(tmp_path / "s")) == [0]


def test_a_partition_that_is_no_int_is_refused(tmp_path: Path) -> None:
    schema = StructType([StructField("value", BinaryType()), StructField("partition", LongType())])
    batch = pa.record_batch([pa.array([b"1"]), pa.array([2**40], pa.int64())], ["value", "partition"])
    writer = BatchWriter({"path": str(tmp_path / "s"), "topic": "out"}, schema, overwrite=False)
    with pytest.raises(MessageRejected, match=r"column partition: .* must fit int32"):
        staged(writer, 0, batch)


def test_a_batch_without_rows_writes_nothing(tmp_path: Path) -> None:
    batch = batch_of(numbered(1)).slice(1)
    given = {"path": str(tmp_path / "s"), "topic": "out"}
    tasks = StreamWriter(given, schema_of(batch), overwrite=False)
    for messages in ([], [staged(tasks, 0, batch, "q")]):
        StreamWriter(given, schema_of(batch), overwrite=False).commit(messages, 0)
    with open_store(tmp_path / "s") as store:
        assert store.state.published_to == 0


@pytest.mark.guarantee("G26")
def test_a_disk_that_is_too_full_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(tmp_path / "s", 0, numbered(1))
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "usage", lambda _: Usage(95.0, 1))
        with pytest.raises(StoreFull, match=r"nothing was written: .* 95.0 % used"):
            stream(tmp_path / "s", 1, numbered(10, 1))
    assert bodies(rows_of(tmp_path / "s")) == [0]
    stream(tmp_path / "s", 1, numbered(10, 1))
    assert bodies(rows_of(tmp_path / "s")) == list(range(11))


@pytest.mark.parametrize("name", ["append_mutex", "flush_mutex"])
def test_an_append_or_a_flush_of_others_that_takes_long_does_not_end_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    impatient = StoreConfig(lock_timeout_ms=50, page_cache_busy_timeout_ms=30)
    monkeypatch.setattr(
        committing, "open_store", lambda root, housekeeping: open_store(root, impatient, housekeeping=housekeeping)
    )
    has_it, is_asked_for = threading.Event(), threading.Event()
    append = committing.append_parts

    def hold(mutex: RobustMutex) -> None:
        mutex.acquire(1_000)
        has_it.set()
        is_asked_for.wait()
        threading.Event().wait(0.15)  # longer than a send would stand it
        mutex.release()

    def ask(*arguments: Any) -> None:
        is_asked_for.set()
        append(*arguments)

    monkeypatch.setattr(committing, "append_parts", ask)

    with open_store(tmp_path / "s", housekeeping=False) as store:
        holder = threading.Thread(target=hold, args=(getattr(store.state, name),))
        holder.start()
        has_it.wait()
        write(tmp_path / "s", numbered(10), topic="out")
        holder.join()
    assert bodies(rows_of(tmp_path / "s")) == list(range(10))
