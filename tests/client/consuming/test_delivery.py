"""Handling: acknowledgement, retries, filters, threads, coroutines and flow control, in one process."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from rmqclient import App, Batch, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.admin import Admin
from rmqclient.backend import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.consuming.reader import Reader
from rmqclient.delivery.process_queue import FlowControl
from rmqclient.errors import BodyDoesNotFit
from rmqclient.handler import Order as Order_
from rmqclient.opening import Place
from rmqclient.store import StoreConfig, open_store
from tests.client.conftest import NOWHERE, QUICK, SOON, consuming, wait_for


class Flight(msgspec.Struct):
    carrier: str
    minutes: int


@dataclass
class Order:
    total: float


def is_finished(place: Place, group: str = "g") -> bool:
    queues = Admin(place).lag(group)
    return bool(queues) and all(queue.lag == 0 for queue in queues)


def test_a_handler_gets_every_message_once_and_acknowledges_it(backend: Backend, producer: Producer) -> None:
    app, seen = App(NOWHERE), Counter[bytes]()

    @app.handler("t", group="g")
    def handle(message: ReceivedMessage) -> None:
        assert message.delivery_attempt == 1
        seen[message.body] += 1

    for number in range(500):
        producer.send(Message("t", b"%d" % number))
    with consuming(backend, app):
        wait_for(lambda: is_finished(backend), "all are acknowledged")
        producer.send(Message("t", b"500"))
        wait_for(lambda: len(seen) == 501, "one more arrives while it sleeps")
    assert set(seen.values()) == {1}


def test_a_consumer_opens_the_directory_that_it_is_given_and_leaves_it_at_the_end(tmp_path: Path) -> None:
    root, arrived = tmp_path / "store", threading.Event()
    app = App(root)

    @app.handler("t", group="g")
    def handle(message: ReceivedMessage) -> None:
        arrived.set()

    with Producer(root) as producer:
        producer.send(Message("t", b""))
    consumer = PushConsumer(root, app.handlers)
    consumer.start()
    assert arrived.wait(30)
    consumer.stop_taking()
    assert consumer.drain(10) == 0
    consumer.close()
    with open_store(root) as store:
        assert is_finished(store)
        assert store.members().roll.all() == []


def test_a_consumer_that_starts_before_its_topic_exists_gets_its_first_message(
    backend: Backend, producer: Producer
) -> None:
    app, arrived = App(NOWHERE), threading.Event()

    @app.handler("later", group="g")
    def handle(message: ReceivedMessage) -> None:
        arrived.set()

    with consuming(backend, app):
        producer.send(Message("later", b""))
        assert arrived.wait(30)


def test_a_failed_message_comes_again_and_the_others_go_on(backend: Backend, producer: Producer) -> None:
    app, attempts = App(NOWHERE), Counter[tuple[bytes, int]]()

    @app.handler("t", group="g", retry=SOON)
    def handle(message: ReceivedMessage) -> None:
        attempts[message.body, message.delivery_attempt] += 1
        if message.body == b"13" and message.delivery_attempt < 3:
            raise RuntimeError("not yet")

    for number in range(100):
        producer.send(Message("t", b"%d" % number), "one queue")
    with consuming(backend, app) as consumer:
        wait_for(lambda: attempts[b"13", 3] and is_finished(backend), "all are acknowledged")
        assert consumer.counters.failed == 2
    assert [attempts[b"13", attempt] for attempt in (1, 2, 3, 4)] == [1, 1, 1, 0]
    assert sum(attempts.values()) == 102


def test_a_handler_that_calls_sys_exit_fails_its_message_and_not_its_thread(
    backend: Backend, producer: Producer
) -> None:
    app, attempts = App(NOWHERE), []

    @app.handler("t", group="g", retry=SOON)
    def handle(message: ReceivedMessage) -> None:
        attempts.append(message.delivery_attempt)
        if message.delivery_attempt == 1:
            raise SystemExit(3)

    producer.send(Message("t", b""))
    with consuming(backend, app):
        wait_for(lambda: len(attempts) == 2 and is_finished(backend), "the second attempt is acknowledged")
    assert attempts == [1, 2]


def test_tags_choose_the_messages_and_the_others_do_not_hold_the_offset(backend: Backend, producer: Producer) -> None:
    app, seen = App(NOWHERE), Counter[str | None]()

    @app.handler("t", group="g", tags="departed || cancelled")
    def handle(message: ReceivedMessage) -> None:
        seen[message.tags] += 1

    for number in range(3_000):
        producer.send(Message("t", b"", tags=("departed", "landed", None)[number % 3]), "one queue")
    producer.send(Message("t", b"", tags="cancelled"))
    # "Aa" and "BB" have one Java hash: the exact tag decides
    producer.send(Message("t", b"", tags="depBBrted"))
    with consuming(backend, app):
        wait_for(lambda: is_finished(backend), "all are finished or passed over")
    assert seen == {"departed": 1_000, "cancelled": 1}


def test_two_tags_with_one_hash_are_told_apart(backend: Backend, producer: Producer) -> None:
    app, seen = App(NOWHERE), []

    @app.handler("t", group="g", tags="Aa")
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.tags)

    for tag in ("BB", "Aa", "BB"):
        producer.send(Message("t", b"", tags=tag))
    with consuming(backend, app):
        wait_for(lambda: is_finished(backend), "all are finished or passed over")
    assert seen == ["Aa"]


def test_every_group_gets_every_message(backend: Backend, producer: Producer) -> None:
    app, seen = App(NOWHERE), Counter[str]()

    @app.handler("t", group="one")
    def first(message: ReceivedMessage) -> None:
        seen["one"] += 1

    @app.handler("t", group="two")
    def second(message: ReceivedMessage) -> None:
        seen["two"] += 1

    for _ in range(50):
        producer.send(Message("t", b""))
    with consuming(backend, app):
        wait_for(lambda: is_finished(backend, "one") and is_finished(backend, "two"), "both have everything")
    assert seen == {"one": 50, "two": 50}


def test_a_pool_of_threads_works_side_by_side(backend: Backend, producer: Producer) -> None:
    app, together = App(NOWHERE), threading.Barrier(4)

    @app.handler("t", group="g", threads=4)
    def handle(message: ReceivedMessage) -> None:
        together.wait(10)

    producer.create_topic("t", 4)
    for _ in range(4):
        producer.send(Message("t", b""))
    with consuming(backend, app):
        wait_for(lambda: is_finished(backend), "four handlers met")


@pytest.mark.parametrize("error", [RuntimeError("not yet"), SystemExit(3), asyncio.CancelledError()])
def test_coroutine_handlers_of_a_batch_run_side_by_side(
    backend: Backend, producer: Producer, error: BaseException
) -> None:
    app = App(NOWHERE)
    running, most, ended = 0, 0, 0

    @app.handler("t", group="g", retry=SOON)
    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most, ended
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        if message.body == b"3" and message.delivery_attempt == 1:
            raise error
        ended += 1

    for number in range(20):
        producer.send(Message("t", b"%d" % number), "one queue")
    with consuming(backend, app) as consumer:
        wait_for(lambda: ended == 20 and is_finished(backend), "all are acknowledged")
        assert consumer.counters.failed == 1
    assert most == 20


def test_a_handler_gets_what_its_annotation_asks_for(backend: Backend, producer: Producer) -> None:
    app = App(NOWHERE)
    got: list[object] = []

    @app.handler("structs", group="g")
    def one(flight: Flight) -> None:
        got.append(flight)

    @app.handler("dataclasses", group="g")
    def two(order: Order) -> None:
        got.append(order)

    @app.handler("texts", group="g")
    async def three(text: str) -> None:
        got.append(text)

    producer.send(Message("structs", Flight("UA", 90)))
    producer.send(Message("dataclasses", Order(2.5)))
    producer.send(Message("texts", "hello"))
    with consuming(backend, app):
        wait_for(lambda: len(got) == 3, "each handler was called")
    assert {type(item): item for item in got} == {Flight: Flight("UA", 90), Order: Order(2.5), str: "hello"}


@pytest.mark.guarantee("G59")
@pytest.mark.parametrize("order", [None, "queue", "key"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_body_that_does_not_fit_is_a_dead_letter_at_once(
    backend: Backend, producer: Producer, order: Order_ | None, is_async: bool
) -> None:
    app, got = App(NOWHERE), []

    def handle(flight: Flight) -> None:
        got.append(flight)

    async def handle_later(flight: Flight) -> None:
        got.append(flight)

    app.handler("t", group="g", order=order)(handle_later if is_async else handle)
    producer.send(Message("t", b"[" * 100_000), "one queue")
    producer.send(Message("t", Flight("UA", 1)), "one queue")
    with consuming(backend, app) as consumer:
        wait_for(lambda: got and is_finished(backend), "the good one is handled")
        assert consumer.counters.failed == 1
    (letter,) = Reader(backend).tail("%DLQ%g", start="earliest", follow=False)
    assert "rmqclient.errors.BodyDoesNotFit" in letter.properties["RMQ_FAILURES"]


def test_a_body_that_does_not_fit_is_retried_if_the_policy_names_that(backend: Backend, producer: Producer) -> None:
    app = App(NOWHERE)

    @app.handler("t", group="g", retry=RetryPolicy(delay_levels=(1,), retry_on=(BodyDoesNotFit, ValueError)))
    def handle(flight: Flight) -> None: ...

    producer.send(Message("t", b"[]"))
    with consuming(backend, app) as consumer:
        wait_for(lambda: consumer.counters.failed >= 2, "it is tried again")


def test_a_body_that_does_not_fit_leaves_the_others_of_its_batch(backend: Backend, producer: Producer) -> None:
    app, got = App(NOWHERE), []

    @app.handler("t", group="g", batch=Batch(10))
    def handle(flights: list[Flight]) -> None:
        got.extend(flights)

    for body in (b"[]", Flight("UA", 1)):
        producer.send(Message("t", body), "one queue")
    with consuming(backend, app) as consumer:
        wait_for(lambda: got and is_finished(backend), "the good one is handled")
        assert consumer.counters.failed == 1
    assert len(list(Reader(backend).tail("%DLQ%g", start="earliest", follow=False))) == 1


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ConsumerConfig(max_span=10, batch_messages=4), FlowControl.SPAN),
        (ConsumerConfig(max_messages=8, batch_messages=4), FlowControl.MESSAGES),
        (ConsumerConfig(max_bytes=1_000, batch_messages=4), FlowControl.BYTES),
    ],
)
def test_a_queue_at_a_limit_takes_no_more(
    backend: Backend, producer: Producer, limits: ConsumerConfig, reason: FlowControl
) -> None:
    app, begun, go_on = App(NOWHERE), [], threading.Event()

    @app.handler("t", group="g", threads=3)
    def handle(message: ReceivedMessage) -> None:
        begun.append(message.queue_offset)
        if reason is not FlowControl.SPAN or message.queue_offset == 0:
            go_on.wait(10)

    producer.create_topic("t", 1)
    for _ in range(200):
        producer.send(Message("t", bytes(100)))
    with consuming(backend, app, limits) as consumer:
        (subscription,) = consumer.subscriptions
        wait_for(lambda: [queue.flow_control for queue in subscription.delivery.queues] == [reason], "the limit is met")
        most = max(begun)
        go_on.set()
        wait_for(lambda: is_finished(backend), "all are finished once the slow ones are")
    assert most < 20


def test_a_slow_message_holds_the_offset_and_no_other_message(backend: Backend, producer: Producer) -> None:
    app, go_on, handled = App(NOWHERE), threading.Event(), Counter[int]()

    @app.handler("t", group="g", threads=2)
    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            go_on.wait(10)
        handled[message.queue_offset] += 1

    producer.create_topic("t", 1)
    for _ in range(100):
        producer.send(Message("t", b""))
    one_by_one = ConsumerConfig(batch_messages=1)
    with consuming(backend, app, one_by_one):
        wait_for(lambda: len(handled) == 99, "all others are handled")
        (queue,) = Admin(backend).lag("g")
        assert (queue.committed_offset, queue.acknowledged_ahead) == (0, 99)
        go_on.set()
        wait_for(lambda: is_finished(backend), "the offset jumps over all")
    assert set(handled.values()) == {1}


def test_what_is_acknowledged_out_of_order_stays_so_over_a_close(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("kept") / "store"
    app, handled, go_on = App(root), Counter[int](), threading.Event()
    attempts: list[int] = []

    @app.handler("t", group="g", threads=2)
    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            attempts.append(message.delivery_attempt)
            if len(attempts) == 1:
                go_on.wait(30)
                return
        handled[message.queue_offset] += 1

    with open_store(root) as store, Producer(store) as producer:
        producer.create_topic("t", 1)
        for _ in range(50):
            producer.send(Message("t", b""))
        consumer = PushConsumer(store, app.handlers, config=ConsumerConfig(batch_messages=1))
        consumer.start()
        wait_for(lambda: len(handled) == 49, "all but the slow one are handled")
        consumer.stop_taking()
        assert consumer.drain(0.1) == 1
        consumer.close()
    with open_store(root) as store, consuming(store, app, QUICK):
        wait_for(lambda: is_finished(store), "the last one is handled")
    assert handled == dict.fromkeys(range(50), 1)
    assert attempts == [1, 1], "a call that the end of its consumer leaves behind is no attempt"
    go_on.set()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_whose_acknowledgement_has_to_wait_is_not_handled_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    # Given a handler, and somebody who keeps the mutex that its acknowledgement needs for longer than one waits
    app, calls = App(tmp_path), Counter[bytes]()
    entered, leave = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        calls[message.body] += 1
        entered.set()
        leave.wait(10)

    async def handle_later(message: ReceivedMessage) -> None:
        handle(message)

    app.handler("t", group="g")(handle_later if is_async else handle)
    with open_store(tmp_path, StoreConfig(lock_timeout_ms=50)) as store, Producer(store) as producer:
        producer.create_topic("t", 1)
        producer.send(Message("t", b"one"))
        with consuming(store, app):
            assert entered.wait(10)
            (slot,) = store.groups
            with slot.locked(1_000):
                leave.set()
                wait_for(lambda: "acknowledging message 0" in caplog.text, "the first try has given up")

            # Then it is acknowledged afterwards, and the thread goes on with the next one
            producer.send(Message("t", b"two"))
            wait_for(lambda: is_finished(store), "both are acknowledged")
    assert calls == {b"one": 1, b"two": 1}


def test_a_message_that_keeps_its_thread_holds_up_no_other_one(tmp_path: Path) -> None:
    # Given more messages in one queue than one batch has, and two threads
    handled: set[bytes] = set()
    last = threading.Event()
    app = App(tmp_path / "store")

    @app.handler("t", group="g", threads=2)
    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            assert last.wait(30), "the others are not handled while this one waits"
        handled.add(message.body)
        if len(handled) == 99:
            last.set()

    with open_store(tmp_path / "store") as store:
        with Producer(store) as producer:
            producer.create_topic("t", 1)
            producer.send_batch([Message("t", str(number).encode()) for number in range(100)])
        consumer = PushConsumer(store, app.handlers)
        consumer.start()
        wait_for(lambda: len(handled) == 100, "all are handled")
        wait_for(lambda: consumer.subscriptions[0].delivery.queues[0].in_flight == 0, "all are accounted for")
        assert consumer.counters.handled == 100
        consumer.close()
