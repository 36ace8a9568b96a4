"""A served store, read by this library's own clients while local processes write."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rmqclient import App, Message, Producer, PullConsumer, PullStatus, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.testing import Server, serve

PATIENCE_S = 30.0


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


def test_a_pull_consumer_reads_waits_and_commits(server: Server) -> None:
    with Producer(server.root) as producer, PullConsumer(server.url, group="reports") as consumer:
        sent = producer.send(Message("orders", b"first", tags="a"), "one queue")
        (queue,) = (each for each in consumer.queues("orders") if each.queue_id == sent.queue.queue_id)
        found = consumer.pull(queue, consumer.min_offset(queue))
        assert [message.body for message in found.messages] == [b"first"]
        assert consumer.pull(queue, found.next_offset).status is PullStatus.NO_NEW_MESSAGE
        later = threading.Timer(0.1, producer.send, (Message("orders", b"second", tags="b"), "one queue"))
        later.start()
        woken = consumer.pull(queue, found.next_offset, "b", wait=PATIENCE_S)
        later.join()
        assert [message.body for message in woken.messages] == [b"second"]
        consumer.commit(queue, woken.next_offset)
        assert consumer.committed_offset(queue) == woken.next_offset == consumer.max_offset(queue)


def test_a_handler_of_an_application_gets_what_local_producers_send(server: Server) -> None:
    with Producer(server.root) as producer:
        for number in range(40):
            producer.send(Message("orders", b"%d" % number, tags="ab"[number % 2]))
    app = App(server.url)
    bodies: set[bytes] = set()
    all_came = threading.Event()

    @app.handler("orders", group="billing", tags="b")
    def handle(message: ReceivedMessage) -> None:
        bodies.add(message.body)
        if len(bodies) == 20:
            all_came.set()

    consumer = PushConsumer(server.url, app.handlers)
    consumer.start()
    try:
        assert all_came.wait(PATIENCE_S), server.log
    finally:
        consumer.close()
    assert bodies == {b"%d" % number for number in range(1, 40, 2)}
