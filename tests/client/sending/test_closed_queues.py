"""Queues that are closed for sends or for consumers: what `writeQueueNums`, `readQueueNums` and `perm` bind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rmqclient import App, Message, Producer, PullConsumer, ReceivedMessage, RetryPolicy, TransactionProducer
from rmqclient.admin import Admin
from rmqclient.errors import LettersRejected, TopicNotWritable, UnknownTopic
from rmqclient.failures.dead_letters import Selection, replay, select
from rmqclient.health.findings import OK, WARNING, closed_queues
from rmqclient.health.limits import Limits
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.bodies import Compression
from rmqclient.store.observe.reading import Reading
from tests.client.conftest import consuming, wait_for
from tests.support.stores import after_every_delay

QUEUES = 4
WRITTEN = {0, 1}


@pytest.fixture
def topic(store: MessageStore) -> str:
    """A topic that is to shrink: four queues are read, and two are written."""
    store.topics.create("orders", QUEUES)
    return "orders"


def shrink(store: MessageStore, topic: str, written: int = len(WRITTEN), perm: int | None = None) -> None:
    config = store.topics.configs()[topic]
    store.topics.configure(
        topic, replace(config, write_queue_count=written, perm=config.perm if perm is None else perm)
    )


SENDS: dict[str, Callable[[Producer, int], object]] = {
    "plain": lambda producer, n: producer.send(Message("orders", b"%d" % n)),
    "by key": lambda producer, n: producer.send(Message("orders", b""), str(n)),
    "by level": lambda producer, n: producer.send(Message("orders", b""), str(n), delay_level=1),
    "at a time": lambda producer, n: producer.send(Message("orders", b""), str(n), delay=0.001 * n + 0.001),
    "batch": lambda producer, n: producer.send_batch([Message("orders", b"")] * 2, str(n)),
    "compressed": lambda producer, n: producer.send_batch(
        [Message("orders", b"")], str(n), compression=Compression.ZLIB
    ),
    "once": lambda producer, n: producer.send_once(Message("orders", b""), key=str(n)),
    "asynchronous": lambda producer, n: producer.send_async(Message("orders", b""), str(n)).result(30),
}
SOME = 12


def messages_in(store: MessageStore) -> list[int]:
    """Return how many records each queue has."""
    return [store.topics.max_offset(queue) for queue in store.topics.queues("orders")]


@pytest.mark.guarantee("G115")
@pytest.mark.parametrize("kind", SENDS)
def test_new_messages_go_to_the_queues_that_are_written_whatever_sends_them(
    store: MessageStore, topic: str, kind: str
) -> None:
    with Producer(store) as producer:
        shrink(store, topic)
        for number in range(SOME):
            SENDS[kind](producer, number)
        store.schedule.now_ms = after_every_delay
        wait_for(lambda: sum(messages_in(store)) >= SOME, "all is delivered")
    assert messages_in(store)[len(WRITTEN) :] == [0, 0]


@pytest.mark.guarantee("G115")
@pytest.mark.parametrize("kind", SENDS)
def test_a_send_to_a_topic_that_takes_none_is_refused_before_a_byte_is_written(
    store: MessageStore, topic: str, kind: str
) -> None:
    with Producer(store) as producer:
        producer.send(Message(topic, b"before"))
        shrink(store, topic, perm=4)
        end = store.state.published_to
        with pytest.raises(TopicNotWritable, match="rmq topic update orders --perm rw") as raised:
            SENDS[kind](producer, 1)
        assert store.state.published_to == end
        assert isinstance(raised.value, UnknownTopic)  # which a producer of a cluster has always raised
        shrink(store, topic, perm=6)
        SENDS[kind](producer, 1)
        assert store.state.published_to > end


@pytest.mark.guarantee("G115")
def test_a_running_producer_follows_each_change_and_keeps_the_topic_that_was_removed(
    store: MessageStore, topic: str
) -> None:
    with Producer(store) as producer:

        def used() -> set[int]:
            return {producer.send(Message(topic, b"")).queue.queue_id for _ in range(QUEUES * 2)}

        assert used() == {0, 1, 2, 3}
        shrink(store, topic)
        assert used() == {0, 1}
        shrink(store, topic, written=6)
        assert used() == {0, 1, 2, 3, 4, 5}
        store.topics.remove(topic)
        assert used() == {0, 1, 2, 3, 4, 5}
        assert topic not in store.topics.configs()


@pytest.mark.guarantee("G115")
@pytest.mark.parametrize("perm", [6, 4])
@pytest.mark.parametrize(("delay_level", "delay"), [(1, None), (None, 0.2)])
def test_what_waited_for_its_time_leaves_queues_alone_that_are_to_drain_and_is_never_refused(
    store: MessageStore, topic: str, delay_level: int | None, delay: float | None, perm: int
) -> None:
    with Producer(store) as producer:
        for number in range(SOME):
            producer.send(Message(topic, b"%d" % number), str(number), delay_level=delay_level, delay=delay)
        shrink(store, topic, perm=perm)
        store.schedule.now_ms = after_every_delay
        wait_for(lambda: sum(messages_in(store)) == SOME, "all is delivered")
        closed = messages_in(store)[len(WRITTEN) :]
        assert (closed == [0, 0]) == (perm == 6)  # a topic without any open queue takes them as they were meant
        if perm == 6:
            found = [store.messages.at(MessageQueue(topic, n), 0) for n in WRITTEN]
            for message in found:
                assert producer.send(Message(topic, b""), message.sharding_key).queue.queue_id == message.queue_id


@pytest.mark.guarantee("G115")
def test_a_transaction_is_committed_into_a_queue_that_is_written(store: MessageStore, topic: str) -> None:
    with TransactionProducer(store, group="shop") as producer:
        begun = [producer.transaction(Message(topic, b"%d" % number)) for number in range(QUEUES)]
        shrink(store, topic)
        for each in begun:
            each.commit()
    assert messages_in(store) == [2, 2, 0, 0]


@pytest.mark.guarantee("G115")
def test_dead_letters_are_replayed_into_queues_that_are_written_or_stay(store: MessageStore, topic: str) -> None:
    app = App(store.root)

    @app.handler(topic, group="billing", retry=RetryPolicy(max_retries=0))
    def refuse(message: ReceivedMessage) -> None:
        raise ValueError

    with consuming(store, app), Producer(store) as producer:
        for number in range(SOME):
            producer.send(Message(topic, b""), str(number))
        wait_for(lambda: len(list(select(store, "billing", Selection()))) == SOME, "all are dead letters")
    before = messages_in(store)
    shrink(store, topic, perm=4)
    with pytest.raises(LettersRejected, match="rmq topic update orders --perm rw"):
        list(replay(store, "billing", Selection()))
    assert len(list(select(store, "billing", Selection()))) == SOME
    shrink(store, topic, perm=6)
    assert len(list(replay(store, "billing", Selection()))) == SOME
    assert messages_in(store)[len(WRITTEN) :] == before[len(WRITTEN) :]


@pytest.mark.guarantee("G115")
def test_consumers_get_messages_of_the_queues_that_are_read_and_let_go_of_the_others(
    store: MessageStore, topic: str
) -> None:
    app, handled = App(store.root), list[int]()

    @app.handler(topic, group="billing")
    def note(message: ReceivedMessage) -> None:
        handled.append(message.queue_id)

    def read(count: int, perm: int = 6) -> None:
        config = store.topics.configs()[topic]
        store.topics.configure(topic, replace(config, read_queue_count=count, perm=perm))

    name = f"{topic}@billing"
    with Producer(store) as producer, consuming(store, app) as consumer:
        wait_for(lambda: len(consumer.queues[name]) == QUEUES, "it has all queues")
        read(2)
        wait_for(lambda: len(consumer.queues[name]) == 2, "it lets go of two queues")
        for _ in range(SOME):
            producer.send(Message(topic, b""))
        wait_for(lambda: len(handled) == SOME // 2, "half of them are handled")
        with PullConsumer(store, group="reports") as reports:
            assert {each.queue_id for each in reports.messages(topic, start="earliest", wait=0)} == WRITTEN
        with Reading(str(store.root)) as reading:
            (found,) = closed_queues(reading.shared.root, reading.observe(), Limits())
        assert (found.level, found.subject) == (WARNING, topic)
        assert "6 messages" in found.state
        read(2, perm=2)
        wait_for(lambda: not consumer.queues[name], "it lets go of all queues")
        read(QUEUES)
        wait_for(lambda: len(handled) == SOME, "the others are handled")
        shrink(store, topic)
        with Reading(str(store.root)) as reading:
            (found,) = closed_queues(reading.shared.root, reading.observe(), Limits())
        assert found.level == OK
    assert set(handled) == {0, 1, 2, 3}


def test_dead_letters_that_a_broker_made_to_be_written_only_are_read(store: MessageStore) -> None:
    store.topics.create("%DLQ%billing", 1)
    config = store.topics.configs()["%DLQ%billing"]
    store.topics.configure("%DLQ%billing", replace(config, perm=2))
    assert store.topics.read_queues("%DLQ%billing") == store.topics.queues("%DLQ%billing")


def test_a_topic_is_shrunk_and_closed_by_an_administrator(store: MessageStore, topic: str) -> None:
    with Admin(store) as admin:
        assert all(each.is_read and each.is_written for each in admin.topic(topic).queues)
        shown = admin.update_topic(topic, write_queues=2).queues
        assert [(each.is_written, each.is_read) for each in shown] == [(True, True)] * 2 + [(False, True)] * 2
        shown = admin.update_topic(topic, read_queues=2, perm="r").queues
        assert [(each.is_written, each.is_read) for each in shown] == [(False, True)] * 2 + [(False, False)] * 2
        with pytest.raises(ValueError, match="--write-queues 2"):
            admin.update_topic(topic, 2)
        shown = admin.update_topic(topic, QUEUES, perm="rw").queues
        assert all(each.is_read and each.is_written for each in shown)
