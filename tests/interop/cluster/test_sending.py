"""Producers on real brokers, with RocketMQ's own client on the other side: it reads, asks and replies."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Compression, Message, Producer, ReceivedMessage, RetryPolicy, SendResult
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import QueueError
from rmqclient.failures.failure import HISTORY, Failure
from rmqclient.failures.retry import Outcome, Retries
from rmqclient.message import MessageQueue
from rmqclient.opening import open_backend
from rmqclient.store.wire import decode_records
from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, Java
from tests.support.lines import Line, of_kind
from tests.support.oracle.reference import ReferenceRecord, encode, format_properties

MIB = 1 << 20
LONG_S = 60.0

Name = Callable[[str], str]


def read_by_java(cluster: Cluster, topic: str) -> list[Line]:
    """Return every message of a topic, as RocketMQ's consumer sees it."""
    return of_kind(cluster.run("pull", "onlookers", topic), "message")


def body_of(line: Line) -> bytes:
    return base64.b64decode(line["body"])


def until(found: Callable[[], list[Line]]) -> list[Line]:
    """Return what is found as soon as there is something."""
    deadline = time.monotonic() + LONG_S
    while not (lines := found()):
        assert time.monotonic() < deadline, "nothing was found"
    return lines


# --- what Java reads ----------------------------------------------------------------------------------


def test_java_reads_a_message_as_it_was_sent(cluster: Cluster, name: Name) -> None:
    topic = name("Sent")
    with Producer(cluster.url) as producer:
        message = Message(topic, b"\x00body", tags="paid", keys=["k1", "k2"], properties={"colour": "blau ü"}, flag=7)
        sent = producer.send(message, "customer 4")
    (line,) = read_by_java(cluster, topic)
    assert (body_of(line), line["flag"], line["queue_id"]) == (b"\x00body", 7, sent.queue.queue_id)
    assert (line["queue_offset"], line["commit_log_offset"]) == (sent.queue_offset, sent.commit_log_offset)
    properties = line["properties"]
    assert (properties["TAGS"], properties["KEYS"], properties["colour"]) == ("paid", "k1 k2", "blau ü")
    assert (properties["UNIQ_KEY"], properties["__SHARDINGKEY"]) == (sent.message_id, "customer 4")


@pytest.mark.parametrize("compression", list(Compression))
def test_java_opens_what_was_compressed(cluster: Cluster, name: Name, compression: Compression) -> None:
    topic, body = name("Packed"), b"again and again " * 1_000
    with Producer(cluster.url, compression=compression) as producer:
        producer.send(Message(topic, body))
    (line,) = read_by_java(cluster, topic)
    assert body_of(line) == body


def test_java_reads_the_messages_of_batches_each_with_its_own_id(cluster: Cluster, name: Name) -> None:
    topic = name("Batches")
    with Producer(cluster.url) as producer:
        small = producer.send_batch([Message(topic, b"%d" % number, keys=[f"k{number}"]) for number in range(100)])
        large = producer.send_batch([Message(topic, bytes([number]) * MIB) for number in range(10)])
    lines = read_by_java(cluster, topic)
    assert {body_of(line)[:1] for line in lines if len(body_of(line)) == MIB} == {bytes([n]) for n in range(10)}
    by_id = {line["properties"]["UNIQ_KEY"]: line for line in lines}
    assert len(by_id) == 110
    for results in (small, large):
        assert len({result.queue for result in results}) == 1
        places = [by_id[result.message_id] for result in results]
        assert [line["queue_offset"] for line in places] == [result.queue_offset for result in results]
        assert [line["commit_log_offset"] for line in places] == [result.commit_log_offset for result in results]


def test_java_reads_what_was_sent_without_waiting(cluster: Cluster, name: Name) -> None:
    topic = name("Async")

    async def send(producer: Producer) -> list[SendResult]:
        return await asyncio.gather(*(producer.send_async(Message(topic, b"%d" % number)) for number in range(500)))

    with Producer(cluster.url) as producer:
        results = asyncio.run(send(producer))
    lines = read_by_java(cluster, topic)
    assert {body_of(line): line["properties"]["UNIQ_KEY"] for line in lines} == {
        b"%d" % number: result.message_id for number, result in enumerate(results)
    }
    assert len(lines) == 500


# --- failures -----------------------------------------------------------------------------------------


def test_a_failed_message_comes_back_after_its_delay_and_then_is_a_dead_letter(cluster: Cluster, name: Name) -> None:
    group = name("failing")
    record = ReferenceRecord(topic="orders", body=b"hard", properties=format_properties({"UNIQ_KEY": "A" * 32}))
    (message,) = decode_records(encode(record), MessageQueue("orders", 0, "broker-a"))
    backend = open_backend(cluster.url)
    try:
        retries = Retries(backend, group, RetryPolicy(max_retries=1, delays=(0.5,)), "me@1")
        began = time.monotonic()
        first = retries.send_back(message, Failure.raised(KeyError("1"), 1, "me@1"))
        (retried,) = until(lambda: read_by_java(cluster, f"%RETRY%{group}"))
        waited = time.monotonic() - began
        last = retries.send_back(message, Failure.raised(KeyError("2"), 2, "me@1"))
        (dead,) = until(lambda: read_by_java(cluster, f"%DLQ%{group}"))
    finally:
        backend.close()
    assert (first, last) == (Outcome.RETRY, Outcome.DEAD_LETTER)
    assert waited >= 0.5
    assert (body_of(retried), retried["reconsume_times"]) == (b"hard", 1)
    assert (body_of(dead), dead["reconsume_times"]) == (b"hard", 2)
    for line in (retried, dead):
        assert line["properties"]["RETRY_TOPIC"] == "orders"
        assert line["properties"]["UNIQ_KEY"] == "A" * 32
        assert "KeyError" in line["properties"][HISTORY]


# --- requests -----------------------------------------------------------------------------------------


def test_java_replies_to_a_request(cluster: Cluster, name: Name) -> None:
    topic = name("Asked")
    with Producer(cluster.url, group=name("asking")) as producer:
        future = producer.request_async(Message(topic, b"question"), LONG_S)
        (replied,) = of_kind(cluster.run("reply", name("replying"), 1, topic), "replied")
        reply = future.result(LONG_S)
    assert replied["status"] == "SEND_OK"
    assert reply.body == b"re question"


def test_java_asks_and_a_handler_here_replies(cluster: Cluster, name: Name, tmp_path: Path) -> None:
    topic, app = name("Answered"), App(cluster.url)

    @app.handler(topic, group=name("answering"), replies=True)
    def answer(message: ReceivedMessage) -> bytes:
        return b"re " + message.body

    with Producer(cluster.url) as producer:
        producer.create_topic(topic, 4)
    java = Java(BROKER_4_9_7, tmp_path)  # the client of 5.3.3 gives up at once, a fault of that release
    consumer = PushConsumer(cluster.url, app.handlers)
    consumer.start()
    try:
        (reply,) = of_kind(java.run("request", ";".join(cluster.addresses), name("asking"), topic, "question"), "reply")
    finally:
        consumer.close()
    assert body_of(reply) == b"re question"


# --- kills --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_a_broker_that_is_killed_loses_nothing_that_was_answered(release: str, tmp_path: Path, name: Name) -> None:
    topic, answered, doubtful = name("Killed"), list[str](), list[str]()
    ended, enough = threading.Event(), threading.Event()

    def send(producer: Producer, number: int) -> None:
        count = 0
        while not ended.is_set():
            count += 1
            body = f"{number}/{count}"
            try:
                producer.send(Message(topic, body))
            except QueueError as error:
                doubtful.append(f"{body} {error.stored}")
            else:
                answered.append(body)
            if len(answered) > 2_000:
                enough.set()

    with (
        started_cluster(release, tmp_path, masters=2) as cluster,
        Producer(f"{cluster.url}?timeout=2") as producer,
    ):
        threads = [threading.Thread(target=send, args=(producer, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        assert enough.wait(LONG_S)
        cluster.broker("broker-a").server.kill()
        before = len(answered)
        wait_until(lambda: len(answered) > before + 1_000)
        cluster.restart(cluster.broker("broker-a").server)
        ended.set()
        for thread in threads:
            thread.join()
        found = Counter(body_of(line).decode() for line in read_by_java(cluster, topic))
    lost = [body for body in answered if body not in found]
    assert not lost
    assert not doubtful, "the other broker has taken every message"
    repeated = sum(count - 1 for count in found.values())
    assert repeated <= len(threads), "each thread had one message under way"
    assert set(found) == set(answered)


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
