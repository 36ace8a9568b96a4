"""Sending with any delay: where the message waits, who gets it when, and how it is cancelled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rmqclient import InvalidName, Message, MessageQueue, MessageRejected, Producer
from rmqclient.names import check_topic
from store import TIMER_TOPIC, MessageStore, open_store
from store.timer import QUEUE
from tests.client.conftest import wait_for

HOUR = timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Nobody delivers but who says so."""
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        yield opened


def deliver_until(store: MessageStore, now_ms: int) -> None:
    """Deliver what is due at a time."""
    store.timer.now_ms = lambda: now_ms
    while store.timer.look() == 0:
        pass


def delivered(store: MessageStore, topic: str) -> list[bytes]:
    """Return what stands in queue 0 of a topic."""
    queue = MessageQueue(topic, 0)
    return [store.message_at(queue, number).body for number in range(store.topics.max_offset(queue))]


def test_a_message_with_a_delay_waits_in_the_timer_until_it_is_due(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    before = time.time_ns()
    result = producer.send(Message("flights", b"body", tags="a", keys=["k"]), delay=timedelta(milliseconds=1_500))
    after = time.time_ns()
    assert (result.queue, result.queue_offset) == (QUEUE, 0)
    (waiting,) = store.timer.pending()
    assert (waiting.message_id, waiting.topic, waiting.queue_id, waiting.queue_offset) == (
        result.message_id,
        "flights",
        0,
        0,
    )
    assert before <= waiting.due_ms * 1_000_000 - 1_500_000_000 <= after + 1_000_000

    deliver_until(store, waiting.due_ms - 1)
    assert delivered(store, "flights") == []
    deliver_until(store, waiting.due_ms)
    assert delivered(store, "flights") == [b"body"]
    copy = store.message_at(MessageQueue("flights", 0), 0)
    assert (copy.message_id, copy.tags, copy.keys) == (result.message_id, "a", ("k",))
    assert list(store.timer.pending()) == []


def test_messages_come_in_the_order_in_which_they_are_due(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    start = datetime.now(UTC) + HOUR
    for number in (5, 1, 4, 1, 3, 2):
        producer.send(Message("flights", b"%d" % number), deliver_at=start + timedelta(milliseconds=number))
    assert [waiting.queue_offset for waiting in store.timer.pending()] == [1, 3, 5, 4, 2, 0]
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == [b"1", b"1", b"2", b"3", b"4", b"5"]


def test_a_batch_waits_as_a_whole_and_is_delivered_in_order(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    sent = [b"%d" % number for number in range(300)]
    results = producer.send_batch([Message("flights", body) for body in sent], delay=HOUR)
    assert [result.queue_offset for result in results] == list(range(300))
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == sent


def test_a_cancelled_message_is_never_delivered(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    first, second = (producer.send(Message("flights", body), delay=HOUR) for body in (b"first", b"second"))
    assert producer.cancel(first.message_id)
    assert not producer.cancel(first.message_id)
    assert not producer.cancel("7F00000100000000000000000000FFFF")
    assert [waiting.message_id for waiting in store.timer.pending()] == [second.message_id]
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == [b"second"]
    assert not producer.cancel(second.message_id)


def test_a_time_that_has_passed_is_at_once(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    for when in (
        {"delay": timedelta()},
        {"deliver_at": datetime.now(UTC)},
        {"deliver_at": datetime(1970, 1, 1, tzinfo=UTC)},
    ):
        assert producer.send(Message("flights", b""), **when).queue.topic == "flights"
    assert TIMER_TOPIC not in store.topics.topics()


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"delay": timedelta(microseconds=-1)}, "must not be negative"),
        ({"delay": timedelta(days=4_000)}, "ten years"),
        ({"deliver_at": datetime(9999, 1, 1, tzinfo=UTC)}, "ten years"),
        ({"deliver_at": datetime(2030, 1, 1)}, "without a time zone"),  # noqa: DTZ001
        ({"delay": HOUR, "delay_level": 3}, "give one of them"),
        ({"delay": HOUR, "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, "give one of them"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused(
    store: MessageStore, producer: Producer, when: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        producer.send(Message("t", b""), **when)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        producer.send_batch([Message("t", b"")], **when)  # type: ignore[arg-type]
    assert store.state.published_to == 0


def test_nobody_sends_into_the_timer_directly(store: MessageStore, producer: Producer) -> None:
    producer.send(Message("t", b""), delay=HOUR)
    for send in (
        lambda: producer.send(Message(TIMER_TOPIC, b"")),
        lambda: producer.send_batch([Message(TIMER_TOPIC, b"")]),
    ):
        with pytest.raises(MessageRejected, match="deliver_at"):
            send()
    with pytest.raises(InvalidName, match="deliver_at"):
        check_topic(TIMER_TOPIC, reserved=True)
    assert store.topics.max_offset(QUEUE) == 1


def test_on_an_idle_machine_a_message_comes_when_it_is_due(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    with open_store(store.root) as other:
        housekeeper = other.housekeeper
        assert housekeeper is not None
        wait_for(lambda: housekeeper.has_role, "there is a housekeeper")
        for number in range(20):
            producer.send(Message("flights", b"%d" % number), delay=timedelta(milliseconds=300 - 10 * number))
        wait_for(lambda: store.topics.max_offset(MessageQueue("flights", 0)) == 20, "all are delivered")
    queue = MessageQueue("flights", 0)
    copies = [store.message_at(queue, number) for number in range(20)]
    due = [int(copy.properties["TIMER_OUT_MS"]) for copy in copies]
    assert due == sorted(due)
    assert min(copy.store_timestamp - time for copy, time in zip(copies, due, strict=True)) >= 0
