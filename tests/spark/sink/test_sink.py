"""The sink without Spark: what a row becomes, and what is refused before anything of it can be seen."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructField, StructType

from rmqclient import Message, Producer, PullConsumer
from rmqclient.errors import BodyTooLarge, InvalidName, MessageRejected, PropertiesTooLarge
from rmqclient.spark.writing import staging
from rmqclient.spark.writing.writer import BatchWriter, StreamWriter, Written
from rmqclient.store import StoreConfig, open_store
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.inspect.verify import verify
from tests.spark.sink.sink_rows import (
    batch_of,
    bodies,
    left_in_staging,
    messages_of,
    numbered,
    rows_of,
    schema_of,
    staged,
    stream,
    write,
)


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
        assert store.messages.by_id(message.message_id) is not None
        assert [found.body for found in store.messages.by_key("out", "order-7")] == [b"1"]


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
        ({"value": b"", "key": "k" * 17_000}, PropertiesTooLarge, "row 2 .* more than 31000"),
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
    with pytest.raises(MessageRejected, match=r"row 0 of part 0: key .* is not UTF-8: encode it"):
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
        ("value string", {"path": "s3://bucket/store"}, "no backend is known for the scheme 's3'"),
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


def test_a_query_whose_store_is_gone_makes_no_other_one(tmp_path: Path) -> None:
    # Given a query that has written a batch, and whose store is moved away
    given = {"path": str(tmp_path / "s"), "topic": "out", "checkpointLocation": f"file://{tmp_path / 'checkpoint'}"}
    schema = declared("value binary")
    StreamWriter(given, schema, overwrite=False)
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    StreamWriter(given, schema, overwrite=False)
    (tmp_path / "s").rename(tmp_path / "elsewhere")
    # Then its next batch is refused, and not the first one of a new store
    with pytest.raises(StoreUnusable, match=r"does not exist, and .* says that batches were written"):
        StreamWriter(given, schema, overwrite=False)
    assert not (tmp_path / "s").exists()
    # And it goes on when the store is back
    (tmp_path / "elsewhere").rename(tmp_path / "s")
    StreamWriter(given, schema, overwrite=False)
