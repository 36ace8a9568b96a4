"""A store for the tests of pipelines: topics, keys that come again, dead letters, committed offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqclient import Message, Producer, PullConsumer, ReceivedMessage, RetryPolicy
from rmqclient.failures.failure import Failure
from rmqclient.failures.retry import Retries
from rmqclient.opening import open_backend
from rmqclient.store import MessageStore, open_store
from tests.support.written import SMALL

MESSAGES = 240
ORDERS, PAYMENTS = "orders", "payments"
GROUPS = ("billing", "shipping")


def make_store(root: Path) -> Path:
    """Send messages with 30 keys, some of them without a key, a tag or a body, and let some become dead letters."""
    with open_store(root, SMALL, housekeeping=False) as store:
        with Producer(store) as producer:
            for number in range(MESSAGES):
                send(producer, number)
        give_up(store)
        with PullConsumer(store, group="billing") as consumer:
            for number, queue in enumerate(store.topics.queues(ORDERS)):
                consumer.commit(queue, number)
    return root


def send(producer: Producer, number: int) -> None:
    """Send message ``number``."""
    key = f"user-{number * 7 % 30}" if number % 11 else None
    message = Message(
        PAYMENTS if number % 3 == 2 else ORDERS,
        b"" if number % 13 == 0 else b"message %d" % number,
        tags=f"tag{number % 3}" if number % 5 else None,
        keys=(key,) if key else (),
        properties={"number": str(number)},
    )
    producer.send(message, key)


def give_up(store: MessageStore) -> None:
    """Make every tenth order a dead letter of a group."""
    for number, message in enumerate(messages_of(store, ORDERS)):
        if number % 10 == 0:
            group = GROUPS[number // 10 % 3 == 0]
            retries = Retries(open_backend(store), group, RetryPolicy(max_retries=0), "worker-1")
            retries.send_back(message, failure(number // 10))


def failure(number: int) -> Failure:
    """Return what a handler raised."""
    try:
        bill(number) if number % 4 else ship(number)
    except (ValueError, TimeoutError) as error:
        return Failure.raised(error, number % 3 + 1, "worker-1")
    raise AssertionError


def bill(number: int) -> None:
    raise [ValueError("no number"), TimeoutError("too slow"), ValueError("negative")][number % 3]


def ship(_: int) -> None:
    raise TimeoutError("no answer")


def messages_of(store: MessageStore, topic: str) -> list[ReceivedMessage]:
    """Return the messages of a topic, queue by queue."""
    return [
        store.messages.at(queue, offset)
        for queue in store.topics.queues(topic)
        for offset in range(store.topics.min_offset(queue), store.topics.max_offset(queue))
    ]


def read_all(root: Path, *topics: str) -> list[ReceivedMessage]:
    """Return the messages of some topics, or of all of them, as a plain loop finds them."""
    with open_store(root, housekeeping=False) as store:
        return list(_read(store, topics or tuple(store.topics.topics())))


def _read(store: MessageStore, topics: tuple[str, ...]) -> Iterator[ReceivedMessage]:
    for topic in topics:
        yield from messages_of(store, topic)
