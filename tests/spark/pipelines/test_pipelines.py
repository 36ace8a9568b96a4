"""Each pipeline against a plain loop over the same messages."""

# ruff: noqa: PLC0415 - Spark need not be installed

from __future__ import annotations

import json
import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqclient import App, Compression, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.store import MessageQueue, open_store
from tests.spark.pipeline_store import GROUPS, MESSAGES, ORDERS, PAYMENTS, make_store, messages_of, read_all, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("pipelines") / "store")


def test_windows_hold_the_counts_bytes_and_latencies_of_a_plain_loop(spark: SparkSession, root: Path) -> None:
    from rmqclient.spark.pipelines.aggregate import aggregate

    plain = defaultdict(list)
    for message in read_all(root, ORDERS, PAYMENTS):
        plain[message.born_timestamp // 1000 * 1000, message.topic, message.tags].append(message)
    found = aggregate(spark, root, [ORDERS, PAYMENTS], window="1 second")
    assert {(each.start_ms, each.topic, each.tags) for each in found} == set(plain)
    assert sum(each.messages for each in found) == 240
    for each in found:
        messages = plain[each.start_ms, each.topic, each.tags]
        latencies = [message.store_timestamp - message.born_timestamp for message in messages]
        assert each.end_ms == each.start_ms + 1000
        assert each.messages == len(messages)
        assert each.bytes == sum(len(message.body) for message in messages)
        assert (each.latency_min_ms, each.latency_max_ms) == (min(latencies), max(latencies))
        assert each.latency_mean_ms == pytest.approx(statistics.mean(latencies))


def test_a_stream_of_windows_adds_each_one_once_when_it_is_over(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    from rmqclient.spark.pipelines.aggregate import aggregate, aggregate_stream

    options: dict[str, str | int | bool] = {"maxOffsetsPerTrigger": 120}
    first = aggregate_stream(
        spark, root, [ORDERS], tmp_path / "out", window="10 milliseconds", lateness="0 seconds", options=options
    )
    forget_commit(tmp_path / "out.work" / "checkpoint")
    again = aggregate_stream(spark, root, [ORDERS], tmp_path / "out", window="10 milliseconds", lateness="0 seconds")
    assert again.windows == 0
    newest = max(message.born_timestamp for message in read_all(root, ORDERS))
    expected = {
        (each.start_ms, each.tags): each.messages
        for each in aggregate(spark, root, [ORDERS], window="10 milliseconds")
        if each.end_ms <= newest
    }
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {(row["start_ms"], row["tags"]): row["messages"] for row in rows} == expected
    assert len(rows) == len(expected) == first.windows


def forget_commit(checkpoint: Path) -> None:
    """Let the last batch be run again, as after a kill between its publication and Spark's note of it."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_the_latest_message_of_each_key_is_kept(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.compact import compact

    latest = {}
    for message in sorted(read_all(root, ORDERS, PAYMENTS), key=lambda each: each.commit_log_offset):
        if message.keys:
            latest[message.topic, message.keys[0]] = message
    target = tmp_path / "latest"
    compacted = compact(spark, root, [ORDERS, PAYMENTS], target, table="latest_messages")
    rows = spark.table("latest_messages").collect()
    found = {(row["topic"], row["key"]): (bytes(row["value"]), row["offset"], row["partition"]) for row in rows}
    assert found == {name: (each.body, each.queue_offset, each.queue_id) for name, each in latest.items()}
    assert len(rows) == compacted.keys

    alive = compact(spark, root, [ORDERS, PAYMENTS], target, empty_is_deleted=True, table="latest_messages")
    assert alive.keys == sum(1 for each in latest.values() if each.body) < compacted.keys
    assert spark.table("latest_messages").count() == alive.keys
    spark.sql("DROP TABLE latest_messages")


def test_a_directory_with_something_else_in_it_is_not_replaced(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.compact import compact

    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match=r"holds other files, such as letter\.txt"):
        compact(spark, root, [ORDERS], tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_failures_are_counted_by_exception_handler_and_time(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.dead_letters import analyse

    plain: Counter[tuple[object, ...]] = Counter()
    attempts = 0
    for message in read_all(root, *(f"%DLQ%{group}" for group in GROUPS)):
        (failed,) = json.loads(message.properties["RMQ_FAILURES"])
        handler = "ship" if "in ship" in failed["trace"] else "bill"
        hour = message.store_timestamp // MINUTE * MINUTE
        plain[hour, message.topic.removeprefix("%DLQ%"), ORDERS, failed["error"], f"pipeline_store.py:{handler}"] += 1
        attempts += message.reconsume_times
    found = analyse(spark, root, window="1 minute", chart=tmp_path / "chart.png")
    assert {(each.start_ms, each.group, each.topic, each.error, each.handler): each.messages for each in found} == plain
    assert sum(each.attempts for each in found) == attempts
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    (one,) = analyse(spark, root, ["shipping"], where="text = 'no answer'", window="1 day")
    assert (one.error, one.handler, one.example) == ("TimeoutError", "pipeline_store.py:ship", "no answer")


def test_each_failing_handler_is_told_by_its_own_name(spark: SparkSession, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.dead_letters import analyse

    # Given handlers that take the message, its body, or a list of bodies, and a message that one cannot take
    app, retry = App(tmp_path / "store"), RetryPolicy(max_retries=0)

    @app.handler("orders", group="itself", retry=retry)
    def take(message) -> None:  # type: ignore[no-untyped-def]
        raise TimeoutError

    @app.handler("orders", group="body", retry=retry)
    def bill(order: dict[str, int]) -> None:
        raise TimeoutError

    @app.handler("orders", group="both", retry=retry)
    async def ship(order: dict[str, int], message: ReceivedMessage) -> None:
        raise TimeoutError

    @app.handler("orders", group="list", retry=retry)
    def count(order: list[int]) -> None:
        raise AssertionError

    groups = ["itself", "body", "both", "list"]
    # When all of them have given up
    with Producer(tmp_path / "store") as producer:
        producer.send("orders", {"a": 1})
    with app.running():
        deadline = time.monotonic() + 60
        while not all(has_given_up(tmp_path / "store", group) for group in groups):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    # Then each is told by its function, and no frame of this library stands for one that was not called
    found = {each.group: each.handler for each in analyse(spark, tmp_path / "store", groups)}
    here = Path(__file__).name
    assert found == {"itself": f"{here}:take", "body": f"{here}:bill", "both": f"{here}:ship", "list": None}


def has_given_up(root: Path, group: str) -> bool:
    """Return whether a group has given up a message."""
    with open_store(root, housekeeping=False) as store:
        return f"%DLQ%{group}" in store.topics.topics() and bool(messages_of(store, f"%DLQ%{group}"))


def test_a_selection_of_dead_letters_is_sent_again_once(spark: SparkSession, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.dead_letters import replay

    root = make_store(tmp_path / "store")
    before = Counter(message.message_id for message in read_all(root, ORDERS))
    slow = [
        message.message_id
        for message in read_all(root, "%DLQ%billing")
        if json.loads(message.properties["RMQ_FAILURES"])[-1]["text"] == "too slow"
    ]
    assert slow
    condition = "error = 'TimeoutError' AND text LIKE 'too%'"
    assert sorted(replay(spark, root, "billing", where=condition, dry_run=True).message_ids) == sorted(slow)
    assert sorted(replay(spark, root, "billing", where=condition).message_ids) == sorted(slow)
    again = replay(spark, root, "billing", where=condition)
    assert (again.selected, again.replayed) == (len(slow), 0)
    after = Counter(message.message_id for message in read_all(root, ORDERS))
    assert after - before == Counter(slow)


def test_an_audit_tells_what_a_plain_loop_finds(spark: SparkSession, root: Path) -> None:
    from rmqclient.spark.pipelines.audit import audit

    plain = defaultdict(list)
    for message in read_all(root):
        plain[message.topic, message.store_timestamp // 3_600_000 * 3_600_000].append(message)
    found = audit(spark, root)
    assert found.is_clean
    assert {(each.topic, each.hour_ms) for each in found.hours} == set(plain)
    for each in found.hours:
        messages = plain[each.topic, each.hour_ms]
        latencies = sorted(message.store_timestamp - message.born_timestamp for message in messages)
        assert (each.messages, each.bytes) == (len(messages), sum(message.size for message in messages))
        assert each.doubled == 0
        assert each.group == (each.topic.removeprefix("%DLQ%") if "%" in each.topic else None)
        assert each.latency_p50_ms == latencies[(len(latencies) - 1) // 2]
        assert each.latency_max_ms == latencies[-1]
    with open_store(root, housekeeping=False) as store:
        ends = {(queue.topic, queue.queue_id): store.topics.max_offset(queue) for queue in store.topics.queues(ORDERS)}
    assert {(each.topic, each.queue_id): (each.group, each.committed, each.lag) for each in found.groups} == {
        queue: ("billing", number, end - number) for number, (queue, end) in enumerate(ends.items())
    }


def test_an_audit_finds_what_was_lost_and_what_stands_there_twice(spark: SparkSession, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.audit import audit
    from rmqclient.spark.pipelines.dead_letters import replay

    root = make_store(tmp_path / "store")
    replayed = replay(spark, root, "shipping").replayed
    lost = sorted((each for each in read_all(root, PAYMENTS) if each.queue_id == 0), key=lambda each: each.queue_offset)
    for message in (lost[3], lost[4], lost[7]):
        damage(root, message.commit_log_offset)
    found = audit(spark, root, [ORDERS, PAYMENTS])
    assert sum(each.doubled for each in found.hours) == replayed > 0
    assert not found.is_clean
    (damaged,) = [each for each in found.queues if each.missing]
    assert MessageQueue(damaged.topic, damaged.queue_id) == MessageQueue(PAYMENTS, 0)
    assert (damaged.missing, damaged.gaps) == (3, ((3, 5), (7, 8)))
    (told_shorter,) = [each for each in audit(spark, root, [PAYMENTS], most_gaps=1).queues if each.missing]
    assert told_shorter.gaps == ((3, 5),)


def damage(root: Path, commit_log_offset: int) -> None:
    """Flip a bit in the body of a record, after its 88 bytes of fixed fields."""
    size = 36_864
    path = root / "commitlog" / f"{commit_log_offset // size * size:020}"
    with path.open("r+b") as file:
        file.seek(commit_log_offset % size + 89)
        (byte,) = file.read(1)
        file.seek(commit_log_offset % size + 89)
        file.write(bytes([byte ^ 1]))


def test_a_backfill_writes_a_range_once_in_the_order_of_its_queues(spark: SparkSession, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.backfill import backfill

    root = make_store(tmp_path / "store")
    before = read_all(root, ORDERS)
    settings: dict[str, Any] = {"where": "length(value) > 0", "select": ["upper(tags) AS tags"], "chunk": 90}
    done = backfill(spark, root, [ORDERS], "copies", "again", **settings)
    assert (done.chunks, done.chunks_written, done.messages_read) == (2, 2, len(before))
    with Producer(root) as producer:
        send(producer, MESSAGES)
    again = backfill(spark, root, [ORDERS], "copies", "again", **settings)
    assert (again.chunks, again.chunks_written, again.messages_written) == (2, 0, 0)

    expected = [each for each in before if each.body]
    copies = read_all(root, "copies")
    assert done.messages_written == len(copies) == len(expected)
    for copy, message in zip(copies, expected, strict=True):
        assert (copy.queue_id, copy.body, copy.keys) == (message.queue_id, message.body, message.keys)
        assert copy.tags == (message.tags.upper() if message.tags else None)
        assert copy.properties["number"] == message.properties["number"]
        assert copy.born_timestamp == message.born_timestamp
    with pytest.raises(ValueError, match="again is a backfill with to='copies', not 'others'"):
        backfill(spark, root, [ORDERS], "others", "again", **settings)
    with pytest.raises(ValueError, match="again is a backfill with filters="):
        backfill(spark, root, [ORDERS], "copies", "again", **settings | {"options": {"subExpression": "tag9"}})


def test_the_messages_of_compressed_batches_are_counted_and_kept_in_order(spark: SparkSession, tmp_path: Path) -> None:
    from rmqclient.spark.pipelines.audit import audit
    from rmqclient.spark.pipelines.backfill import backfill
    from rmqclient.spark.pipelines.compact import compact

    # Given batches, each of which is one record with one offset
    root = tmp_path / "store"
    with Producer(root) as producer:
        producer.create_topic("seq", 1)
        for batch in range(20):
            numbers = range(50 * batch, 50 * batch + 50)
            messages = [Message("seq", b"%04d" % number, keys=f"k{number % 7}") for number in numbers]
            producer.send_batch(messages, compression=Compression.ZLIB)
    # Then an audit finds all messages, no hole, and the bytes of each record once
    found = audit(spark, root, ["seq"])
    (queue,) = found.queues
    assert (found.is_clean, queue.messages, queue.missing, queue.end) == (True, 1_000, 0, 20)
    assert sum(hour.bytes for hour in found.hours) < 20 * 4_000
    # And copies stand in the same order, and the latest message of each key is its last one
    backfill(spark, root, ["seq"], "copies", "shuffled", transform=lambda rows: rows.repartition(3))
    assert [bytes(message.body) for message in read_all(root, "copies")] == [b"%04d" % n for n in range(1_000)]
    compact(spark, root, ["seq"], tmp_path / "latest")
    latest = {row.key: bytes(row.value) for row in spark.read.parquet(str(tmp_path / "latest")).collect()}
    assert latest == {f"k{number % 7}": b"%04d" % number for number in range(1_000)}


def test_a_function_may_shuffle_the_rows_of_a_backfill(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as sql

    from rmqclient.spark.pipelines.backfill import backfill

    def numbered(rows: DataFrame) -> DataFrame:
        by_key = Window.partitionBy("key").orderBy(sql.desc("commit_log_offset"))
        told = sql.concat("key", sql.lit(" stands at "), sql.last("offset").over(by_key).cast("string"))
        return rows.where("key IS NOT NULL").withColumn("value", told.cast("binary"))

    def failing_in_the_second_chunk(rows: DataFrame) -> DataFrame:
        if not rows.where("offset = 0").count():
            raise ZeroDivisionError
        return numbered(rows)

    root = make_store(tmp_path / "store")
    messages = [each for each in read_all(root, ORDERS) if each.keys]
    with pytest.raises(ZeroDivisionError):
        backfill(spark, root, [ORDERS], "joined", "joined-1", transform=failing_in_the_second_chunk, chunk=60)
    in_first = len(read_all(root, "joined"))
    assert 0 < in_first < len(messages)
    done = backfill(spark, root, [ORDERS], "joined", "joined-1", transform=numbered, chunk=60)
    assert done.messages_written == len(messages) - in_first
    assert [(each.queue_id, each.body.decode()) for each in read_all(root, "joined")] == [
        (each.queue_id, f"{each.keys[0]} stands at {each.queue_offset}") for each in messages
    ]
    with pytest.raises(ValueError, match="the function left out the column commit_log_offset"):
        backfill(spark, root, [ORDERS], "joined", "joined-2", transform=lambda rows: rows.select("value"))
