"""Handlers that want some of the messages, in a running consumer."""

from __future__ import annotations

import random
import threading

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, jmespath, sql
from rmqclient.admin import Admin
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.store import MessageStore
from tests.client.conftest import consuming, wait_for


@pytest.mark.guarantee("G15")
def test_a_handler_gets_what_passes_and_its_group_is_done_with_the_rest(
    store: MessageStore, producer: Producer
) -> None:
    # Given messages of which some pass, and a limit of unfinished messages far below those that do not
    producer.create_topic("orders", 2)
    for number in range(400):
        body = {"total": number} if number % 3 else "no json"
        tags = "paid" if number % 2 else "open"
        producer.send(Message("orders", body, tags=tags, properties={"number": str(number)}), str(number))
    app = App(store.root)
    seen: list[int] = []

    @app.handler("orders", group="billing", tags="paid", filter=(sql("number >= 100"), jmespath("total < `200`")))
    def bill(message: ReceivedMessage) -> None:
        seen.append(int(message.properties["number"]))

    # When they are consumed
    with consuming(store, app, ConsumerConfig(max_messages=2, batch_messages=2, max_span=10)) as consumer:
        wait_for(lambda: sum(queue.lag for queue in Admin(store).lag("billing")) == 0, "everything finished")
        counts = consumer.subscriptions[0].filter.counts

    # Then the handler got exactly those that pass, once each
    assert sorted(seen) == [number for number in range(100, 200) if number % 2 and number % 3]
    assert counts.passed == len(seen)
    assert counts.looked_at == 200
    assert counts.undecided == len([number for number in range(100, 400) if number % 2 and number % 3 == 0])


def test_messages_behind_a_running_one_are_filtered_as_well(store: MessageStore, producer: Producer) -> None:
    # Given a handler that still runs with the first message
    producer.create_topic("orders", 1)
    app = App(store.root)
    begun, go_on = threading.Event(), threading.Event()

    @app.handler("orders", group="billing", filter=sql("n = 1"), threads=2)
    def bill(message: ReceivedMessage) -> None:
        begun.set()
        assert go_on.wait(10)

    with consuming(store, app):
        producer.send(Message("orders", b"", properties={"n": "1"}))
        assert begun.wait(10)

        # When others that do not pass come behind it
        for _ in range(50):
            producer.send(Message("orders", b"", properties={"n": "2"}))

        # Then they are finished while it runs, and the committed offset goes over all when it returns
        wait_for(lambda: Admin(store).lag("billing")[0].acknowledged_ahead == 50, "50 finished ahead")
        assert Admin(store).lag("billing")[0].committed_offset == 0
        go_on.set()
        wait_for(lambda: Admin(store).lag("billing")[0].committed_offset == 51, "all finished")


@pytest.mark.guarantee("G15")
def test_threads_that_acknowledge_while_another_one_skips_lose_nothing(store: MessageStore, producer: Producer) -> None:
    # Given runs of unwanted messages of any length between wanted ones
    producer.create_topic("orders", 1)
    lengths = random.Random(7).choices([0, 1, 5, 40, 200, 3_000], weights=[8, 8, 8, 4, 2, 1], k=400)
    expected = []
    for length in lengths:
        if length:
            producer.send_batch([Message("orders", b"", tags="open")] * length)
        expected.append(producer.send(Message("orders", b"", tags="paid")).queue_offset)
    app = App(store.root)
    seen: list[int] = []

    @app.handler("orders", group="billing", tags="paid", threads=4)
    def bill(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    # When several threads take, skip and acknowledge
    with consuming(store, app):
        wait_for(lambda: len(seen) >= len(expected), "all wanted ones")
        wait_for(lambda: Admin(store).lag("billing")[0].lag == 0, "everything finished")

    # Then each wanted message was handled once
    assert sorted(seen) == expected
