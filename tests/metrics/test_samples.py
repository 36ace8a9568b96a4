"""A sample says what became of each message, who has what, and how long it took."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.metrics import Sampler, by_group, by_topic, group_rates, topic_rates
from rmqclient.store import open_store
from rmqclient.store.errors import StoreUnusable
from tests.metrics.conftest import SENT, is_finished, wait_for


@pytest.mark.guarantee("G50")
def test_each_message_is_counted_once_by_what_became_of_it(handled: Sampler) -> None:
    groups = by_group(handled.sample())
    billing, audit = groups["billing", "orders"], groups["audit", "orders"]
    assert (billing.handled, billing.dead_lettered, billing.skipped, billing.retried) == (65, 10, 25, 0)
    assert (billing.failed, billing.delivered) == (10, 75)
    assert (audit.handled, audit.failed, audit.delivered) == (SENT, 0, SENT)


def test_bytes_are_those_of_the_records(handled: Sampler, root: Path) -> None:
    with open_store(root, housekeeping=False) as store:
        sizes = [
            store.messages.at(queue, offset).size
            for queue in store.topics.queues("orders")
            for offset in range(store.topics.max_offset(queue))
        ]
    sample = handled.sample()
    assert by_topic(sample)["orders"].bytes_in == sum(sizes)
    assert by_group(sample)["audit", "orders"].bytes_out == sum(sizes)


def test_the_times_of_all_calls_are_there_once_the_consumer_has_ended(handled: Sampler, root: Path) -> None:
    wait_for(lambda: sum(each.waited.total for each in handled.sample().handling) == 75 + SENT, "all are added up")
    times = {each.group: each for each in handled.sample().handling}
    assert (times["billing"].handled.total, times["billing"].failed.total) == (65, 10)
    assert times["audit"].handled.total == SENT
    assert 0 < times["audit"].handled.seconds < 60


@pytest.mark.guarantee("G50")
def test_counters_go_on_after_the_store_was_closed_and_opened(root: Path) -> None:
    # Given a store whose messages were handled, and that nobody has open
    app = App(str(root))

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        """Take it."""

    def handle(count: int) -> None:
        with Producer(root) as producer:
            for number in range(count):
                producer.send(Message("orders", b"%d" % number))
        consumer = PushConsumer(root, app.handlers)
        consumer.start()
        wait_for(lambda: is_finished(sampler.sample()), "everything is handled")
        consumer.close()

    with Producer(root) as producer:
        producer.create_topic("orders", 2)
    with Sampler(root) as sampler:
        handle(10)
        before = sampler.sample()
        assert not before.is_open

        # When it is opened again, and more are handled
        handle(5)

        # Then the counters go on
        after = sampler.sample()
    assert by_group(after)["billing", "orders"].handled == 15
    assert by_topic(after)["orders"].messages_in == 15
    assert by_topic(after)["orders"].bytes_in > by_topic(before)["orders"].bytes_in
    assert sum(each.handled.total for each in after.handling) == 15
    assert group_rates(before, after)["billing", "orders"]["handled"] > 0
    assert topic_rates(before, after)["orders"]["messages_in"] > 0


def test_what_runs_now_is_there_with_its_age(root: Path) -> None:
    app, go_on = App(str(root)), threading.Event()

    @app.handler("orders", group="slow", order="queue")
    def slow(message: ReceivedMessage) -> None:
        go_on.wait(60)

    with Producer(root) as producer:
        producer.create_topic("orders", 1)
        sent = producer.send(Message("orders", b"1"))
        producer.send(Message("orders", b"2"))
        consumer = PushConsumer(root, app.handlers)
        consumer.start()
        with Sampler(root) as sampler:
            wait_for(lambda: len(sampler.sample().calls) > 0, "a call runs")
            call = next(each for each in sampler.sample().calls if each.queue == sent.queue)
            assert (call.group, call.queue_offset, call.member.topic) == ("slow", sent.queue_offset, "orders")
            assert 0 <= call.age_s < 60
            row = next(each for each in sampler.sample().group_queues if each.queue == sent.queue)
            assert row.in_flight >= 1
            assert row.owner is not None
            go_on.set()
            wait_for(lambda: not sampler.sample().calls, "no call runs")
        consumer.close()


def test_lag_has_an_age_and_a_pause_is_shown(root: Path) -> None:
    with Producer(root) as producer:
        producer.create_topic("orders", 1)
        with Admin(root) as admin:
            admin.seek("late", "orders", "earliest")
            sent = producer.send(Message("orders", b"1"))
            admin.pause("late")
        with Sampler(root) as sampler:
            (row,) = sampler.sample().group_queues
    with open_store(root, housekeeping=False) as store:
        stored_ms = store.messages.at(sent.queue, 0).store_timestamp
    assert (row.lag, row.ready, row.in_flight, row.paused, row.owner) == (1, 1, 0, True, None)
    assert row.oldest_stored_ms == row.next_stored_ms == stored_ms


def test_a_message_that_waits_is_counted_and_its_time_is_known(root: Path) -> None:
    with Producer(root) as producer:
        producer.send(Message("orders", b"1"), delay=3_600)
        with Sampler(root) as sampler:
            wait_for(lambda: sampler.sample().timer.next_due_ms is not None, "the housekeeper knows of it")
            sample = sampler.sample()
    assert (sample.timer.waiting, sample.timer.enqueued) == (1, 1)
    assert sample.timer.next_due_ms is not None
    assert abs(sample.timer.next_due_ms - sample.wall_ms - 3_600_000) < 60_000


def test_a_message_of_a_delay_level_is_counted_and_its_time_is_known(root: Path) -> None:
    with Producer(root) as producer:
        producer.send(Message("orders", b"1"), delay_level=18)
        with Sampler(root) as sampler:
            sample = sampler.sample()
    assert (sample.timer.waiting, sample.timer.enqueued) == (1, 1)
    assert sample.timer.next_due_ms is not None
    assert abs(sample.timer.next_due_ms - sample.wall_ms - 7_200_000) < 60_000


def test_messages_that_were_finished_out_of_order_are_not_ready_when_their_member_has_gone(root: Path) -> None:
    # Given ten messages, of which the first is not finished when the member of the group ends
    app, done, go_on = App(str(root)), threading.Semaphore(0), threading.Event()

    @app.handler("orders", group="billing", threads=2)
    def bill(message: ReceivedMessage) -> None:
        if message.queue_offset == 0 and not go_on.is_set():
            go_on.wait(60)
            raise SystemExit
        done.release()

    with Producer(root) as producer:
        producer.create_topic("orders", 1)
        for number in range(10):
            producer.send(Message("orders", b"%d" % number))
        consumer = PushConsumer(root, app.handlers)
        consumer.start()
        for _ in range(9):
            assert done.acquire(timeout=60)
        with Sampler(root) as sampler:
            wait_for(lambda: sampler.sample().group_queues[0].acknowledged_ahead == 9, "nine are finished")
            with Admin(root) as admin:
                admin.pause("billing")
            consumer.close()
            go_on.set()  # too late: its queue has been given back

            # Then the others are not counted as ready
            (row,) = (each for each in sampler.sample().group_queues if each.queue.topic == "orders")
    assert row.owner is None
    assert (row.lag, row.acknowledged_ahead, row.ready) == (10, 9, 1)


def test_a_message_that_is_tried_again_is_counted_where_it_failed_and_where_it_came_again(root: Path) -> None:
    app = App(str(root))

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(0.01,)))
    def bill(message: ReceivedMessage) -> None:
        if message.delivery_attempt < 3:
            raise ValueError(message.delivery_attempt)

    with Producer(root) as producer:
        producer.create_topic("orders", 1)
        consumer = PushConsumer(root, app.handlers)
        consumer.start()
        producer.send(Message("orders", b"1"))
        with Sampler(root) as sampler:
            again = "billing", "%RETRY%billing"
            wait_for(
                lambda: (found := by_group(sampler.sample()).get(again)) is not None and found.handled == 1,
                "the third attempt",
            )
            totals = by_group(sampler.sample())
            first, copies = totals["billing", "orders"], totals[again]
        consumer.close()
    assert (first.delivered, first.failed, first.retried, first.handled) == (1, 1, 1, 0)
    assert (copies.delivered, copies.failed, copies.retried, copies.handled) == (2, 1, 1, 1)


def test_workers_that_were_started_again_are_counted(root: Path) -> None:
    with open_store(root, housekeeping=False) as store, Sampler(root) as sampler:
        workers = store.workers()
        slot = workers.claim("worker-1")
        assert sampler.sample().worker_restarts == 0
        workers.release(slot)
        workers.claim("worker-1", restarts=1)
        sample = sampler.sample()
    assert [(each.name, each.restarts) for each in sample.workers] == [("worker-1", 1)]
    assert sample.worker_restarts == 1


def test_a_directory_without_a_store_is_told(tmp_path: Path) -> None:
    with Sampler(tmp_path) as sampler, pytest.raises(StoreUnusable):
        sampler.sample()
