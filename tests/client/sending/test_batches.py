"""Many messages in one call: sizes, lingering, failures, decoding, in one process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import pytest

from rmqclient import App, Batch, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.errors import HandlerError
from rmqclient.failures.retry import RetryPolicy
from rmqclient.message import SendResult
from rmqclient.store import MessageStore
from tests.client.conftest import consuming, wait_for
from tests.client.consuming.test_delivery import is_finished

SHORT = ConsumerConfig(suspend_ms=20)
LINGER_S = 1.5
"""Longer than some sends take on a busy machine."""


@dataclass
class Order:
    total: float


def send(producer: Producer, count: int, queues: int = 1) -> list[SendResult]:
    producer.create_topic("t", queues)
    return [producer.send(Message("t", b"%d" % number)) for number in range(count)]


@pytest.mark.parametrize("order", [None, "queue"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_is_a_run_of_messages_of_one_queue_and_is_acknowledged_as_one(
    store: MessageStore, producer: Producer, is_async: bool, order: Literal["queue"] | None
) -> None:
    app, batches = App(store.root), []

    def handle(messages: list[ReceivedMessage]) -> None:
        batches.append([(message.queue_id, message.queue_offset) for message in messages])

    async def handle_async(messages: list[ReceivedMessage]) -> None:
        handle(messages)

    app.handler("t", group="g", batch=Batch(100), order=order)(handle_async if is_async else handle)
    send(producer, 1_000, queues=2)
    with consuming(store, app) as consumer:
        wait_for(lambda: is_finished(store), "all are acknowledged")
        wait_for(lambda: consumer.counters.handled == 1_000, "each is counted once")
    assert [len(batch) for batch in batches] == [100] * 10
    for batch in batches:
        (queue_id,) = {queue_id for queue_id, _ in batch}
        first = batch[0][1]
        assert batch == [(queue_id, offset) for offset in range(first, first + 100)]


@pytest.mark.parametrize("order", [None, "queue"])
def test_a_batch_waits_until_it_is_full_or_the_time_is_over_and_other_queues_do_not(
    store: MessageStore, producer: Producer, order: Literal["queue"] | None
) -> None:
    app, batches = App(store.root), []

    @app.handler("t", group="g", batch=Batch(4, linger=LINGER_S), order=order)
    def handle(messages: list[ReceivedMessage]) -> None:
        batches.append((time.monotonic(), [message.queue_id for message in messages]))

    producer.create_topic("t", 2)
    with consuming(store, app):
        begin = time.monotonic()
        producer.send(Message("t", b""), "0")  # an even hash
        for _ in range(4):
            producer.send(Message("t", b""), "1")
        wait_for(lambda: len(batches) == 2, "a full one and one that is not")
    (early, full), (late, single) = batches
    assert (full, single) == ([1] * 4, [0])
    assert early - begin < LINGER_S <= late - begin


def test_without_lingering_a_batch_is_what_is_there(store: MessageStore, producer: Producer) -> None:
    app, sizes, arrived = App(store.root), [], threading.Event()

    @app.handler("t", group="g", batch=Batch(1_000))
    def handle(messages: list) -> None:  # type: ignore[type-arg]
        sizes.append(len(messages))
        arrived.set()

    send(producer, 7)
    with consuming(store, app):
        assert arrived.wait(30)
        wait_for(lambda: is_finished(store), "all are acknowledged")
    assert sum(sizes) == 7


def test_the_elements_are_what_the_annotation_asks_for(store: MessageStore, producer: Producer) -> None:
    app = App(store.root)
    got: list[object] = []

    @app.handler("t", group="g", batch=Batch(10))
    def handle(orders: list[Order]) -> None:
        got.extend(orders)

    @app.handler("t", group="texts", batch=Batch(10), order="queue")
    def handle_texts(texts: list[str]) -> None:
        got.extend(texts)

    producer.send(Message("t", Order(2.5)))
    with consuming(store, app):
        wait_for(lambda: len(got) == 2, "both got it")
    assert sorted(got, key=str) == [Order(2.5), '{"total":2.5}']


def test_an_annotation_that_is_no_list_is_refused(store: MessageStore) -> None:
    app = App(store.root)

    def handle(order: Order) -> None: ...

    with pytest.raises(HandlerError, match=r"not a list: write list\[ReceivedMessage\]"):
        app.handler("t", group="g", batch=Batch(10))(handle)


def test_a_batch_that_fails_is_sent_back_message_by_message(store: MessageStore, producer: Producer) -> None:
    app, failed = App(store.root), []

    @app.handler("t", group="g", batch=Batch(5))
    def handle(messages: list[ReceivedMessage]) -> None:
        failed.append([message.queue_offset for message in messages])
        raise RuntimeError("never")

    send(producer, 5)
    with consuming(store, app) as consumer:
        wait_for(lambda: consumer.counters.failed == 5, "each is sent back")
        wait_for(lambda: is_finished_in(store, "t"), "each is finished where it failed")
    assert failed == [[0, 1, 2, 3, 4]]


def test_a_body_that_does_not_decode_takes_no_other_message_with_it(store: MessageStore, producer: Producer) -> None:
    app = App(store.root)
    totals: list[float] = []

    @app.handler("t", group="g", batch=Batch(3))
    def handle(orders: list[Order]) -> None:
        totals.extend(order.total for order in orders)

    producer.create_topic("t", 1)
    for body in (Order(1), b"[", Order(3)):
        producer.send(Message("t", body))
    with consuming(store, app) as consumer:
        wait_for(lambda: totals == [1, 3] and consumer.counters.failed == 1, "the good ones are handled")


def test_what_comes_back_is_handed_over_alone_so_that_one_bad_message_takes_no_others_with_it(
    store: MessageStore, producer: Producer
) -> None:
    app = App(store.root)
    handled: list[list[bytes]] = []
    buried: list[bytes] = []

    @app.handler("t", group="g", batch=Batch(5), retry=RetryPolicy(max_retries=1, delay_levels=(1,)))
    def handle(messages: list[ReceivedMessage]) -> None:
        if b"3" in [message.body for message in messages]:
            raise RuntimeError("never")
        handled.append([message.body for message in messages])

    @app.handler("%DLQ%g", group="undertaker")
    def bury(message: ReceivedMessage) -> None:
        buried.append(message.body)

    send(producer, 5)
    with consuming(store, app):
        wait_for(lambda: len(handled) == 4 and buried, "the good ones are handled, the bad one is a dead letter")
    assert (sorted(handled), buried) == ([[b"0"], [b"1"], [b"2"], [b"4"]], [b"3"])


def test_an_ordered_batch_that_fails_comes_again_as_it_was(store: MessageStore, producer: Producer) -> None:
    app, calls = App(store.root), []

    @app.handler("t", group="g", batch=Batch(10), order="queue")
    def handle(messages: list[ReceivedMessage]) -> None:
        calls.append((messages[0].delivery_attempt, [message.queue_offset for message in messages]))
        if messages[0].queue_offset == 10 and messages[0].delivery_attempt < 3:
            raise RuntimeError("not yet")

    send(producer, 30)
    with consuming(store, app, SHORT):
        wait_for(lambda: is_finished(store), "all are acknowledged")
    first, second, third = (list(range(start, start + 10)) for start in (0, 10, 20))
    assert calls == [(1, first), (1, second), (2, second), (3, second), (1, third)]


def test_a_batch_is_no_longer_than_what_may_be_in_flight(store: MessageStore, producer: Producer) -> None:
    app, sizes = App(store.root), Counter[int]()

    @app.handler("t", group="g", batch=Batch(1_000, linger=60))
    def handle(messages: list[ReceivedMessage]) -> None:
        sizes[len(messages)] += 1

    send(producer, 200)
    with consuming(store, app, ConsumerConfig(max_messages=50, batch_messages=50)):
        wait_for(lambda: is_finished(store), "all are acknowledged")
    assert sizes == {50: 4}


def test_a_queue_that_is_being_given_up_keeps_nobody_awake_for_what_it_has_gathered(
    store: MessageStore, producer: Producer
) -> None:
    app, calls = App(store.root), []

    @app.handler("t", group="g", batch=Batch(10, linger=60))
    def handle(messages: list[ReceivedMessage]) -> None:
        calls.append(len(messages))

    send(producer, 3)
    with consuming(store, app) as consumer:
        (queue,) = consumer.subscriptions[0].delivery.queues
        wait_for(lambda: queue.in_flight, "some are gathered")
        assert queue.next_due() is not None
        queue.revoked = True
        assert queue.next_due() is None
    assert calls == []


def is_finished_in(store: MessageStore, topic: str) -> bool:
    return all(queue.lag == 0 for queue in Admin(store).lag("g") if queue.topic == topic)
