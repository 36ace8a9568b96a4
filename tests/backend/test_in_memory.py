"""The in-memory backend satisfies the protocols, and producers, readers and administration work on it."""

from __future__ import annotations

import pytest

from rmqclient import Message, Producer, PullConsumer, PullStatus, Table
from rmqclient.admin import Admin
from rmqclient.backend import Backend
from rmqclient.consuming.reader import Reader
from rmqclient.errors import StoreClosed
from rmqclient.opening import open_backend
from tests.backend.in_memory import InMemoryBackend


@pytest.fixture
def backend() -> Backend:
    return InMemoryBackend()


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
        (queue,) = [queue for queue in backend.queues("sums") if backend.span(queue).max_offset]
        answering.send_reply(backend.message_at(queue, 0), b"2")
        assert reply.result().body == b"2"


def test_a_user_who_is_given_a_backend_leaves_it_open(backend: Backend) -> None:
    with Producer(backend) as producer:
        producer.send(Message("orders", b""))
    backend.check_usable()
    with pytest.raises(StoreClosed):
        producer.send(Message("orders", b""))


def test_what_reads_the_files_of_a_store_says_that_it_needs_one(backend: Backend) -> None:
    with pytest.raises(ValueError, match="a table needs a store of this host"):
        Table(backend, "prices")


@pytest.mark.parametrize("place", ["rmqclient://host:9876", "kafka://host"])
def test_a_url_of_another_scheme_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match=rf"no backend is known for the scheme '{place.partition(':')[0]}'"):
        open_backend(place)
