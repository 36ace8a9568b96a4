"""One message of a sharding key after the other, keys side by side, in one process."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, Suspend
from rmqclient.backend import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.process_queue import FlowControl
from rmqclient.failures.retry import RetryPolicy
from tests.client.conftest import NOWHERE, consuming, wait_for
from tests.client.consuming.test_delivery import is_finished

SHORT = ConsumerConfig(suspend_ms=20)


@pytest.mark.parametrize("is_async", [False, True])
def test_each_key_is_handled_in_order_by_one_thread_at_a_time(
    backend: Backend, producer: Producer, is_async: bool
) -> None:
    app, seen, running = App(NOWHERE), defaultdict(list), set()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)

    def handle(message: ReceivedMessage) -> None:
        key = message.sharding_key
        assert key not in running, f"two messages of key {key} at once"
        running.add(key)
        if message.queue_offset % 7 == 0:
            time.sleep(0.0005)  # lets another thread go on
        seen[key].append(int(message.body))
        running.discard(key)

    async def handle_async(message: ReceivedMessage) -> None:
        handle(message)

    app.handler("t", group="g", threads=8, order="key")(handle_async if is_async else handle)
    producer.create_topic("t", 2)
    for number in range(1_500):
        producer.send(Message("t", b"%d" % number), str(choose.randrange(40)))
    with consuming(backend, app) as consumer:
        wait_for(lambda: is_finished(backend), "all are acknowledged")
        wait_for(lambda: consumer.counters.handled == 1_500, "each is counted once")
        assert consumer.counters.failed == 0
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_keys_of_one_queue_run_side_by_side_and_so_do_messages_without_a_key(
    backend: Backend, producer: Producer
) -> None:
    app, together = App(NOWHERE), threading.Barrier(4)

    @app.handler("t", group="g", threads=4, order="key")
    def handle(message: ReceivedMessage) -> None:
        together.wait(10)

    producer.create_topic("t", 1)
    for key in ("a", "b", None, None):
        producer.send(Message("t", b""), key)
    with consuming(backend, app) as consumer:
        wait_for(lambda: is_finished(backend), "four handlers met")
        assert consumer.counters.failed == 0


def test_a_failing_message_holds_its_key_and_no_other(backend: Backend, producer: Producer) -> None:
    app, calls, failing = App(NOWHERE), [], threading.Event()
    failing.set()

    @app.handler("t", group="g", threads=4, order="key")
    def handle(message: ReceivedMessage) -> None:
        calls.append((message.sharding_key, int(message.body), message.delivery_attempt))
        if message.body == b"10" and failing.is_set():
            raise (RuntimeError("not yet") if message.delivery_attempt % 2 else Suspend(0))

    producer.create_topic("t", 1)
    for number in range(100):
        producer.send(Message("t", b"%d" % number), "abcde"[number % 5])
    with consuming(backend, app, SHORT):
        wait_for(lambda: len([1 for key, *_ in calls if key != "a"]) == 80, "the other keys are handled to their end")
        wait_for(lambda: sum(number == 10 for _, number, _ in calls) >= 4, "it came again")
        assert max(number for key, number, _ in calls if key == "a") == 10
        failing.clear()
        wait_for(lambda: is_finished(backend), "all are acknowledged")
    mine = [call[1:] for call in calls if call[0] == "a"]
    failures = sum(number == 10 for number, _ in mine)
    assert mine == [(0, 1), (5, 1), *((10, attempt + 1) for attempt in range(failures))] + [
        (number, 1) for number in range(15, 100, 5)
    ]


def test_the_pause_of_a_key_is_kept(backend: Backend, producer: Producer) -> None:
    app, times = App(NOWHERE), []

    @app.handler("t", group="g", threads=2, order="key")
    def handle(message: ReceivedMessage) -> None:
        times.append(time.monotonic())
        if message.delivery_attempt == 1:
            raise RuntimeError("not yet")
        if message.delivery_attempt == 2:
            raise Suspend(0.2)

    producer.send(Message("t", b""), "k")
    with consuming(backend, app, ConsumerConfig(suspend_ms=100)):
        wait_for(lambda: is_finished(backend), "the third attempt is acknowledged")
    first, second, third = times
    assert second - first >= 0.1
    assert third - second >= 0.2


def test_a_held_key_stops_its_queue_at_the_limits_and_the_state_says_so(backend: Backend, producer: Producer) -> None:
    app, calls, failing = App(NOWHERE), [], threading.Event()
    failing.set()

    @app.handler("t", group="g", threads=2, order="key")
    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0 and failing.is_set():
            raise RuntimeError("not yet")
        calls.append(message.queue_offset)

    producer.create_topic("t", 1)
    for number in range(2_600):
        producer.send(Message("t", b""), "held" if number == 0 else str(number % 50))
    with consuming(backend, app, SHORT) as consumer:
        (queue,) = consumer.subscriptions[0].delivery.queues
        wait_for(lambda: queue.flow_control is FlowControl.SPAN, "the span is at its limit")
        wait_for(lambda: len(calls) >= 1_999, "all others in the span are handled")
        assert max(calls) <= 2_000
        failing.clear()
        wait_for(lambda: is_finished(backend), "all are acknowledged")
    assert sorted(calls) == list(range(2_600))


def test_one_held_key_with_many_messages_stops_its_queue_at_the_number_of_messages(
    backend: Backend, producer: Producer
) -> None:
    app, calls, failing = App(NOWHERE), [], threading.Event()
    failing.set()

    @app.handler("t", group="g", threads=2, order="key")
    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0 and failing.is_set():
            raise RuntimeError("not yet")
        calls.append(message.queue_offset)

    producer.create_topic("t", 1)
    for _ in range(60):
        producer.send(Message("t", b""), "held")
    with consuming(backend, app, ConsumerConfig(suspend_ms=20, max_messages=20, batch_messages=8)) as consumer:
        (subscription,) = consumer.subscriptions
        wait_for(
            lambda: [queue.flow_control for queue in subscription.delivery.queues] == [FlowControl.MESSAGES],
            "the limit",
        )
        assert calls == []
        failing.clear()
        wait_for(lambda: is_finished(backend), "all are acknowledged")
    assert calls == list(range(60))


def test_after_its_last_attempt_a_message_becomes_a_dead_letter_and_its_key_goes_on(
    backend: Backend, producer: Producer
) -> None:
    app, calls, buried = App(NOWHERE), [], []

    @app.handler("t", group="g", threads=3, order="key", retry=RetryPolicy(max_retries=1))
    def handle(message: ReceivedMessage) -> None:
        calls.append((message.body, message.delivery_attempt))
        if message.body == b"bad":
            raise RuntimeError("never")

    @app.handler("%DLQ%g", group="undertaker")
    def bury(message: ReceivedMessage) -> None:
        buried.append(message.body)

    for body in (b"bad", b"good"):
        producer.send(Message("t", body), "k")
    with consuming(backend, app, SHORT):
        wait_for(lambda: is_finished(backend) and buried, "both are done")
    assert calls == [(b"bad", 1), (b"bad", 2), (b"good", 1)]
    assert buried == [b"bad"]


def test_of_a_key_whose_later_message_is_finished_only_the_earlier_one_is_delivered_again(
    backend: Backend, producer: Producer
) -> None:
    # Given a key of which a later message was acknowledged and an earlier one was not
    producer.create_topic("t", 1)
    for number in range(4):
        producer.send(Message("t", b"%d" % number), "k")
    app, failing = App(NOWHERE), threading.Event()
    failing.set()

    @app.handler("t", group="g", threads=2, order="key")
    def handle(message: ReceivedMessage) -> None:
        if failing.is_set():
            raise RuntimeError("not yet")
        calls.append(message.queue_offset)

    calls: list[int] = []
    with consuming(backend, app, SHORT) as consumer:
        (subscription,) = consumer.subscriptions
        wait_for(lambda: consumer.counters.failed, "the first one has failed")
        (queue,) = subscription.delivery.queues
        queue.grant.acknowledge_offsets([2])
    # When somebody else becomes the owner
    failing.clear()
    with consuming(backend, app):
        wait_for(lambda: is_finished(backend), "all are acknowledged")
    assert calls == [0, 1, 3]
