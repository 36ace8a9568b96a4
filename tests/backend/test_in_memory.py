"""The in-memory backend satisfies the protocols, and producers, readers and administration work on it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rmqclient import (
    Message,
    Outbox,
    Producer,
    PullConsumer,
    PullStatus,
    Relay,
    RetryPolicy,
    Table,
)
from rmqclient.admin import Admin
from rmqclient.backend import Backend
from rmqclient.consuming.reader import Reader
from rmqclient.errors import StoreClosed
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import Selection
from rmqclient.failures.failure import Failure
from rmqclient.failures.retry import Retries
from rmqclient.opening import open_backend
from tests.backend.in_memory import in_memory_backend


@pytest.fixture
def backend() -> Backend:
    return in_memory_backend()


def test_a_message_is_sent_pulled_committed_and_shown(backend: Backend) -> None:
    with Producer(backend) as producer, PullConsumer(backend, group="reports") as consumer:
        producer.create_topic("orders", 1)
        sent = producer.send(Message("orders", {"total": 3}, tags="new", keys=["7"]))
        result = consumer.pull(sent.queue, 0, tags="new")
        assert (result.status, [message.message_id for message in result.messages]) == (
            PullStatus.FOUND,
            [sent.message_id],
        )
        consumer.commit(sent.queue, 1)
        assert consumer.committed_offset(sent.queue) == 1
    assert [(lag.group, lag.lag) for lag in Admin(backend).lag("reports")] == [("reports", 0)]
    assert [message.body for message in Reader(backend).find("orders", "7")] == [b'{"total":3}']


def test_a_request_is_answered(backend: Backend) -> None:
    with Producer(backend) as asking, Producer(backend) as answering:
        reply = asking.request_async(Message("sums", b"1 + 1"), 10)
        (queue,) = [queue for queue in backend.topics.queues("sums") if backend.queues.span(queue).max_offset]
        answering.send_reply(backend.queues.message_at(queue, 0), b"2")
        assert reply.result().body == b"2"


def test_a_user_who_is_given_a_backend_leaves_it_open(backend: Backend) -> None:
    with Producer(backend) as producer:
        producer.send(Message("orders", b""))
    backend.check_usable()
    with pytest.raises(StoreClosed):
        producer.send(Message("orders", b""))


def test_a_table_follows_a_topic_from_before_it_is_made(backend: Backend) -> None:
    with Table(backend, "prices") as prices, Producer(backend) as producer:
        assert dict(prices) == {}
        producer.send(Message("prices", b"1", keys=["AAPL"]))
        prices.wait_for(producer.send(Message("prices", b"2", keys=["AAPL"])), 10)
        assert dict(prices) == {"AAPL": b"2"}
        prices.wait_for(producer.send(Message("prices", b"", keys=["AAPL"])), 10)
        assert dict(prices) == {}


def test_an_outbox_is_relayed(backend: Backend, tmp_path: Path) -> None:
    outbox = Outbox()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        outbox.create(connection)
        outbox.add(connection, Message("orders", b"7"))
        connection.commit()
    with Relay(backend, outbox, lambda: sqlite3.connect(tmp_path / "shop.db")) as relay:
        assert relay.send() == 1
    (queue,) = [queue for queue in backend.topics.queues("orders") if backend.queues.span(queue).max_offset]
    assert backend.queues.message_at(queue, 0).body == b"7"


def test_dead_letters_are_replayed_once(tmp_path: Path) -> None:
    backend = in_memory_backend(tmp_path)
    with Producer(backend) as producer:
        sent = producer.send(Message("orders", b"7"))
    failure = Failure.raised(ValueError("no number"), 1, "worker-1")
    Retries(backend, "billing", RetryPolicy(max_retries=0), "me").send_back(
        backend.queues.message_at(sent.queue, 0), failure
    )
    assert [letters.waiting for letters in dead_letters.groups(backend)] == [1]
    assert [letter.message.body for letter, _ in dead_letters.replay(backend, "billing", Selection())] == [b"7"]
    assert list(dead_letters.select(backend, "billing", Selection())) == []
    assert sum(backend.queues.span(queue).max_offset for queue in backend.topics.queues("orders")) == 2


@pytest.mark.parametrize("place", ["rmqclient://host:9876", "kafka://host"])
def test_a_url_of_another_scheme_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match=rf"no backend is known for the scheme '{place.partition(':')[0]}'"):
        open_backend(place)
