"""Namespaces on real brokers: two tenants with one name for everything, and what stands on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rmqclient import (
    App,
    ConsumerConfig,
    Message,
    Producer,
    PullConsumer,
    ReceivedMessage,
    RetryPolicy,
    TransactionProducer,
)
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.opening import open_backend
from rmqclient.store.log.query import END_OF_TIME
from tests.interop.cluster.behaviour.place import LONG_S, eventually, nothing_more
from tests.interop.cluster.clusters import Cluster

Name = Callable[[str], str]


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_STATE_DIR", str(tmp_path / "state"))


@contextmanager
def consuming(place: str, app: App) -> Iterator[PushConsumer]:
    """Run the handlers of an application in this process."""
    consumer = PushConsumer(place, app.handlers, config=ConsumerConfig(suspend_ms=100))
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.stop_taking()
        consumer.drain(LONG_S)
        consumer.close()


def failing(topic: str, seen: list[tuple[str, str, int]], *, fails: bool) -> App:
    """Return an application that notes topic, body and attempt; ``fails`` makes each message a dead letter."""
    app = App("nowhere")

    @app.handler(topic, group=f"{topic}-group", retry=RetryPolicy(max_retries=1, delay_levels=(1,)))
    def note(message: ReceivedMessage) -> None:
        seen.append((message.topic, message.body.decode(), message.delivery_attempt))
        if fails:
            raise RuntimeError("as it is told")

    return app


def bodies(place: str, topic: str) -> list[bytes]:
    """Return what a topic has."""
    with PullConsumer(place, group="onlooker") as consumer:
        return [
            message.body
            for queue in consumer.queues(topic)
            for message in consumer.pull(queue, consumer.min_offset(queue)).messages
        ]


def test_tenants_with_the_same_names_do_not_meet(cluster: Cluster, name: Name) -> None:
    # Given two tenants with one application, of which one fails
    topic, east, west = name("Orders"), f"{cluster.url}/east", f"{cluster.url}/west?unit_name=u1"
    at_east, at_west = list[tuple[str, str, int]](), list[tuple[str, str, int]]()
    for place, text in ((east, b"e"), (west, b"w")):
        with Producer(place) as producer:
            producer.create_topic(topic, 2)
            for number in range(10):
                producer.send(Message(topic, b"%s%d" % (text, number), keys=[text.decode()]), f"{number}")
    # When both run
    with (
        consuming(east, failing(topic, at_east, fails=True)),
        consuming(west, failing(topic, at_west, fails=False)) as member,
    ):
        eventually(lambda: len(at_west) == 10, "the messages of the west")
        eventually(lambda: len(at_east) == 20, "two attempts of each message of the east")
        with Admin(west) as admin:
            (client_id,) = {info.client_id for info in admin.consumers() if info.group == f"{topic}-group"}
        assert client_id.endswith("@u1")
        assert member.queues
        nothing_more(at_west)
    # Then each got its own, retries among them
    assert {body for _, body, _ in at_west} == {f"w{number}" for number in range(10)}
    assert sorted(at_east, key=lambda seen: (seen[2], seen[1])) == [
        (shown, f"e{number}", attempt) for attempt, shown in ((1, f"east%{topic}"), (2, topic)) for number in range(10)
    ]
    # And dead letters, keys and progress are those of the tenant
    dead = f"%DLQ%{topic}-group"
    eventually(lambda: len(bodies(east, dead)) == 10, "ten dead letters of the east")
    with closing(open_backend(west)) as backend:
        assert len(backend.messages.by_key(topic, "w", 0, END_OF_TIME, 64)) == 10
        assert not backend.messages.by_key(topic, "e", 0, END_OF_TIME, 64)
    # And on the wire the names have the namespace
    with closing(open_backend(cluster.url)) as backend:
        topics = set(backend.topics.names())
    assert {f"east%{topic}", f"west%{topic}", f"%RETRY%east%{topic}-group", f"%DLQ%east%{topic}-group"} <= topics
    assert topic not in topics


def test_a_transaction_and_a_request_of_a_tenant(cluster: Cluster, name: Name) -> None:
    topic, asked, place = name("Paid"), name("Prices"), f"{cluster.url}/north"
    app, seen = App("nowhere"), list[bytes]()

    @app.handler(topic, group=name("payments"))
    def note(message: ReceivedMessage) -> None:
        seen.append(message.body)

    @app.handler(asked, group=name("prices"), replies=True)
    def price(message: ReceivedMessage) -> bytes:
        return b"price of " + message.body

    with Producer(place) as producer:
        for each in (topic, asked):
            producer.create_topic(each, 2)
        with consuming(place, app), TransactionProducer(place, group=name("tills")) as till:
            with till.transaction(Message(topic, b"committed")):
                pass
            eventually(lambda: seen == [b"committed"], "the message of the transaction")
            assert producer.request(Message(asked, b"bread"), timeout=LONG_S).body == b"price of bread"
