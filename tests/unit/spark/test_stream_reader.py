"""What Spark asks of a stream, asked here without Spark: where it begins, how far each batch goes, what is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from rmqclient import Compression, Producer
from rmqclient.consuming.pull_consumer import PullConsumer
from rmqclient.errors import DataLost
from rmqclient.spark.reading import batch_limits
from rmqclient.spark.reading.stream_reader import StreamReader
from rmqclient.spark.scan.columns import schema_of
from rmqclient.spark.scan.queue_json import STORE
from rmqclient.spark.scan.read_options import parse
from rmqclient.store import Message, MessageQueue, MessageStore, open_store
from rmqclient.store.inspect.view import LocalView, entry_at
from tests.support.written import SMALL, appender_of, fill, forget_oldest

ORDERS = MessageQueue("orders", 0)
EVERYTHING = ReadAllAvailable()
NOTHING: dict[str, Any] = {}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """180 messages: 120 orders in one queue, 60 payments in two."""
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        fill(opened)
        yield opened


class Clock:
    """The monotonic clock of a reader."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def reader(store: MessageStore, **options: object) -> StreamReader:
    given = {"path": str(store.root), "startingOffsets": "earliest", "subscribe": "orders,payments"}
    texts = {name: str(value) for name, value in options.items()}
    if "subscribePattern" in texts:
        del given["subscribe"]
    return StreamReader(parse(given | texts, streaming=True), schema_of())


def send(store: MessageStore, topic: str, count: int, size: int = 10) -> None:
    appender = appender_of(store)
    for _ in range(count):
        appender.append(Message(topic, bytes(size)))


def latest(found: StreamReader, start: dict[str, Any], limit: ReadLimit | None = None) -> dict[str, Any]:
    return found.latestOffset(start, found.getDefaultReadLimit() if limit is None else limit)


def offsets_of(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the offsets of a checkpoint alone."""
    return {name: value for name, value in checkpoint.items() if name != STORE}


def taken(found: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    """Return how many rows Spark gets of a batch."""
    return sum(batch.num_rows for split in found.partitions(start, end) for batch in found.read(split))


def batches(found: StreamReader) -> list[int]:
    """Return the rows of each batch until nothing is left, as Trigger.AvailableNow runs a new query."""
    found.prepareForTriggerAvailableNow()
    rows, start = [], found.initialOffset()
    end = latest(found, start)
    rows.append(taken(found, start, end))
    while (following := latest(found, end)) != end:
        rows.append(taken(found, end, following))
        end = following
    return rows


@pytest.mark.guarantee("G118")
def test_a_limit_counts_the_messages_of_a_compressed_batch(store: MessageStore) -> None:
    # Given ten records of a hundred messages each
    with Producer(store) as producer:
        producer.create_topic("batches", 1)
        for _ in range(10):
            producer.send_batch([Message("batches", b"x")] * 100, compression=Compression.ZLIB)
    # Then a micro-batch and a task have as many records as the limit has messages, or a single one
    assert batches(reader(store, subscribe="batches", maxOffsetsPerTrigger=250)) == [200] * 5
    assert batches(reader(store, subscribe="batches", maxOffsetsPerTrigger=5)) == [100] * 10
    found = reader(store, subscribe="batches", maxRecordsPerPartition=250)
    start, end = found.initialOffset(), latest(found, found.initialOffset())
    assert [sum(each.num_rows for each in found.read(split)) for split in found.partitions(start, end)] == [200] * 5
    # And so many messages are enough for a batch that waits for them
    assert latest(reader(store, subscribe="batches", minOffsetsPerTrigger=1_000), start) == end


# --- where a query begins -------------------------------------------------------------------------


def test_a_new_query_begins_at_the_earliest_or_the_latest_offset(store: MessageStore) -> None:
    assert offsets_of(reader(store).initialOffset()) == {"orders": {"0": 0}, "payments": {"0": 0, "1": 0}}
    assert offsets_of(reader(store, startingOffsets="latest").initialOffset()) == {
        "orders": {"0": 120},
        "payments": {"0": 30, "1": 30},
    }


def test_it_begins_at_the_same_offset_whenever_spark_asks(store: MessageStore) -> None:
    found = reader(store, startingOffsets="latest")
    first = found.initialOffset()
    send(store, "orders", 5)
    assert found.initialOffset() == first


@pytest.mark.guarantee("G29")
def test_where_it_begins_is_in_the_checkpoint_before_anything_is_read(store: MessageStore) -> None:
    # Spark writes down the end of each batch alone. If the first batch had messages and a kill cut it short, it would
    # begin at what is the latest offset after the restart, and what came meanwhile would be lost
    found = reader(store, startingOffsets="latest")
    first = found.initialOffset()
    send(store, "orders", 5)
    end = latest(found, first)
    assert end == first
    assert found.partitions(first, end) == []
    following = latest(found, end)
    assert taken(found, end, following) == 5
    # Killed, started again: the first batch is repeated from a later offset, and is as empty as it was
    send(store, "orders", 7)
    again = reader(store, startingOffsets="latest")
    assert again.partitions(again.initialOffset(), end) == []
    assert taken(again, end, latest(again, end)) == 12


def test_a_query_from_the_first_message_on_needs_no_empty_batch(store: MessageStore) -> None:
    assert batches(reader(store)) == [180]
    forget_oldest(store)
    left = sum(len(LocalView(store.root).offsets(queue)) for queue in store.topics.all_queues())
    assert batches(reader(store)) == [0, left]


def test_a_topic_that_comes_later_is_read_from_its_first_message(store: MessageStore) -> None:
    found = reader(store, startingOffsets="latest", subscribePattern="orders|re.*")
    start = found.initialOffset()
    assert latest(found, start) == start
    store.topics.create("returns", 2)
    store.topics.create("other", 1)
    appender = store.appenders.make(lambda topic: store.topics.create(topic, 2), lambda body: str(body).encode())
    for topic in ("returns", "returns", "other", "returns"):
        appender.append(Message(topic, b"x"))
    end = latest(found, start)
    assert sum(end["returns"].values()) == 3
    assert set(offsets_of(end)) == {"orders", "returns"}
    assert taken(found, start, end) == 3


# --- how far a batch goes -------------------------------------------------------------------------


def test_without_a_limit_everything_is_one_batch(store: MessageStore) -> None:
    assert isinstance(reader(store).getDefaultReadLimit(), ReadAllAvailable)
    assert batches(reader(store)) == [180]


def test_the_limits_are_told_to_spark(store: MessageStore) -> None:
    assert reader(store, maxOffsetsPerTrigger=50).getDefaultReadLimit() == ReadMaxRows(50)
    assert reader(store, maxBytesPerTrigger="5k").getDefaultReadLimit() == ReadMaxBytes(5 << 10)
    assert isinstance(reader(store, minOffsetsPerTrigger=50).getDefaultReadLimit(), ReadMaxRows)


def test_a_batch_has_so_many_messages(store: MessageStore) -> None:
    assert batches(reader(store, maxOffsetsPerTrigger=50)) == [50, 50, 50, 30]
    found = reader(store, maxOffsetsPerTrigger=30)
    assert offsets_of(latest(found, found.initialOffset())) == {"orders": {"0": 20}, "payments": {"0": 5, "1": 5}}


def test_a_batch_has_about_so_many_bytes(store: MessageStore) -> None:
    view = LocalView(store.root)
    found = reader(store, maxBytesPerTrigger=20_000)
    start, end = found.initialOffset(), latest(found, found.initialOffset())
    sizes = []
    while start != end:
        offsets = {
            MessageQueue(topic, int(queue_id)): range(start[topic][queue_id], stop)
            for topic, ends in offsets_of(end).items()
            for queue_id, stop in ends.items()
        }
        sizes.append(sum(entry_at(view, queue, each).size for queue, wanted in offsets.items() for each in wanted))
        start, end = end, latest(found, end)
    queues = store.topics.all_queues()
    assert sum(sizes) == sum(entry_at(view, queue, each).size for queue in queues for each in view.offsets(queue))
    assert len(sizes) >= 5
    assert all(size < 25_000 for size in sizes)
    assert all(size > 10_000 for size in sizes[:-1])


def test_a_message_larger_than_the_limit_is_a_batch_by_itself(store: MessageStore) -> None:
    assert batches(reader(store, maxBytesPerTrigger=1)) == [1] * 180


def test_both_limits_hold(store: MessageStore) -> None:
    assert max(batches(reader(store, maxBytesPerTrigger=20_000, maxOffsetsPerTrigger=7))) == 7
    assert max(batches(reader(store, maxBytesPerTrigger=2_000, maxOffsetsPerTrigger=150))) < 20


def test_a_batch_waits_for_so_many_messages_but_not_for_ever(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(batch_limits, "time", clock)
    found = reader(store, minOffsetsPerTrigger=200, maxTriggerDelay="10s")
    start = found.initialOffset()
    end = latest(found, start)
    assert taken(found, start, end) == 180, "the first one waits for nothing"
    send(store, "orders", 199)
    clock.now += 9.9
    assert latest(found, end) == end
    send(store, "orders", 1)
    following = latest(found, end)
    assert taken(found, end, following) == 200
    send(store, "orders", 1)
    clock.now += 9.9
    assert latest(found, following) == following
    clock.now += 0.1
    assert taken(found, following, latest(found, following)) == 1


def test_what_is_asked_for_without_a_limit_waits_for_nothing(store: MessageStore) -> None:
    found = reader(store, minOffsetsPerTrigger=10_000)
    end = latest(found, found.initialOffset())
    send(store, "orders", 1)
    assert latest(found, end) == end
    assert latest(found, end, EVERYTHING)["orders"]["0"] == 121


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_available_now_goes_as_far_as_the_store_went_when_it_began(store: MessageStore, start: str) -> None:
    found = reader(store, startingOffsets=start, maxOffsetsPerTrigger=100, minOffsetsPerTrigger=1_000)
    found.prepareForTriggerAvailableNow()
    send(store, "orders", 500)
    appender_of(store).append(Message("payments", b"later"))
    begin = found.initialOffset()
    position, rows = latest(found, begin), 0
    while (end := latest(found, position)) != position:
        rows += taken(found, position, end)
        position = end
    first = taken(found, begin, latest(reader(store, maxOffsetsPerTrigger=100), begin)) if start == "earliest" else 0
    assert first + rows == (180 if start == "earliest" else 0)


def test_the_end_of_what_is_there_is_told_for_the_progress_of_the_query(store: MessageStore) -> None:
    found = reader(store, maxOffsetsPerTrigger=1)
    found.prepareForTriggerAvailableNow()
    send(store, "orders", 3)
    assert found.reportLatestOffset() == {"orders": {"0": 123}, "payments": {"0": 30, "1": 30}}


# --- what is lost ---------------------------------------------------------------------------------


@pytest.mark.guarantee("G30")
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": 20}, {"maxBytesPerTrigger": 2_000}], ids=str)
def test_retention_that_passed_the_query_is_told_or_passed_over(store: MessageStore, limit: dict[str, object]) -> None:
    forget_oldest(store)
    oldest = LocalView(store.root).offsets(ORDERS)
    begun = {"orders": {"0": 3}, "payments": {"0": 30, "1": 30}}
    found = reader(store, **limit)
    end = latest(found, begun)
    with pytest.raises(
        DataLost, match=rf"messages 3 to \d+ of queue 0 of orders were removed .* {oldest.start}\. To go"
    ):
        found.partitions(begun, end)
    passing = reader(store, failOnDataLoss="false", **limit)
    rows, start = 0, begun
    while (end := latest(passing, start)) != start:
        found_ = taken(passing, start, end)
        assert found_ > 0, "a batch is not spent on what is not there"
        rows, start = rows + found_, end
    assert rows == len(oldest)


@pytest.mark.guarantee("G30")
def test_a_topic_that_came_and_was_removed_before_it_was_read_is_told(store: MessageStore) -> None:
    forget_oldest(store)
    begun = {"payments": {"0": 30, "1": 30}}
    found = reader(store)
    with pytest.raises(DataLost, match=r"messages 0 to \d+ of queue 0 of orders were removed before they were read"):
        found.partitions(begun, latest(found, begun))


@pytest.mark.guarantee("G30")
def test_a_store_that_ends_below_what_was_read_is_told_or_waited_for(store: MessageStore) -> None:
    begun = {"orders": {"0": 125}, "payments": {"0": 30, "1": 30}}
    with pytest.raises(DataLost, match=r"queue 0 of orders was read up to 125 and ends at 120 now: .* new checkpoint"):
        latest(reader(store), begun)
    waiting = reader(store, failOnDataLoss="false")
    assert offsets_of(latest(waiting, begun)) == begun, "offsets that went back would be read again by Spark"
    send(store, "orders", 6)
    assert taken(waiting, begun, latest(waiting, begun)) == 1


def test_a_queue_that_is_gone_altogether_is_told(store: MessageStore) -> None:
    with pytest.raises(
        DataLost, match="queue 0 of returns was read up to 3 and is not among the queues that are read now"
    ):
        latest(reader(store), {"returns": {"0": 3}, "orders": {"0": 1}})


# --- the group ------------------------------------------------------------------------------------


def test_what_spark_has_finished_is_what_the_group_has_finished(store: MessageStore) -> None:
    reader(store, commitGroup="lake").commit({"orders": {"0": 7}, "payments": {"1": 30}})
    with PullConsumer(store, group="lake") as consumer:
        assert consumer.committed_offset(ORDERS) == 7
        assert consumer.committed_offset(MessageQueue("payments", 1)) == 30
        assert consumer.committed_offset(MessageQueue("payments", 0)) is None


def test_a_group_that_cannot_be_written_stops_no_query(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    reader(store, commitGroup="lake").commit({"orders": {"0": 9_999}})
    assert "offsets of group lake not written: offset 9999" in caplog.text
    reader(store).commit({"orders": {"0": 9_999}})


# --- another store at the path --------------------------------------------------------------------


def replaced(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any], MessageStore]:
    """Return where a query stands that read a store, and a longer store at the same path."""
    root = tmp_path / "replaced"
    with open_store(root, SMALL, housekeeping=False) as first:
        send(first, "orders", 20)
        start = reader(first, subscribe="orders").initialOffset()
        end = latest(reader(first, subscribe="orders"), start)
    shutil.rmtree(root)
    second = open_store(root, SMALL, housekeeping=False)
    send(second, "orders", 100)
    return start, end, second


@pytest.mark.guarantee("G95")
def test_a_store_that_took_the_place_of_the_one_that_was_read_is_told(tmp_path: Path) -> None:
    start, end, store = replaced(tmp_path)
    with store:
        found = reader(store, subscribe="orders")
        for ask in (lambda: latest(found, end), lambda: found.partitions(start, end)):
            with pytest.raises(DataLost, match="holds another store"):
                ask()


@pytest.mark.guarantee("G95")
def test_it_is_read_whole_where_losses_are_no_failure(tmp_path: Path) -> None:
    start, end, store = replaced(tmp_path)
    with store:
        found = reader(store, subscribe="orders", failOnDataLoss=False)
        assert taken(found, start, end) == 0
        following = latest(found, end)
        assert taken(found, end, following) == 100
        assert latest(found, following) == following


@pytest.mark.guarantee("G95")
def test_a_checkpoint_that_does_not_tell_its_store_is_still_read(store: MessageStore) -> None:
    found = reader(store)
    older = {"orders": {"0": 100}, "payments": {"0": 0, "1": 30}}
    end = latest(found, older)
    assert taken(found, older, end) == 20 + 30
    assert offsets_of(end) == {"orders": {"0": 120}, "payments": {"0": 30, "1": 30}}
