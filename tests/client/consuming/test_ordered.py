"""One message of a queue after the other: order, suspension, attempts, dead letters, batches, in one process."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, Suspend
from rmqclient.admin import Admin
from rmqclient.backend import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.delivery.process_queue import FlowControl
from rmqclient.failures.retry import RetryPolicy
from rmqclient.store import MessageQueue, MessageStore, open_store
from tests.client.conftest import NOWHERE, consuming, wait_for
from tests.client.consuming.test_delivery import is_finished

SHORT = ConsumerConfig(suspend_ms=20)
LONGEST_PAUSE_MS = 30_000
"""Longer than a test waits: who kept it would be noticed."""


def send(producer: Producer, count: int, queues: int = 4) -> None:
    producer.create_topic("t", queues)
    for number in range(count):
        producer.send(Message("t", b"%d" % number), f"key {number % 16}")


@pytest.mark.parametrize("is_async", [False, True])
def test_each_queue_is_handled_in_order_by_one_thread_at_a_time_and_queues_side_by_side(
    backend: Backend, producer: Producer, is_async: bool
) -> None:
    app, seen = App(NOWHERE), defaultdict(list)
    running: defaultdict[int, int] = defaultdict(int)
    together = threading.Barrier(2)

    def handle(message: ReceivedMessage) -> None:
        running[message.queue_id] += 1
        assert running[message.queue_id] == 1
        if message.queue_offset == 0 and message.queue_id < 2:
            together.wait(10)
        seen[message.queue_id].append(message.queue_offset)
        running[message.queue_id] -= 1

    async def handle_async(message: ReceivedMessage) -> None:
        await asyncio.to_thread(handle, message)  # all coroutines share one loop, which must not be blocked

    send(producer, 800)
    app.handler("t", group="g", threads=4, order="queue")(handle_async if is_async else handle)
    with consuming(backend, app) as consumer:
        wait_for(lambda: is_finished(backend), "all are acknowledged")
        assert consumer.counters.failed == 0
    assert sum(map(len, seen.values())) == 800
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())


def test_a_failing_message_suspends_its_queue_and_no_other(backend: Backend, producer: Producer) -> None:
    app, calls, failing = App(NOWHERE), [], threading.Event()
    failing.set()

    @app.handler("t", group="g", order="queue")
    def handle(message: ReceivedMessage) -> None:
        calls.append((message.queue_id, message.queue_offset, message.delivery_attempt))
        if (message.queue_id, message.queue_offset) == (1, 10) and failing.is_set():
            raise RuntimeError("not yet")

    producer.create_topic("t", 3)
    for number in range(60):
        producer.send(Message("t", b"%d" % number), queue_of(producer, number % 3))
    with consuming(backend, app, SHORT) as consumer:
        (subscription,) = consumer.subscriptions
        wait_for(lambda: sum(call[:2] == (1, 10) for call in calls) >= 4, "it came again")
        wait_for(lambda: sum(call[0] != 1 for call in calls) == 40, "the other queues are handled to their end")
        assert max(offset for queue_id, offset, _ in calls if queue_id == 1) == 10
        wait_for(lambda: subscription.delivery.queues[1].flow_control is FlowControl.SUSPENDED, "the state is shown")
        failing.clear()
        wait_for(lambda: is_finished(backend), "all are acknowledged")
        wait_for(lambda: consumer.counters.handled == 60, "each is counted once")
    mine = [call[1:] for call in calls if call[0] == 1]
    failures = sum(offset == 10 for offset, _ in mine)
    assert mine == [
        *((offset, 1) for offset in range(10)),
        *((10, attempt) for attempt in range(1, failures + 1)),
        *((offset, 1) for offset in range(11, 20)),
    ]


@pytest.mark.parametrize(
    ("failures", "suspend_ms", "least_s"),
    [
        pytest.param([RuntimeError("not yet")], 100, [0.1], id="settings"),
        pytest.param([Suspend(0.0), Suspend(0.2)], LONGEST_PAUSE_MS, [0.01, 0.2], id="handler"),
    ],
)
def test_the_pause_is_the_one_of_the_settings_or_what_the_handler_asks_for(
    backend: Backend, producer: Producer, failures: list[Exception], suspend_ms: int, least_s: list[float]
) -> None:
    app, times, left = App(NOWHERE), [], iter(failures)

    @app.handler("t", group="g", order="queue")
    def handle(_: ReceivedMessage) -> None:
        times.append(time.monotonic())
        for failure in left:
            raise failure

    producer.send(Message("t", b""))
    with consuming(backend, app, ConsumerConfig(suspend_ms=suspend_ms)):
        wait_for(lambda: is_finished(backend), "the last attempt is acknowledged")
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert [pause >= least for pause, least in zip(pauses, least_s, strict=True)] == [True] * len(least_s)


def test_without_a_policy_a_message_is_tried_for_ever_and_with_one_it_becomes_a_dead_letter(
    backend: Backend, producer: Producer
) -> None:
    app, attempts, buried = App(NOWHERE), defaultdict(list), []

    @app.handler("t", group="patient", order="queue")
    def handle(message: ReceivedMessage) -> None:
        attempts["patient"].append(message.delivery_attempt)
        if message.body == b"bad" and message.delivery_attempt <= 20:
            raise RuntimeError("not yet")

    @app.handler("t", group="strict", order="queue", retry=RetryPolicy(max_retries=2))
    def handle_strictly(message: ReceivedMessage) -> None:
        attempts["strict"].append(message.delivery_attempt)
        if message.body == b"bad":
            raise RuntimeError("never")

    @app.handler("%DLQ%strict", group="undertaker")
    def bury(message: ReceivedMessage) -> None:
        buried.append((message.body, message.properties["RETRY_TOPIC"], message.properties["RMQ_FAILURES"]))

    producer.create_topic("t", 1)
    for body in (b"bad", b"good"):
        producer.send(Message("t", body))
    with consuming(backend, app, ConsumerConfig(suspend_ms=10)):
        wait_for(lambda: is_finished(backend, "patient") and is_finished(backend, "strict"), "both are done")
        wait_for(lambda: buried, "the dead letter is there")
    assert attempts == {"patient": [*range(1, 22), 1], "strict": [1, 2, 3, 1]}
    ((body, topic, failures),) = buried
    assert (body, topic) == (b"bad", "t")
    assert "never" in failures


def test_an_exception_that_the_policy_does_not_retry_makes_a_dead_letter_at_once(
    backend: Backend, producer: Producer
) -> None:
    app, attempts = App(NOWHERE), []

    @app.handler("t", group="g", order="queue", retry=RetryPolicy(dead_letter_on=(ValueError,)))
    def handle(message: ReceivedMessage) -> None:
        attempts.append((message.body, message.delivery_attempt))
        if message.body == b"bad":
            raise ValueError("malformed")

    producer.create_topic("t", 1)
    for body in (b"bad", b"good"):
        producer.send(Message("t", body))
    with consuming(backend, app):
        wait_for(lambda: is_finished(backend), "both are done")
    assert attempts == [(b"bad", 1), (b"good", 1)]


def test_attempts_are_counted_on_by_the_next_owner(backend: Backend, producer: Producer) -> None:
    app, attempts = App(NOWHERE), []

    @app.handler("t", group="g", order="queue")
    def handle(message: ReceivedMessage) -> None:
        attempts.append(message.delivery_attempt)
        if message.delivery_attempt <= 6:
            raise RuntimeError("not yet")

    producer.send(Message("t", b""))
    for seen in (2, 4):
        with consuming(backend, app, SHORT):
            wait_for(partial(lambda least: len(attempts) >= least, seen), "some attempts")
    with consuming(backend, app, SHORT):
        wait_for(lambda: is_finished(backend), "it is done")
        producer.send(Message("t", b""))
        wait_for(lambda: attempts[6:8] == [7, 1], "the next message begins with its first attempt")
    assert attempts[:8] == [1, 2, 3, 4, 5, 6, 7, 1]


def test_a_queue_whose_order_is_kept_is_not_handed_over_while_its_handler_runs(
    store: MessageStore, producer: Producer
) -> None:
    # Given a handler that runs for longer than a queue is drained
    app, begun, go_on = App(store.root), threading.Event(), threading.Event()

    @app.handler("t", group="g", order="queue")
    def handle(message: ReceivedMessage) -> None:
        begun.set()
        go_on.wait(10)

    producer.create_topic("t", 1)
    for _ in range(3):
        producer.send(Message("t", b""))
    with consuming(store, app, ConsumerConfig(drain_ms=1, liveness_interval_ms=10)) as consumer:
        assert begun.wait(10)
        (subscription,) = consumer.subscriptions
        (queue,) = subscription.delivery.queues

        (member,) = store.members().roll.all()

        # When a member with the first claim on the queue joins
        other = store.members().join("g", "t", "#first", subscription.handler.subscription)
        wait_for(lambda: queue.revoked, "the queue is being given up")
        slot = store.groups.find_or_add("g", store.topics.slot(queue.queue), 0)
        epoch = slot.load("epoch")
        time.sleep(0.15)  # many looks after the drain; nothing is to happen in them
        assert (slot.load("owner"), slot.load("epoch")) == (member.slot + 1, epoch)

        # Then the queue is released when the message has ended, and no other was begun
        go_on.set()
        wait_for(lambda: slot.load("owner") == 0, "it is released")
        assert slot.committed_offset == 1
        other.leave()


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_consumer_that_is_closed_while_an_ordered_handler_runs_keeps_its_queue(
    store: MessageStore, producer: Producer, order: Literal["queue", "key"]
) -> None:
    app, begun, go_on = App(store.root), threading.Event(), threading.Event()

    @app.handler("t", group="g", order=order)
    def handle(message: ReceivedMessage) -> None:
        begun.set()
        go_on.wait(10)

    producer.send(Message("t", b""), "k")
    with consuming(store, app) as consumer:
        assert begun.wait(10)
        (subscription,) = consumer.subscriptions
        (held,) = [queue for queue in subscription.delivery.queues if queue.in_flight]
        consumer.stop_taking()
        assert consumer.drain(0.01) == 1
        consumer.close()
        (member,) = store.members().roll.all()
        slot = store.groups.find_or_add("g", store.topics.slot(held.queue), 0)
        assert slot.load("owner") == member.slot + 1
        assert store.members().slots.is_alive(member.slot, member.incarnation)
        go_on.set()
        wait_for(lambda: slot.committed_offset == 1, "its acknowledgement is taken")


def test_a_filter_and_an_order_go_together(backend: Backend, producer: Producer) -> None:
    app = App(NOWHERE)
    seen: list[int] = []
    failed: list[int] = []

    @app.handler("t", group="g", order="queue", tags="b")
    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 31 and not failed:
            failed.append(message.queue_offset)
            raise RuntimeError("not yet")
        seen.append(message.queue_offset)

    producer.create_topic("t", 1)
    for number in range(100):
        producer.send(Message("t", b"", tags="ab"[number % 2]))
    with consuming(backend, app, SHORT):
        wait_for(lambda: is_finished(backend), "all are done")
    assert seen == list(range(1, 100, 2))


def queue_of(producer: Producer, queue_id: int) -> str:
    """Return a sharding key of a queue of topic ``t``."""
    return SHARDING_KEYS[queue_id]


SHARDING_KEYS = ["0", "1", "2"]
"""Java hashes 48, 49 and 50: with three queues each has one."""


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_seek_lets_the_running_message_of_an_ordered_queue_end_before_another_one_begins(
    backend: Backend, producer: Producer, order: Literal["queue", "key"]
) -> None:
    app, begun, go_on = App(NOWHERE), threading.Event(), threading.Event()
    running: list[int] = []
    handled: list[int] = []

    @app.handler("t", group="g", order=order, threads=2)
    def handle(message: ReceivedMessage) -> None:
        running.append(message.queue_offset)
        assert len(running) == 1
        begun.set()
        go_on.wait(10)
        running.clear()
        handled.append(message.queue_offset)

    producer.create_topic("t", 1)
    producer.send_batch([Message("t", b"")] * 3, "one key")
    with consuming(backend, app, ConsumerConfig(liveness_interval_ms=10)) as consumer:
        assert begun.wait(10)
        Admin(backend).seek("g", "t", "earliest")
        wait_for(lambda: not consumer.queues["t@g"], "the queue is lost")
        time.sleep(0.15)  # many looks at the free queue; nothing is to happen in them
        go_on.set()
        wait_for(lambda: len(handled) == 4, "all come again")
    assert handled == [0, 0, 1, 2]
    assert consumer.counters.failed == 0


@pytest.mark.guarantee("G23")
@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_handler_that_outlives_its_consumer_keeps_its_queue_and_no_other(
    tmp_path: Path, order: Literal["queue", "key"]
) -> None:
    old, new, begun, go_on = App(tmp_path / "store"), App(tmp_path / "store"), threading.Event(), threading.Event()
    events: list[str] = []

    @old.handler("t", group="g", order=order)
    def handle_slowly(message: ReceivedMessage) -> None:
        begun.set()
        go_on.wait(20)
        events.append(f"old ends {message.body.decode()}")

    new.handler("t", group="g", order=order)(lambda message: events.append(f"new has {message.body.decode()}"))
    consumer = PushConsumer(
        tmp_path / "store", old.handlers, config=ConsumerConfig(liveness_interval_ms=40), create=True
    )
    with consumer, old.producer() as producer:
        producer.create_topic("t", 3)
        producer.send_batch([Message("t", b"0"), Message("t", b"1")], queue_of(producer, 0))
        assert begun.wait(10)
        assert consumer.stop(0.01) == 1
        producer.send(Message("t", b"other queue"), queue_of(producer, 1))
    with new.running(), open_store(tmp_path / "store") as store:
        kept = store.groups.find("g", store.topics.slot(MessageQueue("t", 0)))
        assert kept is not None
        leased_until = kept.load("lease_until")
        wait_for(lambda: events == ["new has other queue"], "another member has the queues where nothing runs")
        wait_for(lambda: kept.load("lease_until") > leased_until, "the lease is renewed")
        assert events == ["new has other queue"]
        go_on.set()
        wait_for(lambda: len(events) == 3, "the other member goes on")
    assert events[1:] == ["old ends 0", "new has 1"]
    wait_for(lambda: not (tmp_path / "store" / "abort").exists(), "the store is closed when the handler has ended")


def test_a_call_that_is_cancelled_with_its_event_loop_is_no_dead_letter(tmp_path: Path) -> None:
    app = App(tmp_path / "store")

    async def main() -> None:
        begun = asyncio.Event()

        @app.handler("t", group="g", order="queue", retry=RetryPolicy(retry_on=(ConnectionError,)))
        async def handle(_: ReceivedMessage) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with app.serving(timeout=0.01):
            with app.producer() as producer:
                producer.send("t", b"")
            await begun.wait()

    asyncio.run(main())
    wait_for(lambda: not (tmp_path / "store" / "abort").exists(), "the call has ended, and the store is closed")
    with open_store(tmp_path / "store") as store:
        assert "%DLQ%g" not in store.topics.topics()
