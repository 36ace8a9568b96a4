"""The sink without Spark: what a row becomes, and what is refused before anything of it can be seen."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqclient import Message, Producer, PullConsumer, PullStatus, ReceivedMessage
from rmqclient.errors import (
    BatchConflict,
    BodyTooLarge,
    InvalidName,
    MessageRejected,
    PropertiesTooLarge,
    StoreBusy,
    StoreFull,
)
from rmqclient.spark.writing import committing, ledger, staging
from rmqclient.spark.writing.writer import BatchWriter, StreamWriter, Written
from rmqclient.store import MessageQueue, StoreConfig, open_store
from rmqclient.store.inspect.verify import verify
from rmqclient.store.kernel._kernel import RobustMutex
from rmqclient.store.settings.disk import Disk, Usage

TYPES: dict[str, DataType] = {
    "value": BinaryType(),
    "key": StringType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "tags": StringType(),
    "properties": MapType(StringType(), StringType()),
    "born_timestamp": TimestampType(),
}
ARROW: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "key": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "born_timestamp": pa.timestamp("us", tz="UTC"),
}


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = [name for name in ARROW if any(name in row for row in rows)]
    return pa.record_batch([pa.array([row.get(name) for row in rows], ARROW[name]) for name in names], names)


def declared(columns: str) -> StructType:
    """Return a schema from ``value binary, key string``; Spark's own needs a session."""
    kinds = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "long": LongType(),
        "map<string,int>": MapType(StringType(), IntegerType()),
    }
    return StructType([StructField(name, kinds[kind]) for name, kind in map(str.split, columns.split(", "))])


def schema_of(batch: pa.RecordBatch) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in batch.schema.names])


def write(root: Path, *parts: list[dict[str, Any]], **options: str) -> None:
    """Write as Spark does: each part by a task of its own, then the commit."""
    batches = [batch_of(part) for part in parts]
    writer = BatchWriter({"path": str(root), **options}, schema_of(batches[0]), overwrite=False)
    writer.commit([staged(writer, number, batch) for number, batch in enumerate(batches)])


def staged(writer: BatchWriter | StreamWriter, part: int, batch: pa.RecordBatch, query: str | None = None) -> Written:
    inner = writer._staging
    found = staging.stage(inner.options.root, inner.run, part, 0, iter([batch]), inner.options.topic)
    return Written(inner.run, found, query)


def stream(root: Path, number: int, *parts: list[dict[str, Any]], query: str = "q", **options: str) -> None:
    """Write a micro-batch as Spark does: another writer commits than the one that has staged."""
    batches = [batch_of(part) for part in parts]
    given = {"path": str(root), "topic": "out", **options}
    tasks = StreamWriter(given, schema_of(batches[0]), overwrite=False)
    messages = [staged(tasks, part, batch, query) for part, batch in enumerate(batches)]
    StreamWriter(given, schema_of(batches[0]), overwrite=False).commit(messages, number)


def rows_of(root: Path, topic: str = "out") -> list[ReceivedMessage]:
    """Return every message of a topic, queue by queue."""
    with PullConsumer(root, group="look") as consumer:
        return [message for queue in consumer.queues(topic) for message in messages_of(consumer, queue)]


def messages_of(consumer: PullConsumer, queue: MessageQueue) -> Iterable[ReceivedMessage]:
    offset = 0
    while (result := consumer.pull(queue, offset, limit=1_000)).status is PullStatus.FOUND:
        yield from result.messages
        offset = result.next_offset


def numbered(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number} for number in range(first, first + count)]


def bodies(messages: Iterable[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


# --- what a row becomes ----------------------------------------------------------------------------------------------


def test_each_column_becomes_its_part_of_the_message(tmp_path: Path) -> None:
    born = datetime.datetime(2013, 1, 1, 5, 15, 0, 123_456, tzinfo=datetime.UTC)
    row = {
        "value": b"\x00body",
        "key": "N14228 größe",
        "topic": "flights",
        "partition": 2,
        "tags": "UA",
        "properties": {"carrier": "UA", "größe": "ü"},
        "born_timestamp": born,
    }
    write(tmp_path / "s", [row, {"value": b"", "topic": "other"}])
    (message,) = rows_of(tmp_path / "s", "flights")
    assert (message.body, message.keys, message.tags) == (b"\x00body", ("N14228", "größe"), "UA")
    assert (message.queue_id, message.queue_offset, message.flag, message.sharding_key) == (2, 0, 0, None)
    assert message.born_timestamp == int(born.timestamp() * 1000)
    assert {name: message.properties[name] for name in ("carrier", "größe")} == {"carrier": "UA", "größe": "ü"}
    (plain,) = rows_of(tmp_path / "s", "other")
    assert (plain.body, plain.keys, plain.tags) == (b"", (), None)
    assert 0 <= plain.store_timestamp - plain.born_timestamp < 1_000
    assert verify(tmp_path / "s") == []


def test_a_record_has_the_bytes_that_a_producer_would_have_written(tmp_path: Path) -> None:
    written = {"value": b"abc", "key": "k1", "tags": "t", "properties": {"a": "b"}}
    write(tmp_path / "s", [written], topic="out")
    with Producer(tmp_path / "s") as producer:
        producer.send(Message("out", b"abc", keys="k1", tags="t", properties={"a": "b"}), "k1")
    ours, theirs = rows_of(tmp_path / "s")
    assert ours.queue == theirs.queue
    mine, others = bytearray(ours.record()), bytearray(theirs.record())
    for record, message in ((mine, ours), (others, theirs)):
        at = record.index(message.message_id.encode())
        record[at : at + 32] = bytes(32)
        record[20:36] = bytes(16)  # where it stands
        record[40:48] = record[56:64] = bytes(8)  # when it was sent and stored
        record[-11:] = bytes(11)  # its CRC
    assert mine == others


@pytest.mark.parametrize("size", [b"", b"x" * 1_000])
def test_rows_come_as_slices_of_larger_batches_and_with_large_offsets(tmp_path: Path, size: bytes) -> None:
    rows: list[dict[str, Any]] = [
        {
            "value": b"%d " % n + size,
            "key": f"k{n}" if n % 3 else None,
            "properties": {f"p{n}": str(n)} if n % 2 else None,
        }
        for n in range(200)
    ]
    whole = batch_of(rows)
    large = whole.set_column(0, "value", whole.column(0).cast(pa.large_binary()))
    writer = BatchWriter({"path": str(tmp_path / "s"), "topic": "out"}, schema_of(whole), overwrite=False)
    inner = writer._staging
    part = staging.stage(inner.options.root, inner.run, 0, 0, [whole.slice(7, 90), large.slice(97)], "out")
    writer.commit([Written(inner.run, part, None)])
    found = {message.body: message for message in rows_of(tmp_path / "s")}
    assert set(found) == {row["value"] for row in rows[7:]}
    for number, row in list(enumerate(rows))[7:]:
        message = found[row["value"]]
        assert message.keys == ((row["key"],) if row["key"] else ())
        assert message.properties.get(f"p{number}") == (str(number) if number % 2 else None)


def test_a_key_chooses_the_queue_as_a_producer_does_and_rows_without_one_take_turns(tmp_path: Path) -> None:
    keys = [f"key-{number}" for number in range(50)] + ["zoë", "日本"]
    write(tmp_path / "s", [{"value": key.encode(), "key": key} for key in keys], numbered(8), numbered(8), topic="out")
    with Producer(tmp_path / "s") as producer:
        expected = {key.encode(): producer.send(Message("out", b"-"), key).queue.queue_id for key in keys}
    found = rows_of(tmp_path / "s")
    assert {message.body: message.queue_id for message in found if message.keys} == expected
    assert all(message.sharding_key == message.keys[0] for message in found if message.keys)
    turns = sorted((int(each.body), each.queue_id) for each in found if not each.keys and each.body != b"-")
    assert turns == sorted((number, (part + number) % 4) for part in (1, 2) for number in range(8))


def test_a_compact_topic_is_refused_before_a_row_is_written(tmp_path: Path) -> None:
    with Producer(tmp_path / "s") as producer:
        producer.create_topic("out", 2, cleanup_policy="compact")
    with pytest.raises(MessageRejected, match="'out' is compact"):
        write(tmp_path / "s", numbered(3), topic="out")
    with pytest.raises(MessageRejected, match="'out' is compact"):
        stream(tmp_path / "s", 0, numbered(3))
    assert rows_of(tmp_path / "s") == []


@pytest.mark.guarantee("G25")
def test_rows_of_a_part_stand_in_their_order_in_each_queue(tmp_path: Path) -> None:
    rows = [{"value": b"%d" % n, "topic": f"t{n % 3}", "key": f"k{n % 11}"} for n in range(5_000)]
    write(tmp_path / "s", rows[:2_500], rows[2_500:])
    with PullConsumer(tmp_path / "s", group="look") as consumer:
        for topic in ("t0", "t1", "t2"):
            for queue in consumer.queues(topic):
                numbers = [int(message.body) for message in messages_of(consumer, queue)]
                assert numbers == sorted(numbers)
    assert bodies(message for topic in ("t0", "t1", "t2") for message in rows_of(tmp_path / "s", topic)) == list(
        range(5_000)
    )


def test_many_rows_roll_over_small_files_of_the_log_and_of_the_queues(tmp_path: Path) -> None:
    small = StoreConfig(commit_log_file_bytes=40_000, max_body_bytes=4_000, consume_queue_file_entries=64)
    open_store(tmp_path / "s", small).close()
    write(tmp_path / "s", [{"value": b"%06d" % n + b"x" * (n % 3_000)} for n in range(3_000)], topic="out")
    assert sorted(int(message.body[:6]) for message in rows_of(tmp_path / "s")) == list(range(3_000))
    assert verify(tmp_path / "s") == []


def test_a_message_is_found_by_its_id_and_its_key(tmp_path: Path) -> None:
    write(tmp_path / "s", [{"value": b"1", "key": "order-7"}], topic="out")
    (message,) = rows_of(tmp_path / "s")
    assert len(message.message_id) == 32
    with open_store(tmp_path / "s") as store:
        assert store.message_by_id(message.message_id) is not None
        assert [found.body for found in store.messages_by_key("out", "order-7")] == [b"1"]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("G26")
@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        ({"value": None}, MessageRejected, "row 2 of part 0: column value is null"),
        ({"value": b"x" * (4 << 20) + b"x"}, BodyTooLarge, r"row 2 .* 4194305 bytes is over the limit of 4194304"),
        ({"value": b"", "topic": None}, MessageRejected, "row 2 .* column topic is null"),
        ({"value": b"", "topic": "a/b"}, InvalidName, "replace '/'"),
        ({"value": b"", "topic": "%RETRY%g"}, InvalidName, "reserved"),
        ({"value": b"", "partition": 4}, MessageRejected, "row 2 .* partition 4: topic 'out' has 4 queues"),
        ({"value": b"", "partition": -1}, MessageRejected, "partition -1"),
        ({"value": b"", "key": "a\x02b"}, MessageRejected, "row 2 .* key .* 0x01 or 0x02"),
        ({"value": b"", "tags": "a\x01b"}, MessageRejected, "tags .* 0x01 or 0x02"),
        (
            {"value": b"", "properties": {"TAGS": "a"}},
            MessageRejected,
            "'TAGS' belongs to the queue itself.*map_filter",
        ),
        ({"value": b"", "properties": {"a": ""}}, MessageRejected, "empty or null name or value"),
        ({"value": b"", "properties": {"a": None}}, MessageRejected, "empty or null name or value"),
        ({"value": b"", "key": "k" * 17_000}, PropertiesTooLarge, "row 2 .* more than 32767"),
    ],
)
def test_a_row_that_is_no_message_is_refused_by_its_number_and_leaves_nothing(
    tmp_path: Path, row: dict[str, Any], error: type[Exception], text: str
) -> None:
    good = {"value": b"good", "topic": "out"}
    with pytest.raises(error, match=text):
        write(tmp_path / "s", [good, good, {"topic": "out", **row}, good])
    with open_store(tmp_path / "s") as store:
        assert (store.topics.topics(), store.state.published_to) == ([], 0)
    assert left_in_staging(tmp_path / "s") == []


def test_a_key_of_bytes_must_be_text(tmp_path: Path) -> None:
    batch = pa.record_batch([pa.array([b"1"]), pa.array([b"\xff\xfe"])], ["value", "key"])
    schema = StructType([StructField("value", BinaryType()), StructField("key", BinaryType())])
    writer = BatchWriter({"path": str(tmp_path / "s"), "topic": "out"}, schema, overwrite=False)
    with pytest.raises(MessageRejected, match=r"row 0 of part 0: key .* is no UTF-8: encode it"):
        staged(writer, 0, batch)


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        ("value binary, offset long", {}, r'column offset: .* df.drop\("offset"\)'),
        ("value int", {}, "column value is of type int: it must be binary or string; cast it"),
        ("value string, properties map<string,int>", {}, "column properties .* must be map<string,string>"),
        ("key string", {}, "column value is missing"),
        ("value string", {"topic": None}, "option topic is missing, and there is no column topic"),
        ("value string", {"topic": "a b"}, "replace ' '"),
        ("value string", {"txnappid": "a"}, "option txnVersion is missing beside txnAppId"),
        ("value string", {"txnversion": "1"}, "option txnAppId is missing beside txnVersion"),
        ("value string", {"txnappid": "a", "txnversion": "-1"}, "txnVersion=-1: give a whole number"),
        ("value string", {"txnappid": "../a", "txnversion": "1"}, "replace"),
        ("value string", {"flush": "always"}, "flush=always: give commit or none"),
        ("value string", {"topics": "a"}, "option topics: .* did you mean topic"),
        ("value string", {"path": None}, "option path is missing"),
    ],
)
def test_wrong_columns_and_options_are_refused_before_any_task_runs(
    tmp_path: Path, schema: str, options: dict[str, str | None], text: str
) -> None:
    given = {"path": str(tmp_path / "s"), "topic": "out", **options}
    with pytest.raises(ValueError, match=text):
        BatchWriter({k: v for k, v in given.items() if v is not None}, declared(schema), overwrite=False)


def test_overwriting_and_complete_mode_are_refused(tmp_path: Path) -> None:
    schema = declared("value binary")
    given = {"path": str(tmp_path / "s"), "topic": "out"}
    with pytest.raises(ValueError, match='use mode\\("append"\\)'):
        BatchWriter(given, schema, overwrite=True)
    with pytest.raises(ValueError, match='use outputMode\\("append"\\)'):
        StreamWriter(given, schema, overwrite=True)
    with pytest.raises(ValueError, match="txnVersion=1: a stream numbers its batches itself"):
        StreamWriter({**given, "txnAppId": "a", "txnVersion": "1"}, schema, overwrite=False)
    assert not (tmp_path / "s").exists()


# --- each row once ---------------------------------------------------------------------------------------------------


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


def test_old_entries_are_forgotten_and_their_batches_count_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_KEPT", 3)
    for number in range(6):
        stream(tmp_path / "s", number, numbered(1, number))
    page = orjson.loads((tmp_path / "s/spark/q/ledger.json").read_bytes())
    assert (page["floor"], list(page["done"])) == (2, ["3", "4", "5"])
    for number in (0, 2, 3, 5):
        stream(tmp_path / "s", number, numbered(1, number))
    assert bodies(rows_of(tmp_path / "s")) == list(range(6))


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
    assert sorted(path.name for path in (tmp_path / "s/spark/q").iterdir()) == ["ledger.json", "lock"]


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
    with pytest.raises(BatchConflict, match="is not what its task has staged"):
        writer.commit(messages)
    with open_store(tmp_path / "s") as store:
        assert store.state.published_to == 0


def test_a_topic_that_was_made_smaller_meanwhile_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    batch = batch_of(numbered(10))
    writer = BatchWriter({"path": str(tmp_path / "s"), "topic": "out"}, schema_of(batch), overwrite=False)
    message = staged(writer, 0, batch)
    with Producer(tmp_path / "s") as producer:
        producer.create_topic("out", 1)
    with pytest.raises(MessageRejected, match="'out' was made with 1 queues while rows for 4 were staged"):
        writer.commit([message])
    assert rows_of(tmp_path / "s") == []


def test_a_second_driver_of_the_same_application_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream(tmp_path / "s", 0, numbered(1), txnappid="mine")
    monkeypatch.setattr(committing, "_LOCK_TIMEOUT_S", 0.05)
    with (
        ledger.Ledger(tmp_path / "s", "mine").held(1),
        pytest.raises(StoreBusy, match=r"another driver .* application 'mine' .* txnAppId of its own"),
    ):
        stream(tmp_path / "s", 1, numbered(1, 1), txnappid="mine")
    assert bodies(rows_of(tmp_path / "s")) == [0]


def left_in_staging(root: Path) -> list[str]:
    try:
        return sorted(path.name for path in (root / staging.DIRECTORY).iterdir() if any(path.iterdir()))
    except FileNotFoundError:
        return []


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
