"""Our own client over the network: the same producers as on a directory, and a directory that has what they sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Decision, Message, Producer, ReceivedMessage, TransactionProducer
from rmqclient.store import MessageStore, StoreConfig, TransactionConfig, open_store
from rmqclient.store.bodies import Compression
from rmqclient.testing import Server, serve

LONGEST_S = 20.0
QUICK = StoreConfig(transactions=TransactionConfig(timeout_ms=1, check_interval_ms=100, check_max=10_000))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", QUICK) as found:
        yield found


@pytest.fixture
def server(store: MessageStore) -> Iterator[Server]:
    with serve(store.root) as found:
        yield found


def messages(store: MessageStore, topic: str) -> list[ReceivedMessage]:
    if topic not in store.topics:
        return []
    queues = store.topics.queues(topic)
    return [store.messages.at(queue, at) for queue in queues for at in range(store.topics.max_offset(queue))]


def test_what_is_sent_over_the_network_stands_in_the_directory(server: Server, store: MessageStore) -> None:
    with Producer(server.url) as producer:
        sent = producer.send(Message("orders", b"one", tags="paid", keys=["k1"], properties={"color": "blue"}, flag=7))
    (found,) = messages(store, "orders")
    assert (found.body, found.tags, found.keys, found.flag) == (b"one", "paid", ("k1",), 7)
    assert found.properties["color"] == "blue"
    assert (found.message_id, found.queue_offset) == (sent.message_id, sent.queue_offset)
    assert sent.commit_log_offset == found.commit_log_offset


def test_a_batch_goes_to_one_queue_in_order(server: Server, store: MessageStore) -> None:
    with Producer(server.url) as producer:
        results = producer.send_batch([Message("orders", str(number).encode()) for number in range(50)])
    stored = messages(store, "orders")
    assert [message.body for message in stored] == [str(number).encode() for number in range(50)]
    assert [message.message_id for message in stored] == [result.message_id for result in results]


def test_a_compressed_body_stays_compressed(server: Server, store: MessageStore) -> None:
    with Producer(server.url, compression=Compression.ZLIB) as producer:
        producer.send(Message("orders", b"x" * 100_000))
    (found,) = messages(store, "orders")
    assert found.body == b"x" * 100_000
    assert len(found.stored_body) < 10_000


def test_a_message_with_a_delay_level_waits(server: Server, store: MessageStore) -> None:
    with Producer(server.url) as producer:
        producer.send(Message("orders", b"later"), delay_level=18)
    assert messages(store, "orders") == []
    (found,) = messages(store, "SCHEDULE_TOPIC_XXXX")
    assert found.properties["DELAY"] == "18"


def test_a_transaction_is_committed_or_rolled_back(server: Server, store: MessageStore) -> None:
    with TransactionProducer(server.url, group="makers") as producer:
        with producer.transaction(Message("orders", b"kept")):
            assert messages(store, "orders") == []
        with pytest.raises(RuntimeError), producer.transaction(Message("orders", b"dropped")):
            raise RuntimeError("the work failed")
    assert [message.body for message in messages(store, "orders")] == [b"kept"]
    assert store.transactions.pending() == []


def test_a_producer_is_asked_about_a_transaction_that_it_left(server: Server, store: MessageStore) -> None:
    asked = threading.Event()

    def check(message: ReceivedMessage) -> Decision:
        assert (message.topic, message.body) == ("orders", b"left")
        asked.set()
        return Decision.COMMIT

    with TransactionProducer(server.url, group="makers", check=check) as producer:
        producer.transaction(Message("orders", b"left")).leave()
        assert asked.wait(LONGEST_S)
    assert [message.body for message in messages(store, "orders")] == [b"left"]


def test_a_local_producer_of_the_group_is_asked_about_a_remote_transaction(server: Server, store: MessageStore) -> None:
    asked = threading.Event()

    def check(message: ReceivedMessage) -> Decision:
        assert message.body == b"left"
        asked.set()
        return Decision.ROLLBACK

    with TransactionProducer(server.url, group="makers") as remote:
        remote.transaction(Message("orders", b"left")).leave()
    with TransactionProducer(store.root, group="makers", check=check):
        assert asked.wait(LONGEST_S)
    assert store.transactions.pending() == []
    assert messages(store, "orders") == []
