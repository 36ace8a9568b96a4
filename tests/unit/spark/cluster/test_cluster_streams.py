"""What Spark asks of a stream of a cluster, asked here without Spark: offsets by broker, brokers that go and come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmqclient.errors import DataLost
from rmqclient.spark.reading.stream_reader import StreamReader
from rmqclient.spark.scan.columns import schema_of
from tests.support.written import written_store
from tests.unit.spark.cluster.served import Served, served

Json = dict[str, Any]

EVERYTHING = {
    "orders": {"broker-a": {"0": 120}, "broker-b": {"0": 120}},
    "payments": {"broker-a": {"0": 30, "1": 30}, "broker-b": {"0": 30, "1": 30}},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """180 messages: 120 orders in one queue, 60 payments in two."""
    return written_store(tmp_path_factory.mktemp("streamed") / "store")


@pytest.fixture
def brokers(root: Path) -> Iterator[Served]:
    """Two brokers, each with all messages."""
    with served(root, ("broker-a", "broker-b")) as serving:
        yield serving


def reader(brokers: Served, **given: object) -> StreamReader:
    return StreamReader(brokers.options(True, **({"startingOffsets": "earliest"} | given)), schema_of())


def taken(found: StreamReader, start: Json, end: Json) -> int:
    """Return how many rows Spark gets of a batch."""
    return sum(batch.num_rows for split in found.partitions(start, end) for batch in found.read(split))


def batches(found: StreamReader) -> list[int]:
    """Return the rows of each batch until nothing is left, as Trigger.AvailableNow runs a new query."""
    found.prepareForTriggerAvailableNow()
    rows, start = [], found.initialOffset()
    while (end := found.latestOffset(start, found.getDefaultReadLimit())) != start:
        rows.append(taken(found, start, end))
        start = json.loads(json.dumps(end))  # as the checkpoint has it
    return rows


def test_offsets_are_by_topic_broker_and_queue(brokers: Served) -> None:
    assert reader(brokers, startingOffsets="latest").initialOffset() == EVERYTHING
    assert reader(brokers).reportLatestOffset() == EVERYTHING
    given = json.dumps({"orders": {"broker-a": {"0": 7}, "broker-b": {"0": -1}}})
    found = reader(brokers, subscribe="orders", startingOffsets=given)
    assert found.initialOffset() == {"orders": {"broker-a": {"0": 7}, "broker-b": {"0": 120}}}


def test_everything_is_read_once_in_batches_of_a_limited_size(brokers: Served) -> None:
    assert batches(reader(brokers)) == [360]
    assert batches(reader(brokers, maxOffsetsPerTrigger=100)) == [100, 100, 100, 60]
    assert sum(batches(reader(brokers, maxBytesPerTrigger=20_000))) == 360


def test_a_query_goes_on_where_the_checkpoint_says(brokers: Served) -> None:
    first = reader(brokers, maxOffsetsPerTrigger=100)
    end = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    again = reader(brokers)
    following = again.latestOffset(end, ReadAllAvailable())
    assert following == EVERYTHING
    assert taken(again, end, following) == 260


def test_a_broker_that_comes_later_is_read_from_its_first_message(root: Path) -> None:
    with served(root, ("broker-a", "broker-b")) as brokers:
        second = brokers.cluster.state.brokers.pop("broker-b")
        found = reader(brokers, subscribe="orders")
        start = found.latestOffset(found.initialOffset(), ReadAllAvailable())
        assert start == {"orders": {"broker-a": {"0": 120}}}
        brokers.cluster.state.brokers["broker-b"] = second
        end = found.latestOffset(start, ReadAllAvailable())
        assert end == {"orders": {"broker-a": {"0": 120}, "broker-b": {"0": 120}}}
        assert taken(found, start, end) == 120


def test_a_broker_that_is_away_is_waited_for(brokers: Served, caplog: pytest.LogCaptureFixture) -> None:
    # Given a broker that has left the routes
    found = reader(brokers, subscribe="orders")
    begun = {"orders": {"broker-a": {"0": 100}, "broker-b": {"0": 50}}}
    second = brokers.cluster.state.brokers.pop("broker-b")
    # Then the others are read
    end = found.latestOffset(begun, ReadAllAvailable())
    assert end == {"orders": {"broker-a": {"0": 120}, "broker-b": {"0": 50}}}
    assert taken(found, begun, end) == 20
    assert "broker-b: no queues are registered now" in caplog.text
    # And it is read when it is back
    brokers.cluster.state.brokers["broker-b"] = second
    assert found.latestOffset(end, ReadAllAvailable())["orders"]["broker-b"] == {"0": 120}


@pytest.mark.guarantee("G30")
def test_messages_that_were_removed_before_they_were_read_are_told(brokers: Served) -> None:
    for offset in range(10):
        del brokers.records["orders", 0][offset]
    begun = {"orders": {"broker-a": {"0": 3}, "broker-b": {"0": 120}}}
    found = reader(brokers, subscribe="orders")
    end = found.latestOffset(begun, ReadAllAvailable())
    with pytest.raises(DataLost, match="messages 3 to 9 of queue 0 of orders on broker-a were removed before"):
        found.partitions(begun, end)
    passing = reader(brokers, subscribe="orders", failOnDataLoss="false")
    assert taken(passing, begun, end) == 110


@pytest.mark.guarantee("G30")
def test_a_broker_that_ends_below_what_was_read_is_told(brokers: Served) -> None:
    begun = {"orders": {"broker-a": {"0": 125}, "broker-b": {"0": 120}}}
    with pytest.raises(DataLost, match="queue 0 of orders on broker-a was read up to 125 and ends at 120 now"):
        reader(brokers, subscribe="orders").latestOffset(begun, ReadAllAvailable())
