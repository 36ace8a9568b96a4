"""What a producer is promised, at every place."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from rmqclient import App, Compression, Decision, Message, Producer, PullConsumer, ReceivedMessage, TransactionProducer
from rmqclient.errors import MessageRejected, NotOnCluster, QueueError, RequestTimeout, UnknownTopic
from tests.interop.cluster.behaviour.place import CLUSTERS, LONG_S, SERVE, Place, eventually, nothing_more
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3


def collecting(place: Place, topic: str) -> tuple[App, list[ReceivedMessage]]:
    """Return an application that collects the messages of a topic, and what it has collected."""
    app, seen = App(place.address), list[ReceivedMessage]()

    @app.handler(topic, group=place.name("collecting"))
    def collect(message: ReceivedMessage) -> None:
        seen.append(message)

    return app, seen


def test_a_message_is_received_as_it_was_sent(place: Place) -> None:
    topic = place.topic("Sent")
    app, seen = collecting(place, topic)
    message = Message(topic, b"\x00body\xff", tags="paid", keys=["k1", "k2"], properties={"colour": "blau ü"}, flag=7)
    with Producer(place.address, group=place.name("senders")) as producer:
        sent = producer.send(message, "customer 4")
        assert sent.queue in producer.create_topic(topic, 4)
    with place.running(app):
        eventually(lambda: seen, "the message")
        nothing_more(seen)
    (found,) = seen
    assert (found.topic, found.body, found.tags, found.keys, found.flag) == (
        topic,
        b"\x00body\xff",
        "paid",
        ("k1", "k2"),
        7,
    )
    assert found.properties["colour"] == "blau ü"
    assert found.sharding_key == "customer 4"
    assert found.message_id == sent.message_id
    assert (found.queue, found.queue_offset) == (sent.queue, sent.queue_offset)
    assert found.delivery_attempt == 1
    assert abs(found.born_timestamp - time.time() * 1000) < 60_000


def test_the_first_message_makes_its_topic(place: Place) -> None:
    topic = place.name("New")
    place.send(topic, b"first")
    assert [message.body for message in place.stored(topic)] == [b"first"]
    with PullConsumer(place.address, group=place.name("g")) as consumer, pytest.raises(UnknownTopic, match="Never"):
        consumer.queues(place.name("Never"))


def test_messages_of_one_sharding_key_are_in_one_queue_in_order(place: Place) -> None:
    topic = place.topic("Keyed")
    with Producer(place.address) as producer:
        sent = [producer.send(Message(topic, b"%d" % number), f"key {number % 5}") for number in range(40)]
    queues = [{result.queue for result in sent[key::5]} for key in range(5)]
    assert all(len(queue) == 1 for queue in queues)
    assert len(set.union(*queues)) > 1
    for key in range(5):
        offsets = [result.queue_offset for result in sent[key::5]]
        assert offsets == sorted(set(offsets))


def test_messages_without_a_key_go_to_the_queues_in_turn(place: Place) -> None:
    topic = place.topic("InTurn")
    with Producer(place.address) as producer:
        queues = producer.create_topic(topic, 4)
        sent = [producer.send(Message(topic, b"x")).queue for _ in range(2 * len(queues))]
    assert sorted(sent, key=lambda queue: queue.sort_key) == sorted(2 * queues, key=lambda queue: queue.sort_key)


def test_a_batch_stands_in_one_queue_without_a_gap(place: Place) -> None:
    topic = place.topic("Batch")
    app, seen = collecting(place, topic)
    messages = [Message(topic, b"%d" % number, keys=[f"k{number}"]) for number in range(100)]
    with Producer(place.address) as producer:
        results = producer.send_batch(messages)
    assert {result.queue for result in results} == {results[0].queue}
    first = results[0].queue_offset
    assert [result.queue_offset for result in results] == list(range(first, first + 100))
    assert len({result.message_id for result in results}) == 100
    with place.running(app):
        eventually(lambda: len(seen) == 100, "every message of the batch")
        nothing_more(seen)
    by_offset = sorted(seen, key=lambda message: message.queue_offset)
    assert [message.body for message in by_offset] == [message.body for message in messages]
    assert [message.message_id for message in by_offset] == [result.message_id for result in results]


def test_a_compressed_body_is_received_as_it_was_sent(place: Place) -> None:
    topic, body = place.topic("Compressed"), b"again and again " * 1_000
    with Producer(place.address, compression=Compression.ZLIB) as producer:
        producer.send(Message(topic, body))
    (found,) = place.stored(topic)
    assert found.body == body
    assert len(found.stored_body) < len(body) // 10


def test_a_message_that_is_too_large_is_refused_and_the_producer_goes_on(place: Place) -> None:
    topic = place.topic("Large")
    with Producer(place.address) as producer:
        with pytest.raises(MessageRejected):
            producer.send(Message(topic, bytes((4 << 20) + 1)))
        producer.send(Message(topic, b"small"))
    assert [message.body for message in place.stored(topic)] == [b"small"]


def test_a_message_may_have_no_body(place: Place) -> None:
    topic = place.topic("Empty")
    with Producer(place.address) as producer:
        if place.differs(BROKER_5_3_3, because="a broker of 5.x refuses a message without a body"):
            with pytest.raises(QueueError):
                producer.send(Message(topic, b"", keys=["k"]))
            return
        producer.send(Message(topic, b"", keys=["k"]))
    assert [message.body for message in place.stored(topic)] == [b""]


def test_a_delay_level_delivers_after_its_time(place: Place) -> None:
    topic = place.topic("Level")
    app, seen = collecting(place, topic)
    with place.running(app), Producer(place.address) as producer:
        begun = time.time()
        sent = producer.send(Message(topic, b"later"), delay_level=1)
        eventually(lambda: seen, "the delayed message")
        assert time.time() - begun > 0.95
        nothing_more(seen)
    assert (seen[0].body, seen[0].message_id, seen[0].topic) == (b"later", sent.message_id, topic)


def test_any_delay_delivers_after_its_time(place: Place) -> None:
    topic = place.topic("Delay")
    app, seen = collecting(place, topic)
    with place.running(app), Producer(place.address) as producer:
        message = Message(topic, b"later")
        if place.differs(
            BROKER_4_9_7, SERVE, because="a broker of 4.9 has delay levels only, so delay= and deliver_at= raise"
        ):
            with pytest.raises(NotOnCluster, match="delay_level"):
                producer.send(message, delay=2.5)
            return
        begun = time.time()
        producer.send(message, delay=2.5)
        producer.send(message, deliver_at=datetime.now(UTC) + timedelta(seconds=2.5))
        eventually(lambda: len(seen) == 2, "the delayed messages")
        assert time.time() - begun > 1.4  # a broker's timer counts whole seconds
        nothing_more(seen)


def test_a_message_that_waits_can_be_cancelled(place: Place) -> None:
    topic = place.topic("Cancelled")
    with Producer(place.address) as producer:
        if place.differs(SERVE, *CLUSTERS, because="a broker cancels no message by its id alone, so cancel() raises"):
            with pytest.raises(NotOnCluster):
                producer.cancel("7F00000100002A139A55000000000000")
            return
        sent = producer.send(Message(topic, b"never"), delay=600)
        assert producer.cancel(sent.message_id)
        assert not producer.cancel(sent.message_id)


def test_a_key_is_sent_once(place: Place) -> None:
    topic = place.topic("Once")
    with Producer(place.address) as producer:
        if place.differs(SERVE, *CLUSTERS, because="a broker keeps no key unique, so send_once() raises"):
            with pytest.raises(NotOnCluster):
                producer.send_once(Message(topic, b"once"), "order-1")
            return
        results = [producer.send_once(Message(topic, b"once"), "order-1") for _ in range(2)]
    assert [result.is_duplicate for result in results] == [False, True]
    assert len(place.stored(topic)) == 1


def test_a_transaction_is_delivered_when_it_is_committed_and_never_when_it_is_rolled_back(place: Place) -> None:
    topic = place.topic("Transaction")
    app, seen = collecting(place, topic)
    with (
        place.running(app),
        TransactionProducer(place.address, group=place.name("deciding")) as producer,
    ):
        with producer.transaction(Message(topic, b"committed")) as transaction:
            nothing_more(seen)
        with pytest.raises(KeyError), producer.transaction(Message(topic, b"rolled back")):
            raise KeyError
        eventually(lambda: seen, "the committed message")
        nothing_more(seen, for_s=1.0)
    assert [(message.body, message.message_id) for message in seen] == [(b"committed", transaction.message_id)]


def test_an_undecided_transaction_is_asked_about(place: Place) -> None:
    topic, asked = place.topic("Undecided"), []
    app, seen = collecting(place, topic)

    def check(half: ReceivedMessage) -> Decision:
        asked.append((half.topic, half.body, half.message_id))
        return Decision.COMMIT

    with (
        place.running(app),
        TransactionProducer(place.address, group=place.name("asked"), check=check) as producer,
    ):
        with producer.transaction(Message(topic, b"left")) as transaction:
            transaction.leave()
        eventually(lambda: seen, "the message after the check")
    assert asked[0] == (topic, b"left", transaction.message_id)
    assert (seen[0].body, seen[0].message_id) == (b"left", transaction.message_id)


def test_a_request_gets_its_reply(place: Place) -> None:
    topic, app = place.topic("Asked"), App(place.address)

    @app.handler(topic, group=place.name("answering"), replies=True)
    def answer(message: ReceivedMessage) -> bytes:
        return message.body.upper()

    with place.running(app), Producer(place.address, group=place.name("asking")) as producer:
        assert producer.request(Message(topic, b"question"), LONG_S).body == b"QUESTION"
        futures = [producer.request_async(Message(topic, b"q%d" % number), LONG_S) for number in range(10)]
        assert [future.result().body for future in futures] == [b"Q%d" % number for number in range(10)]


def test_a_request_that_nobody_answers_ends_in_time(place: Place) -> None:
    topic = place.topic("Unheard")
    with Producer(place.address, group=place.name("asking")) as producer:
        begun = time.monotonic()
        with pytest.raises(RequestTimeout):
            producer.request(Message(topic, b"question"), 0.5)
        assert 0.4 < time.monotonic() - begun < 10


def test_threads_share_a_producer(place: Place) -> None:
    topic = place.topic("Threads")
    with Producer(place.address) as producer:

        def send(number: int) -> None:
            for count in range(25):
                producer.send(Message(topic, b"%d/%d" % (number, count)), str(number))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = place.stored(topic)
    assert len(found) == 200
    for number in range(8):
        mine = [message.body for message in found if message.sharding_key == str(number)]
        assert mine == [b"%d/%d" % (number, count) for count in range(25)]
