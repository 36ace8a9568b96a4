"""Batches that are one compressed record: sent, delivered in every way, failed, filtered, in one process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rmqclient import (
    App,
    Batch,
    Message,
    Producer,
    PullConsumer,
    PullStatus,
    ReceivedMessage,
    RetryPolicy,
    jmespath,
    sql,
)
from rmqclient.admin import Admin
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.consuming.reader import Reader
from rmqclient.filters import Filter
from rmqclient.message import SendResult
from rmqclient.store import Durability, MessageQueue, MessageStore, StoreConfig
from rmqclient.store.bodies import Compression, compress, open_body
from rmqclient.store.errors import BodyUnreadable, MessageRejected, StoreClosed
from rmqclient.store.log.inner_batch import inner_messages, is_batch, opened
from tests.client.conftest import QUICK, SOON, consuming, wait_for
from tests.client.consuming.test_delivery import is_finished

WAYS: list[dict[str, Any]] = [
    {},
    {"threads": 4},
    {"batch": Batch(7)},
    {"order": "queue"},
    {"order": "queue", "batch": Batch(7)},
    {"order": "key", "threads": 4},
]
NAMES = ["one by one", "threads", "batches", "ordered", "ordered batches", "by key"]
QUEUE = MessageQueue("t", 0)


def batch(
    producer: Producer, count: int, start: int = 0, *, tags: str | None = None, key: str | None = None
) -> list[SendResult]:
    producer.create_topic("t", 1)
    messages = [
        Message("t", b'{"number": %d}' % number, tags=tags, properties={"number": str(number)})
        for number in range(start, start + count)
    ]
    return producer.send_batch(messages, key, compression=Compression.ZSTD)


def number_of(message: ReceivedMessage) -> int:
    return int(message.properties["number"])


def registered(app: App, handle: Callable[[ReceivedMessage], None], **options: Any) -> None:
    def handle_all(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            handle(message)

    app.handler("t", group="g", **options)(handle_all if options.get("batch") else handle)


@pytest.mark.guarantee("G39")
@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_each_message_of_a_batch_is_handled_once_beside_messages_that_were_sent_alone(
    store: MessageStore, producer: Producer, way: dict[str, Any]
) -> None:
    app, seen = App(store.root), []
    registered(app, lambda message: seen.append((number_of(message), message.message_id)), **way)
    sent = [result.message_id for result in batch(producer, 500)]
    sent.append(producer.send(Message("t", b"", properties={"number": "500"})).message_id)
    sent += [result.message_id for result in batch(producer, 100, 501)]
    assert store.topics.max_offset(QUEUE) == 3
    with consuming(store, app) as consumer:
        wait_for(lambda: is_finished(store), "all are acknowledged")
        wait_for(lambda: consumer.counters.handled == 601, "each is counted")
        (subscription,) = consumer.subscriptions
        assert [queue.in_flight for queue in subscription.delivery.queues] == [0]
    assert sorted(seen) == list(enumerate(sent))
    if way.get("order") == "queue":
        assert seen == sorted(seen)


@pytest.mark.guarantee("G39")
def test_a_batch_is_finished_when_its_last_message_is(store: MessageStore, producer: Producer) -> None:
    app, last, seen = App(store.root), threading.Event(), []

    @app.handler("t", group="g", threads=2)
    def handle(message: ReceivedMessage) -> None:
        seen.append(number_of(message))
        if number_of(message) == 3:
            last.wait(10)

    batch(producer, 20)
    batch(producer, 1, 20)
    with consuming(store, app):
        wait_for(lambda: len(seen) == 21, "all have begun")
        (lag,) = Admin(store).lag("g")
        assert (lag.lag, is_finished(store)) == (2, False)
        last.set()
        wait_for(lambda: is_finished(store), "the batch is acknowledged")


@pytest.mark.guarantee("G39")
@pytest.mark.parametrize("way", [{}, {"threads": 4}, {"batch": Batch(7)}], ids=["one by one", "threads", "batches"])
def test_one_that_fails_comes_again_alone_as_an_ordinary_message(
    store: MessageStore, producer: Producer, way: dict[str, Any]
) -> None:
    app, calls = App(store.root), Counter[int]()
    failed: list[ReceivedMessage] = []

    def handle(message: ReceivedMessage) -> None:
        calls[number_of(message)] += 1
        if number_of(message) == 17 and message.delivery_attempt == 1:
            raise ValueError("not yet")
        if message.delivery_attempt > 1 and number_of(message) == 17:
            failed.append(message)

    registered(app, handle, retry=SOON, **way)
    sent = batch(producer, 50, key="tail")
    with consuming(store, app):
        wait_for(lambda: failed, "it comes again")
        wait_for(lambda: is_finished(store), "the batch is acknowledged")
    (message,) = failed
    assert (message.message_id, message.body, message.sys_flag) == (sent[17].message_id, b'{"number": 17}', 0)
    assert (message.topic, message.sharding_key, message.delivery_attempt) == ("t", "tail", 2)
    assert message.properties["ORIGIN_MESSAGE_ID"] == store.messages.at(QUEUE, 0).offset_message_id
    if way.get("batch") is None:
        assert calls == {number: 2 if number == 17 else 1 for number in range(50)}


def test_one_that_fails_for_good_is_a_dead_letter_alone(store: MessageStore, producer: Producer) -> None:
    app = App(store.root)

    @app.handler("t", group="g", retry=RetryPolicy(max_retries=0))
    def handle(message: ReceivedMessage) -> None:
        if number_of(message) % 10 == 0:
            raise ValueError("never")

    batch(producer, 30)
    with consuming(store, app):
        wait_for(lambda: is_finished(store), "the batch is acknowledged")
    letters = [store.messages.at(MessageQueue("%DLQ%g", 0), offset) for offset in range(3)]
    assert store.topics.max_offset(MessageQueue("%DLQ%g", 0)) == 3
    assert [number_of(letter) for letter in letters] == [0, 10, 20]
    assert [is_batch(letter) for letter in letters] == [False] * 3


@pytest.mark.parametrize("size", [1, 4])
def test_an_ordered_queue_is_held_by_one_message_of_a_batch_and_goes_on_behind_it(
    store: MessageStore, producer: Producer, size: int
) -> None:
    app, calls = App(store.root), []

    def handle(message: ReceivedMessage) -> None:
        calls.append((number_of(message), message.delivery_attempt))
        if number_of(message) == 8 and message.delivery_attempt < 4:
            raise ValueError("not yet")

    registered(app, handle, order="queue", batch=Batch(size) if size > 1 else None)
    batch(producer, 20)
    with consuming(store, app, ConsumerConfig(suspend_ms=20)) as consumer:
        wait_for(lambda: is_finished(store), "the batch is acknowledged")
        wait_for(lambda: consumer.counters.handled == 20, "each is counted once")
    held = [call for call in calls if call[0] == 8]
    assert held == [(8, attempt) for attempt in (1, 2, 3, 4)]
    if size == 1:
        assert calls == [*((number, 1) for number in range(8)), *held, *((number, 1) for number in range(9, 20))]


def test_what_fails_in_order_of_its_key_holds_only_its_key(store: MessageStore, producer: Producer) -> None:
    app, calls, failing = App(store.root), [], threading.Event()
    failing.set()

    @app.handler("t", group="g", order="key", threads=2)
    def handle(message: ReceivedMessage) -> None:
        calls.append((message.sharding_key, number_of(message)))
        if number_of(message) == 2 and failing.is_set():
            raise ValueError("not yet")

    batch(producer, 5, key="a")
    batch(producer, 5, 5, key="b")
    with consuming(store, app, ConsumerConfig(suspend_ms=20)):
        wait_for(lambda: ("b", 9) in calls and calls.count(("a", 2)) > 2, "the other key goes on")
        assert ("a", 3) not in calls
        failing.clear()
        wait_for(lambda: is_finished(store), "both are acknowledged")
    mine = [number for key, number in calls if key == "a"]
    assert list(dict.fromkeys(mine)) == [0, 1, 2, 3, 4]


def test_every_member_of_a_broadcast_gets_the_messages_of_a_batch(store: MessageStore, producer: Producer) -> None:
    app, seen = App(store.root), Counter[int]()

    @app.handler("t", group="g", broadcast=True)
    def handle(message: ReceivedMessage) -> None:
        seen[number_of(message)] += 1

    batch(producer, 40)
    members = [PushConsumer(store, app.handlers, client_id=f"cache-{number}", config=QUICK) for number in range(2)]
    for member in members:
        member.start()
    wait_for(lambda: seen == dict.fromkeys(range(40), 2), "both have each")
    for member in members:
        member.close()


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.guarantee("G39")
@pytest.mark.parametrize("way", WAYS, ids=NAMES)
@pytest.mark.parametrize(
    "wanted",
    [sql("number > 5 AND number < 12"), jmespath("number > `5` && number < `12`")],
    ids=["sql", "jmespath"],
)
def test_properties_and_bodies_are_compared_message_by_message(
    store: MessageStore, producer: Producer, way: dict[str, Any], wanted: Filter
) -> None:
    app, seen = App(store.root), []
    registered(app, lambda message: seen.append(number_of(message)), **way, filter=wanted)
    batch(producer, 3, 100)
    batch(producer, 20)
    with consuming(store, app):
        wait_for(lambda: is_finished(store), "both are finished")
    assert sorted(seen) == list(range(6, 12))


def test_a_batch_is_selected_by_its_tag(store: MessageStore, producer: Producer) -> None:
    app, seen = App(store.root), []
    app.handler("t", group="g", tags="late")(lambda message: seen.append(number_of(message)))
    batch(producer, 5, tags="early")
    batch(producer, 5, 5, tags="late")
    with consuming(store, app):
        wait_for(lambda: is_finished(store), "both are finished")
    assert seen == list(range(5, 10))


# --- limits ---------------------------------------------------------------------------------------


def test_flow_control_counts_the_messages_inside(store: MessageStore, producer: Producer) -> None:
    app, go, begun = App(store.root), threading.Event(), []

    @app.handler("t", group="g")
    def handle(message: ReceivedMessage) -> None:
        begun.append(number_of(message))
        go.wait(10)

    for start in range(0, 500, 100):
        batch(producer, 100, start)
    with consuming(store, app, ConsumerConfig(max_messages=150, batch_messages=1)) as consumer:
        (subscription,) = consumer.subscriptions
        wait_for(lambda: begun, "the first is handled")
        (queue,) = subscription.delivery.queues
        assert len(queue.take()) == 100
        assert queue.take() == []
        assert queue.in_flight == 200
        go.set()


@pytest.mark.parametrize("level", [1, 18])
def test_a_compressed_batch_cannot_wait(producer: Producer, level: int) -> None:
    with pytest.raises(MessageRejected, match=f"delay_level={level}.*cannot wait"):
        producer.send_batch([Message("t", b"")], delay_level=level, compression=Compression.ZSTD)


def test_the_level_is_that_of_the_compression(store: MessageStore, producer: Producer) -> None:
    messages = [Message("t", b"%d" % (number**5)) for number in range(2_000)]
    producer.create_topic("t", 1)
    for level in (1, 9):
        producer.send_batch(messages, compression=Compression.ZLIB, level=level)
    least, most = (len(store.messages.at(QUEUE, offset).stored_body) for offset in range(2))
    assert most < least
    assert [message.body for message in opened(store.messages.at(QUEUE, 1))] == [message.body for message in messages]


def test_with_an_empty_batch_nothing_is_sent(store: MessageStore, producer: Producer) -> None:
    assert producer.send_batch([], compression=Compression.LZ4) == []
    assert store.state.published_to == 0


@pytest.mark.guarantee("G2")
def test_with_sync_durability_a_batch_is_on_the_disk_when_its_send_returns(store: MessageStore) -> None:
    with Producer(store, config=StoreConfig(durability=Durability.SYNC)) as producer:
        sent = producer.send_batch([Message("t", b"1"), Message("t", b"2")], compression=Compression.ZSTD)
    assert store.state.flushed_to >= sent[-1].commit_log_end
    with pytest.raises(StoreClosed):
        producer.send_batch([Message("t", b"3")], compression=Compression.ZSTD)


def test_a_body_that_is_compressed_already_is_refused(producer: Producer) -> None:
    packed = Message("t", b"x").with_body(compress(b"x", Compression.ZSTD), Compression.ZSTD.value)
    with pytest.raises(MessageRejected, match="compressed already"):
        producer.send_batch([packed], compression=Compression.ZSTD)


def test_a_producer_that_compresses_bodies_does_not_compress_a_batch_twice(store: MessageStore) -> None:
    body = b'{"flight": 1545}' * 500
    with Producer(store, compression=Compression.ZLIB, compress_over_bytes=1) as producer:
        producer.create_topic("t", 1)
        producer.send_batch([Message("t", body)] * 3, compression=Compression.LZ4)
    whole = store.messages.at(QUEUE, 0)
    assert whole.sys_flag == 0x80 | Compression.LZ4.value
    assert [message.body for message in opened(whole)] == [body] * 3


# --- batches that cannot be opened ----------------------------------------------------------------


def unopenable(store: MessageStore, producer: Producer) -> SendResult:
    """Send a batch of which nothing can be made."""
    producer.create_topic("t", 1)
    appender = store.appenders.make(store.topics.queues, lambda body: bytes(str(body), "utf-8"))
    packed = compress(b"this is not a batch", Compression.ZSTD), Compression.ZSTD.value
    return appender.append_inner_batch(
        [Message("t", b"lost", properties={"number": "0"})], lambda _: packed, most_bytes=99
    )[0]


@pytest.mark.guarantee("G39")
@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_one_that_cannot_be_opened_is_one_failed_message_and_reaches_no_handler(
    store: MessageStore, producer: Producer, way: dict[str, Any]
) -> None:
    app, seen = App(store.root), []
    registered(app, lambda message: seen.append(number_of(message)), retry=RetryPolicy(max_retries=0), **way)
    batch(producer, 5)
    bad = unopenable(store, producer)
    batch(producer, 5, 5)
    with consuming(store, app):
        wait_for(lambda: is_finished(store), "all is finished")
    assert sorted(seen) == list(range(10))
    letter = store.messages.at(MessageQueue("%DLQ%g", 0), 0)
    assert (letter.message_id, is_batch(letter)) == (bad.message_id, True)
    assert letter.stored_body == store.messages.at(QUEUE, 1).stored_body
    assert letter.sys_flag == store.messages.at(QUEUE, 1).sys_flag
    assert "BodyUnreadable" in letter.properties["RMQ_FAILURES"]
    assert store.topics.max_offset(MessageQueue("%DLQ%g", 0)) == 1


def test_one_that_could_not_be_opened_comes_from_the_retry_topic_as_its_messages(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, seen = App(store.root), []
    first = iter([True])

    def missing_at_first(body: bytes, sys_flag: int, limit: int) -> bytes:
        if next(first, False):
            raise BodyUnreadable("not this time")
        return open_body(body, sys_flag, limit)

    app.handler("t", group="g", retry=SOON)(
        lambda message: seen.append((number_of(message), message.topic, message.delivery_attempt))
    )
    batch(producer, 5)
    monkeypatch.setattr("rmqclient.store.kernel._kernel.open_body", missing_at_first)
    with consuming(store, app):
        wait_for(lambda: len(seen) == 5, "its messages are handled")
        wait_for(lambda: is_finished(store), "all is finished")
    assert seen == [(number, "t", 2) for number in range(5)]


def test_one_that_is_larger_than_the_reader_allows_fails_until_it_allows_more(
    store: MessageStore, producer: Producer
) -> None:
    producer.create_topic("t", 1)
    producer.send_batch([Message("t", bytes(1 << 20)) for _ in range(4)], compression=Compression.LZ4)
    small = store.messages.at(QUEUE, 0).limited_to(1 << 20)
    assert opened(small) == (small,)
    assert len(opened(store.messages.at(QUEUE, 0))) == 4


# --- pulling and looking --------------------------------------------------------------------------


@pytest.mark.guarantee("G39")
def test_a_pull_gives_the_messages_of_a_batch_together(store: MessageStore, producer: Producer) -> None:
    batch(producer, 5)
    unopenable(store, producer)
    producer.send(Message("t", b"", properties={"number": "5"}))
    with PullConsumer(store, group="g") as consumer:
        result = consumer.pull(QUEUE, 0, limit=3)
        assert (result.status, result.next_offset) == (PullStatus.FOUND, 1)
        assert [number_of(message) for message in result.messages] == list(range(5))
        (bad, good) = consumer.pull(QUEUE, 1).messages
        with pytest.raises(BodyUnreadable, match="damaged"):
            inner_messages(bad)
        assert number_of(good) == 5
        assert consumer.pull(QUEUE, 0, tags="other", limit=1).status is PullStatus.NO_MATCHED_MESSAGE


def test_a_topic_is_shown_message_by_message(store: MessageStore, producer: Producer) -> None:
    batch(producer, 5)
    shown = Reader(store).tail(QUEUE.topic, start="earliest", follow=False)
    assert [number_of(message) for message in shown] == list(range(5))


def test_the_limit_of_the_store_is_the_limit_of_a_batch(tmp_path: Any) -> None:
    with (
        Producer(tmp_path / "s", config=StoreConfig(max_opened_body_bytes=1_000)) as producer,
        pytest.raises(MessageRejected, match="more than 1000 bytes"),
    ):
        producer.send_batch([Message("t", bytes(500)), Message("t", bytes(500))], compression=Compression.ZLIB)


def test_a_compressed_batch_for_a_compact_topic_is_refused_and_nothing_is_written(store: MessageStore) -> None:
    with Producer(store) as producer:
        producer.create_topic("prices", 1, cleanup_policy="compact")
        messages = [Message("prices", b"1", keys=(key,)) for key in ("a", "b")]

        with pytest.raises(MessageRejected, match=r"topic 'prices' is compact.*without compression"):
            producer.send_batch(messages, compression=Compression.ZSTD)

    assert store.state.published_to == 0
