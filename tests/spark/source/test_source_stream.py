"""Spark reads a store as it grows: limits, restarts, retention, a live store, and the lag of a group."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqclient.consuming.pull_consumer import PullConsumer
from rmqclient.spark import register
from rmqclient.spark.scan.queue_json import STORE
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.inspect.view import LocalView
from rmqclient.workers.cli import rmq
from tests.spark.rows import expected, rows_of
from tests.support.written import SMALL, appender_of, appending, fill, forget_oldest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOON_S = 120


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """180 messages: 120 orders in one queue, 60 payments in two."""
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        fill(opened)
        yield opened


class Query:
    """A query from a store to Parquet, which is started again and again with one checkpoint."""

    def __init__(self, spark: SparkSession, root: Path, directory: Path) -> None:
        self.spark = spark
        self.root = root
        self.directory = directory

    def writer(self, **options: object) -> DataStreamWriter:
        usual = {"startingOffsets": "earliest"} | ({} if "assign" in options else {"subscribePattern": ".*"})
        given = usual | {name: str(value) for name, value in options.items()}
        found = self.spark.readStream.format("rmq").options(**given).load(str(self.root))
        return found.writeStream.format("parquet").option("checkpointLocation", str(self.directory / "checkpoint"))

    def run(self, **options: object) -> list[int]:
        """Take what is there; return the rows of each batch."""
        query = self.writer(**options).trigger(availableNow=True).start(str(self.directory / "sink"))
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress]

    def start(self, **options: object) -> StreamingQuery:
        return self.writer(**options).trigger(processingTime="0 seconds").start(str(self.directory / "sink"))

    def forget_commit(self, batch: int) -> None:
        """Make the checkpoint what a kill leaves behind the sink's commit of a batch and before Spark's."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.directory / "checkpoint" / "commits" / name).unlink(missing_ok=True)

    def offsets(self, batch: int) -> dict[str, dict[str, int]]:
        """Return where a batch ends, by the checkpoint."""
        text = (self.directory / "checkpoint" / "offsets" / str(batch)).read_text(encoding="utf-8")
        found: dict[str, dict[str, int]] = json.loads(text.splitlines()[-1])
        return {topic: ends for topic, ends in found.items() if topic != STORE}

    def places(self) -> list[tuple[str, int, int]]:
        """Return topic, queue id and offset of every row of the sink, sorted."""
        rows = self.spark.read.parquet(str(self.directory / "sink")).select("topic", "partition", "offset").collect()
        return sorted((row.topic, row.partition, row.offset) for row in rows)


@pytest.fixture
def query(spark: SparkSession, store: MessageStore, tmp_path: Path) -> Query:
    return Query(spark, store.root, tmp_path / "query")


def stored(root: Path) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in expected(root)]


def test_a_query_adds_no_name_to_the_environment_that_all_queries_share(spark: SparkSession, query: Query) -> None:
    # Spark keeps it in a map without a lock: two queries that start at once and add a name break each task of a session
    register(spark)
    before = names_of_the_environment(spark)
    assert sum(query.run()) == 180
    assert names_of_the_environment(spark) == before
    assert not before & set(spark.sparkContext.environment) - {"PYTHONHASHSEED"}, "it is the source's alone"


def names_of_the_environment(spark: SparkSession) -> set[str]:
    found = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("rmq")
    return set(found.dataSourceCls().envVars())


@pytest.mark.guarantee("G29")
def test_a_query_takes_what_is_there_in_limited_batches_and_then_what_came_later(
    store: MessageStore, query: Query
) -> None:
    # Given a query with a limit
    assert query.run(maxOffsetsPerTrigger=70) == [70, 70, 40]
    assert query.places() == stored(store.root)
    # Then offsets in its checkpoint are the next to read
    assert query.offsets(2) == {"orders": {"0": 120}, "payments": {"0": 30, "1": 30}}
    assert sum(query.run(maxOffsetsPerTrigger=70)) == 0, "nothing came"

    # When more comes, a new topic as well, it goes on with that, whatever the options say of the start
    fill(store, 30)
    appender = store.appenders.make(lambda topic: store.topics.create(topic, 3), lambda body: str(body).encode())
    for number in range(9):
        appender.append(Message("returns", b"%d" % number))
    sizes = query.run(maxBytesPerTrigger="3k", startingOffsets="latest")
    assert sum(sizes) == 39
    assert len(sizes) > 2
    assert query.places() == stored(store.root)
    sink = query.spark.read.parquet(str(query.directory / "sink"))
    assert rows_of(sink) == [{name: row[name] for name in sink.columns} for row in expected(store.root)]


@pytest.mark.guarantee("G29")
def test_a_batch_that_spark_repeats_has_the_same_rows(store: MessageStore, query: Query) -> None:
    assert query.run(maxOffsetsPerTrigger=100) == [100, 80]
    # Given a kill before the sink and Spark knew of the second batch, and more messages since
    query.forget_commit(1)
    for path in (query.directory / "sink" / "_spark_metadata").glob("*1*"):
        path.unlink()
    fill(store, 30)
    sizes = query.run(maxOffsetsPerTrigger=100)
    assert sizes == [80, 30]
    assert query.places() == stored(store.root)
    # And one behind the sink and before Spark: the sink has it, and takes it no second time
    query.forget_commit(2)
    query.run()
    assert query.places() == stored(store.root)


@pytest.mark.guarantee("G29")
def test_a_query_that_begins_at_the_end_loses_nothing_to_a_kill_in_its_first_batch(
    store: MessageStore, query: Query
) -> None:
    before = stored(store.root)
    assert sum(query.run(startingOffsets="latest")) == 0
    assert query.offsets(0) == {"orders": {"0": 120}, "payments": {"0": 30, "1": 30}}
    query.forget_commit(0)
    fill(store, 30)
    assert sum(query.run(startingOffsets="latest")) == 30
    assert query.places() == sorted(set(stored(store.root)) - set(before))


@pytest.mark.guarantee("G30")
def test_retention_that_passes_a_query_ends_it_or_is_passed_over(store: MessageStore, query: Query) -> None:
    query.run(assign='{"orders": [0]}')
    fill(store, 600)
    forget_oldest(store)
    (orders,) = store.topics.queues("orders")
    there = LocalView(store.root).offsets(orders)
    assert there.start > 120
    with pytest.raises(Exception, match=rf"DataLost: messages 120 to {there.start - 1} of queue 0 of orders were remo"):
        query.run(assign='{"orders": [0]}')
    assert query.run(assign='{"orders": [0]}', failOnDataLoss="false") == [len(there)]
    assert query.places() == [("orders", 0, offset) for offset in [*range(120), *there]]


@pytest.mark.guarantee("G30")
def test_a_store_that_was_replaced_by_a_shorter_one_ends_a_query(store: MessageStore, query: Query) -> None:
    query.run()
    store.close()
    shutil.rmtree(store.root)
    with open_store(store.root, SMALL, housekeeping=False) as shorter:
        fill(shorter, 60)
        with pytest.raises(Exception, match=r"DataLost: .* holds another store, \w+, than the one that was read, \w+"):
            query.run()
        assert sum(query.run(failOnDataLoss="false")) == 60, "another store is read from its first message on"
        fill(shorter, 150)
        assert sum(query.run(failOnDataLoss="false")) == 150, "and then goes on from there"


@pytest.mark.guarantee("G29")
def test_a_query_follows_a_store_while_others_append_and_its_group_follows_the_query(
    store: MessageStore, query: Query
) -> None:
    running = query.start(maxOffsetsPerTrigger=5_000, commitGroup="lake")
    try:
        with appending(store.root):  # and they end without an error
            until(running, lambda: len(running.recentProgress) >= 3)
        running.processAllAvailable()
        appender_of(store).append(Message("orders", b"the last one"))
        running.processAllAvailable()
        until(running, lambda: lag_of(store) <= 1)
    finally:
        running.stop()
    assert query.places() == stored(store.root)
    # Spark tells it one batch late: the group lags by the last one
    shown = CliRunner().invoke(rmq, ["group", "lag", "lake", "-o", "json", "--store", str(store.root)])
    assert shown.exit_code == 0, shown.output
    assert sum(row["lag"] for row in json.loads(shown.stdout)) == lag_of(store) <= 1


def lag_of(store: MessageStore) -> int:
    with PullConsumer(store, group="lake") as consumer:
        ends = {queue: consumer.max_offset(queue) for queue in store.topics.all_queues()}
        return sum(end - (consumer.committed_offset(queue) or 0) for queue, end in ends.items())


def until(running: StreamingQuery, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not is_done():
        assert running.isActive, running.exception()
        assert time.monotonic() < deadline
        time.sleep(0.05)
