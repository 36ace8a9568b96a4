"""Pipelines over the URL of a cluster, and a query whose progress a group of the brokers shows."""

# ruff: noqa: PLC0415 - Spark need not be installed

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from tests.interop.cluster.behaviour.place import LONG_S, eventually
from tests.interop.cluster.clusters import Cluster
from tests.spark.rows import load
from tests.support.java import why_no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(bool(why_no_spark()), reason=str(why_no_spark()))

MESSAGES = 300
KEYS = 20

Name = Callable[[str], str]


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_STATE_DIR", str(tmp_path / "state"))


def sent(cluster: Cluster, topic: str, numbers: range) -> str:
    """Send a numbered message for each of these; its key has one queue."""
    with Producer(cluster.url) as producer:
        producer.create_topic(topic, 2)
        for number in numbers:
            key = f"k{number % KEYS}"
            producer.send(Message(topic, b"%d" % number, keys=[key], tags=f"t{number % 3}"), key)
    return topic


def test_an_archive_has_each_message_once_over_two_runs(
    spark: SparkSession,
    cluster: Cluster,
    name: Name,
    tmp_path: Path,
) -> None:
    from rmqclient.spark.pipelines.archive import archive

    topic = sent(cluster, name("Archived"), range(MESSAGES))
    archive(spark, cluster.url, [topic], tmp_path / "archive")
    sent(cluster, topic, range(MESSAGES, 2 * MESSAGES))
    archive(spark, cluster.url, [topic], tmp_path / "archive")
    rows = spark.read.parquet(str(tmp_path / "archive")).select("value").collect()
    assert Counter(int(row.value) for row in rows) == Counter(range(2 * MESSAGES))


def test_windows_and_the_latest_messages_of_keys(
    spark: SparkSession,
    cluster: Cluster,
    name: Name,
    tmp_path: Path,
) -> None:
    from rmqclient.spark.pipelines.aggregate import aggregate
    from rmqclient.spark.pipelines.compact import compact

    topic = sent(cluster, name("Counted"), range(MESSAGES))
    windows = aggregate(spark, cluster.url, [topic], window="1 hour")
    counted = Counter[str]()
    for window in windows:
        counted[window.tags or ""] += window.messages
    assert counted == {"t0": 100, "t1": 100, "t2": 100}
    compact(spark, cluster.url, [topic], tmp_path / "latest", table=name("latest").replace("-", "_"))
    rows = spark.table(name("latest").replace("-", "_")).collect()
    assert {row["key"]: int(bytes(row["value"])) for row in rows} == {
        f"k{key}": MESSAGES - KEYS + key for key in range(KEYS)
    }


def test_dead_letters_and_an_audit(
    spark: SparkSession,
    cluster: Cluster,
    name: Name,
) -> None:
    from rmqclient.spark.pipelines.audit import audit
    from rmqclient.spark.pipelines.dead_letters import letters

    topic, app = sent(cluster, name("Failing"), range(10)), App("nowhere")

    @app.handler(topic, group=name("failing"), retry=RetryPolicy(max_retries=0))
    def fail(message: ReceivedMessage) -> None:
        raise ValueError(f"cannot read {message.body.decode()}")

    consumer = PushConsumer(cluster.url, app.handlers)
    consumer.start()
    try:
        with Admin(cluster.url) as admin:
            eventually(lambda: sum(each.lag for each in admin.lag(name("failing"))) == 0, "every message given up")
    finally:
        consumer.stop_taking()
        consumer.drain(LONG_S)
        consumer.close()
    found = letters(spark, cluster.url, [name("failing")]).collect()
    assert Counter(int(row.value) for row in found) == Counter(range(10))
    audited = audit(spark, cluster.url, [topic])
    assert (audited.is_clean, sum(queue.messages for queue in audited.queues), audited.groups) == (True, 10, [])


def test_a_group_of_the_brokers_follows_a_query(
    spark: SparkSession,
    cluster: Cluster,
    name: Name,
    tmp_path: Path,
) -> None:
    # Given a group that exists because it has committed once
    topic, group = sent(cluster, name("Followed"), range(MESSAGES)), name("following")
    options: dict[str, Any] = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
        "commitGroup": group,
    }

    def run() -> None:
        rows = spark.readStream.format("rmq").options(**options).load(cluster.url)
        writer = rows.select("key", "value").writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    # When a query has gone on over several batches
    run()
    # Then the brokers have where its last but one batch ended
    with Admin(cluster.url) as admin:
        lag = sum(each.lag for each in admin.lag(group))
        assert 0 <= lag <= 110
        sent(cluster, topic, range(MESSAGES, 2 * MESSAGES))
        run()
        assert 0 <= sum(each.lag for each in admin.lag(group)) <= 110
    offsets = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert topic in json.loads(offsets.read_text().splitlines()[-1])
    assert load(spark, cluster.url, subscribe=topic).count() == 2 * MESSAGES
