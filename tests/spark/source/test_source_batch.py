"""Spark reads a store once: row for row what is stored, whichever way it is shared out, live, damaged or a broker's."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from rmqclient import Compression, Producer, PullConsumer, PullStatus, StoreConfig
from rmqclient.arrow.columns import USUAL
from rmqclient.arrow.ranges import Piece
from rmqclient.replication.primary import Primary
from rmqclient.spark.reading.batch_reader import read_split
from rmqclient.spark.scan.columns import schema_of
from rmqclient.spark.scan.place import Split
from rmqclient.spark.scan.read_options import parse
from rmqclient.store import Message, MessageQueue, MessageStore, open_store
from rmqclient.store.files.compacted_file import path_of
from rmqclient.store.settings.disk import Usage
from tests.replication.pairs import following, open_replica, until
from tests.spark.rows import GOLDEN, Row, expected, load, row_of_line, rows_of, unpacked
from tests.support.lines import of_kind
from tests.support.oracle import reference
from tests.support.written import SMALL, appender_of, appending, fill, overwrite, state_of_files, written_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACT = StoreConfig(
    commit_log_file_bytes=64 * 1024,
    max_body_bytes=8192,
    consume_queue_file_entries=200,
    index_slots=64,
    index_entries=256,
)
EVERYTHING = {"includeProperties": "true", "includeMetadata": "true"}
BROKERS = ("broker-4.9.7-stopped", "broker-4.9.7-killed", "store-4.9.8-clean", "store-4.9.8-broker-tx-retry-dlq")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """180 messages, closed."""
    return written_store(tmp_path_factory.mktemp("batch") / "store")


# --- row for row ----------------------------------------------------------------------------------


def pulled(root: Path, topic: str) -> list[tuple[object, ...]]:
    """Return what a pull consumer gets of a topic."""
    found: list[tuple[object, ...]] = []
    with PullConsumer(root, group="reports") as consumer:
        for queue in consumer.queues(topic):
            offset = consumer.min_offset(queue)
            while (result := consumer.pull(queue, offset)).status is not PullStatus.NO_NEW_MESSAGE:
                offset = result.next_offset
                found += [
                    (each.queue_id, each.queue_offset, each.body, each.tags, each.properties, each.message_id)
                    for each in result.messages
                ]
    return sorted(found, key=lambda each: (each[0], each[1]))


@pytest.mark.parametrize("split", ["queue", "log"])
def test_rows_are_the_records_that_are_stored(spark: SparkSession, root: Path, split: str) -> None:
    found = rows_of(load(spark, root, split=split, minPartitions=3, batchRows=50, **EVERYTHING))
    assert len(found) == 180
    assert found == expected(root)
    names = ("partition", "offset", "value", "tags", "properties", "msg_id")
    orders = [tuple(row[name] for name in names) for row in found if row["topic"] == "orders"]
    assert orders == pulled(root, "orders")


def test_the_rows_of_a_queue_come_in_its_order(spark: SparkSession, root: Path) -> None:
    for split in ("queue", "log"):
        rows = load(spark, root, split=split, assign='{"orders": [0]}', minPartitions=2).collect()
        assert [row.offset for row in rows] == list(range(120))


def test_the_usual_columns_are_those_of_kafkas_source_and_some_more(spark: SparkSession, root: Path) -> None:
    frame = load(spark, root, subscribe="orders")
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "born_timestamp", "tags"]
    assert frame.columns == names
    wanted = [{name: row[name] for name in names} for row in expected(root, "orders")]
    assert rows_of(frame) == wanted


@pytest.mark.parametrize(
    "schema",
    ["offset long, topic string, partition int, size int", "tags string, offset long, topic string, partition int"],
)
def test_a_schema_is_a_projection(spark: SparkSession, root: Path, schema: str) -> None:
    frame = load(spark, root, schema)
    names = [column.split()[0] for column in schema.split(", ")]
    assert frame.columns == names
    assert rows_of(frame) == [{name: row[name] for name in names} for row in expected(root)]


def test_names_of_columns_may_be_in_any_case(spark: SparkSession, root: Path) -> None:
    frame = load(spark, root, "OFFSET long, Value binary", assign='{"orders": [0]}')
    assert frame.columns == ["OFFSET", "Value"]
    bodies = [row["value"] for row in expected(root, "orders") if row["partition"] == 0]
    assert [(row.OFFSET, row.Value) for row in frame.where("offset < 3").collect()] == list(enumerate(bodies[:3]))
    assert load(spark, root, columns="Offset,TAGS").columns == ["offset", "tags"]


def test_a_job_for_kafkas_source_finds_headers_and_the_kind_of_time(spark: SparkSession, root: Path) -> None:
    frame = load(spark, root, subscribe="orders", includeHeaders="true").where("offset < 5")
    found = frame.selectExpr("timestampType", "map_from_entries(headers) AS found", "properties").collect()
    assert {row.timestampType for row in found} == {1}
    assert [{name: value.decode() for name, value in row.found.items()} for row in found] == [
        row.properties for row in found
    ]


def test_a_view_of_sql_is_a_read_and_a_table_is_refused_because_spark_keeps_its_options(
    spark: SparkSession, root: Path
) -> None:
    options = f"OPTIONS (path 'file:{root}', subscribe 'orders')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders_now USING rmq {options}")
    assert spark.sql("SELECT * FROM orders_now WHERE offset < 5 AND partition = 0").count() == 5
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW orders USING rmq"):
        spark.sql(f"CREATE TABLE orders_table USING rmq {options}")
    spark.sql(f"CREATE TABLE orders_values (value binary) USING rmq {options}")
    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW orders USING rmq"):
            spark.table("orders_values").collect()
    finally:
        spark.sql("DROP TABLE orders_values")


@pytest.mark.parametrize(
    ("schema", "told"),
    [("colour string", "column colour: a message has key, value"), ("offset int", "offset: .* bigint, not int")],
)
def test_a_column_that_is_not_there_is_refused_by_name(spark: SparkSession, root: Path, schema: str, told: str) -> None:
    with pytest.raises(Exception, match=told):
        load(spark, root, schema).collect()


def test_a_wrong_option_is_told_before_anything_is_read(spark: SparkSession, root: Path) -> None:
    with pytest.raises(
        Exception, match=r"maxrecordsperpartitions: the rmq source has no option .* maxRecordsPerPartition"
    ):
        load(spark, root, maxRecordsPerPartitions=5)
    with pytest.raises(Exception, match="nothing was ever sent to nope; topics there: orders, payments"):
        load(spark, root, subscribe="nope").collect()
    with pytest.raises(Exception, match="elsewhere is not a directory: give the directory of a store"):
        load(spark, root.parent / "elsewhere").collect()


def test_a_range_without_messages_is_an_empty_frame(spark: SparkSession, root: Path) -> None:
    ends = '{"orders": {"0": 5}}'
    assert load(spark, root, subscribe="orders", startingOffsets=ends, endingOffsets=ends).collect() == []
    assert load(spark, root, subscribe="orders", startingOffsets=ends, endingOffsets=ends, split="log").count() == 0


def test_topics_and_queues_without_messages_are_empty(spark: SparkSession, tmp_path: Path) -> None:
    # Given a topic without messages, and one with messages in one of its queues
    with Producer(tmp_path / "store", config=SMALL) as producer:
        producer.create_topic("empty", 2)
        producer.create_topic("orders", 4)
        producer.send(Message("orders", b"x"))
    # Then each can be read, alone and by the names of its queues
    root = tmp_path / "store"
    assert load(spark, root, subscribe="empty").collect() == []
    assert load(spark, root, subscribe="orders,empty").count() == 1
    assert load(spark, root, assign='{"orders": [0, 1, 2, 3]}').count() == 1
    starts = '{"orders": {"0": 0, "1": 0, "2": 0, "3": 0}}'
    assert load(spark, root, subscribe="orders", startingOffsets=starts).count() == 1


def test_a_removed_topic_is_read_as_consumers_read_it(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as store, Producer(store) as producer:
        # Given a topic that was removed while its producer runs
        for _ in range(10):
            producer.send(Message("orders", b"old"))
        store.topics.remove("orders")
        # Then it has no rows, as it has no messages for a consumer
        assert load(spark, store.root, subscribe="orders").count() == 0
        assert load(spark, store.root).count() == 0
        # And when it is made again, it has the new ones
        producer.create_topic("orders", 4)
        producer.send(Message("orders", b"new"))
        assert [bytes(row.value) for row in load(spark, store.root, subscribe="orders").collect()] == [b"new"]
    # And so it is when every process has closed the store, and a consumer has opened it again
    assert load(spark, tmp_path / "store", subscribe="orders").count() == 1
    with PullConsumer(tmp_path / "store", group="late") as consumer:
        assert [bytes(message.body) for message in consumer.messages("orders", wait=0)] == [b"new"]
    assert load(spark, tmp_path / "store", subscribe="orders").count() == 1


def test_what_is_compacted_is_read_with_the_log_behind_it(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", COMPACT, housekeeping=False) as store, Producer(store) as producer:
        # Given a compact topic, of which retention has removed most from the log
        producer.create_topic("prices", 1, cleanup_policy="compact")
        for number in range(400):
            key = f"K{number if number < 20 else 20 + number % 5}"
            producer.send(Message("prices", b"%05d" % number + b"x" * 100, keys=[key]))
        for _ in range(200):
            producer.send(Message("others", b"y" * 2_000))
        remove_old_files(store)
        producer.send(Message("prices", b"last", keys=["K0"]))
        with PullConsumer(store, group="reports") as consumer:
            wanted = [(m.queue_offset, bytes(m.body), m.message_id) for m in consumer.messages("prices", wait=0)]
        assert store.compaction.log_low(MessageQueue("prices", 0)) == 400
        # Then Spark reads what a consumer gets, whichever columns are read
        for split in ("queue", "log"):
            rows = load(spark, store.root, subscribe="prices", split=split, batchRows=4, includeMetadata=True).collect()
            assert sorted((row.offset, bytes(row.value), row.msg_id) for row in rows) == wanted
        assert load(spark, store.root, subscribe="prices").count() == len(wanted)
        # And a compacted file that is damaged is no loss in silence
        path_of(store.root, MessageQueue("prices", 0)).write_bytes(b"?")
        with pytest.raises(Exception, match="DataLost"):
            load(spark, store.root, subscribe="prices").collect()


def remove_old_files(store: MessageStore) -> None:
    """Remove all but the newest commit log file, as on a full disk."""
    store.flusher.flush_thorough()
    store.disk.usage = lambda: Usage(99.0, 1 << 30)  # type: ignore[method-assign]
    while store.retention.clean():
        pass


@pytest.mark.guarantee("G84")
def test_a_replica_is_read_while_it_follows(spark: SparkSession, tmp_path: Path) -> None:
    with (
        open_store(written_store(tmp_path / "primary"), housekeeping=False) as primary,
        Primary(primary, "127.0.0.1", 0) as sending,
        open_replica(tmp_path / "replica") as replica,
        following(replica, sending.start()),
    ):
        until(lambda: replica.state.published_to == primary.state.published_to, "the replica has everything")
        assert rows_of(load(spark, replica.root, **EVERYTHING)) == rows_of(load(spark, primary.root, **EVERYTHING))


def test_a_store_is_left_as_it_was(spark: SparkSession, root: Path) -> None:
    before = state_of_files(root)
    assert load(spark, root).count() == 180
    assert state_of_files(root) == before


# --- what spares reading --------------------------------------------------------------------------


def test_tags_of_the_options_select_rows(spark: SparkSession, root: Path) -> None:
    for split in ("queue", "log"):
        found = rows_of(load(spark, root, subExpression="tag1 || tag3", split=split, **EVERYTHING))
        assert found == [row for row in expected(root) if row["tags"] in ("tag1", "tag3")]


@pytest.mark.parametrize("split", ["queue", "log"])
def test_conditions_of_an_option_select_rows(spark: SparkSession, root: Path, split: str) -> None:
    condition = "topic = 'orders' and offset between 20 and 90 and tags in ('tag1', 'tag2')"
    wanted = [
        row for row in expected(root, "orders") if 20 <= row["offset"] <= 90 and row["tags"] in ("tag1", "tag2")
    ]  # fmt: skip
    assert rows_of(load(spark, root, where=condition, split=split, **EVERYTHING)) == wanted


@pytest.fixture(params=["false", "true"], ids=["as it is", "with Spark's pushdown"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark as it is, and told to hand conditions to sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.guarantee("G94")
@pytest.mark.usefixtures("pushdown")
def test_no_use_of_a_frame_changes_what_another_use_of_it_gives(spark: SparkSession, root: Path) -> None:
    # Given a frame of a store, and its rows
    frame = load(spark, root)
    tagged = len([row for row in expected(root) if row["tags"] == "tag1"])
    assert frame.count() == 180
    # When some of it is asked for, in a filter, by a limit, in a column
    assert frame.where("tags = 'tag1'").count() == tagged
    assert frame.where("offset < 3").select("offset").distinct().count() == 3
    assert len(frame.limit(2).collect()) == 2
    # Then the frame, what is derived of it, and what stands beside itself in one query have all of their rows
    assert frame.count() == 180
    assert len(frame.select("value").collect()) == 180
    parts = frame.where("tags = 'tag1'").unionAll(frame.where("tags <> 'tag1' or tags is null"))
    assert parts.count() == 180
    places = ["topic", "partition", "offset"]
    assert frame.join(frame.where("tags = 'tag1'").select(places), places, "left_anti").count() == 180 - tagged
    frame.createOrReplaceTempView("messages")
    shares = "SELECT (SELECT count(*) FROM messages WHERE tags = 'tag1'), (SELECT count(*) FROM messages)"
    assert tuple(spark.sql(shares).collect()[0]) == (tagged, 180)
    frame.cache()
    assert frame.count() == 180
    frame.unpersist()


def test_a_condition_on_a_day_or_on_anything_else_is_right_as_well(spark: SparkSession, root: Path) -> None:
    rows = expected(root)
    day = rows[0]["timestamp"].date()
    assert load(spark, root).where(f"to_date(timestamp) >= '{day}'").count() == 180
    assert load(spark, root).where("tags = 'tag1' or offset < 3").count() == len(
        [row for row in rows if row["tags"] == "tag1" or row["offset"] < 3]
    )
    assert load(spark, root).where("tags is null and key is not null").count() == len(
        [row for row in rows if row["tags"] is None and row["key"] is not None]
    )


# --- a live store ---------------------------------------------------------------------------------


@pytest.mark.guarantee("G29")
@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize("options", [{}, {"columns": "offset, tags"}], ids=["every column", "some columns"])
def test_a_frame_that_is_not_used_yet_is_what_was_there_when_it_was_made(
    spark: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL) as store:
        fill(store, 60)
        frame = load(spark, root, **options)
        fill(store, 60)
        assert frame.count() == 60
        assert frame.where("offset >= 0").count() == 60
        assert load(spark, root, **options).count() == 120
        assert frame.columns == (options["columns"].split(", ") if options else list(USUAL))


@pytest.mark.guarantee("G29")
def test_a_frame_is_what_was_there_when_it_was_made_while_others_append(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL) as store:
        fill(store, 60)
    with appending(root):  # and they end without an error
        frame = load(spark, root, **EVERYTHING)
        first = rows_of(frame)
        assert len(first) > 60
        assert rows_of(frame) == first
        assert load(spark, root).count() > len(first)
    stored = expected(root)
    by_queue: dict[tuple[str, int], list[Row]] = {}
    for row in first:
        by_queue.setdefault((row["topic"], row["partition"]), []).append(row)
    for (topic, queue_id), rows in by_queue.items():
        whole = [row for row in stored if (row["topic"], row["partition"]) == (topic, queue_id)]
        assert rows == whole[: len(rows)]


# --- compressed bodies ----------------------------------------------------------------------------


@pytest.mark.guarantee("G38")
@pytest.mark.parametrize("split", ["queue", "log"])
def test_compressed_bodies_are_opened_and_one_that_cannot_be_is_told_or_null(
    spark: SparkSession, tmp_path: Path, split: str
) -> None:
    root = tmp_path / "store"
    long = b'{"flight": "UA1545"}' * 400
    with Producer(root) as plain:
        plain.create_topic("flights", 1)
        for compression in Compression:
            with Producer(root, compression=compression) as producer:
                producer.send_batch([Message("flights", b"short"), Message("flights", long)])
    assert rows_of(load(spark, root, split=split, **EVERYTHING)) == expected(root)
    assert [row["value"] for row in rows_of(load(spark, root, split=split))] == [b"short", long] * 3

    with pytest.raises(
        Exception, match=r"BodyUnreadable: flights, queue 0, offset 1, at .*failOnUnreadableBody to false"
    ):
        load(spark, root, split=split, maxOpenedBodyBytes=len(long) - 1).collect()
    rows = rows_of(load(spark, root, split=split, maxOpenedBodyBytes=len(long) - 1, failOnUnreadableBody="false"))
    assert [row["value"] for row in rows] == [b"short", None] * 3


# --- what is damaged ------------------------------------------------------------------------------


@pytest.mark.guarantee("G30")
@pytest.mark.parametrize("split", ["queue", "log"])
def test_a_damaged_record_is_told_or_passed_over(spark: SparkSession, tmp_path: Path, split: str) -> None:
    root = written_store(tmp_path / "store")
    records = reference.read_commit_log(root)
    offset, damaged = records[50]
    position = offset + damaged.size - 30
    size = SMALL.commit_log_file_bytes
    path = root / "commitlog" / f"{position // size * size:020}"
    overwrite(path, position % size, bytes((path.read_bytes()[position % size] ^ 1,)))
    place = f"{damaged.topic}, queue {damaged.queue_id}, offset {damaged.queue_offset}, at {offset} of the commit log"
    with pytest.raises(Exception, match=f"DataLost: {place}.*failOnDataLoss to false"):
        load(spark, root, split=split).collect()
    found = rows_of(load(spark, root, split=split, failOnDataLoss="false", minPartitions=2))
    whole = [(row["topic"], row["partition"], row["offset"]) for row in found]
    other = [record for _, record in records if record != damaged]
    assert whole == sorted((record.topic, record.queue_id, record.queue_offset) for record in other)


# --- without Spark --------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["queue", "log"])
def test_a_batch_has_ten_thousand_rows_at_most(tmp_path: Path, split: str) -> None:
    with open_store(tmp_path / "store", housekeeping=False) as store:
        appender = appender_of(store)
        for _ in range(25):
            appender.append_batch([Message("orders", b"x")] * 1_000)
        reader = store.topics.queues("orders")[0], store.topics.max_offset(MessageQueue("orders", 0))
        options = parse({"path": str(store.root), "subscribe": "orders"}, streaming=False)
        pieces = (Piece(MessageQueue("orders", 0), 0, reader[1]),)
        whole = Split(pieces, (0, reference_end(store.root)) if split == "log" else None)
        batches = list(read_split(options, schema_of(), whole))
    assert [batch.num_rows for batch in batches] == [10_000, 10_000, 5_000]


def reference_end(root: Path) -> int:
    offset, record = reference.read_commit_log(root)[-1]
    return offset + record.size


# --- a broker's store -----------------------------------------------------------------------------


@pytest.mark.guarantee("G29")
@pytest.mark.parametrize("name", BROKERS)
def test_every_topic_of_a_brokers_store_is_read_row_for_row(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = unpacked(name, tmp_path)
    wanted = expected(root)
    manifest = GOLDEN / f"{name}.jsonl.gz"
    if manifest.exists():  # what RocketMQ itself read there
        lines = [orjson.loads(line) for line in gzip.decompress(manifest.read_bytes()).splitlines()]
        found = sorted(
            map(row_of_line, of_kind(lines, "record")), key=lambda row: (row["topic"], row["partition"], row["offset"])
        )
        assert [row | {"properties": None} for row in found] == [row | {"properties": None} for row in wanted]
    before = state_of_files(root)
    topics = {topic for topic, _ in reference.queues_on_disk(root)}
    named = ",".join(sorted(topics))
    for split in ("queue", "log"):
        assert rows_of(load(spark, root, subscribe=named, split=split, **EVERYTHING)) == wanted
    own = {topic for topic in topics if not topic.startswith("RMQ_SYS_") and topic != reference.SCHEDULE_TOPIC}
    assert rows_of(load(spark, root, **EVERYTHING)) == [row for row in wanted if row["topic"] in own]
    assert state_of_files(root) == before
    if name != "store-4.9.8-clean":
        assert any(topic.startswith("%DLQ%") for topic in topics)
        assert {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", reference.SCHEDULE_TOPIC} <= topics


def test_delayed_messages_are_selected_by_their_tags_though_their_entries_have_times(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = unpacked("broker-4.9.7-stopped", tmp_path)
    waiting = expected(root, reference.SCHEDULE_TOPIC)
    tags = {row["tags"] for row in waiting if row["tags"]}
    assert tags
    for tag in tags:
        wanted = [row for row in waiting if row["tags"] == tag]
        found = rows_of(load(spark, root, subscribe=reference.SCHEDULE_TOPIC, subExpression=tag, **EVERYTHING))
        assert found == wanted
