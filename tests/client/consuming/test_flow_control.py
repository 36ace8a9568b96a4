"""Flow control to the exact numbers: 1,000 messages, 100 MiB, 2,000 offsets, 50 ms, and the limits of a topic."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import App, Batch, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.modes.batch import BatchQueue
from rmqclient.delivery.modes.concurrent_queue import ConcurrentQueue
from rmqclient.delivery.process_queue import FlowControl, ProcessQueue
from rmqclient.store import MessageQueue, MessageStore, TagSet, boottime, open_store
from rmqclient.store.runtime.group_table import GroupQueueSlot
from tests.client.conftest import consuming, wait_for

QUEUE = MessageQueue("t", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        opened.topics.create("t", 1)
        yield opened


def slot_of(store: MessageStore) -> GroupQueueSlot:
    return store.groups.find_or_add("g", store.topics.slot(QUEUE), 0)


def shown(store: MessageStore) -> int:
    return slot_of(store).load("flow_control")


def granted(store: MessageStore, config: ConsumerConfig) -> ConcurrentQueue:
    slot = slot_of(store)
    with slot.locked(1_000):
        slot.store("epoch", slot.load("epoch") + 1)
    return ConcurrentQueue(store.grants.grant(slot, slot.load("epoch"), TagSet(())), config)


def test_messages_that_are_gathered_for_a_batch_wait_for_a_thread(store: MessageStore) -> None:
    send(store, 32)
    queue = BatchQueue(granted(store, ConsumerConfig()).grant, ConsumerConfig(), batch=Batch(4))
    assert queue.has_waiting
    assert len(queue.take()) == 4
    assert not queue.grant.has_more
    assert queue.has_waiting
    while queue.take():
        pass
    assert not queue.has_waiting


def test_a_message_that_was_set_aside_waits_for_a_thread_when_it_is_due(store: MessageStore) -> None:
    send(store, 1)
    queue = granted(store, ConsumerConfig(local_retry_ms=1))
    (message,) = queue.take()
    assert not queue.has_waiting
    queue.retry_later(message)
    wait_for(lambda: queue.has_waiting, "its pause is over")


def send(store: MessageStore, count: int, body: bytes = b"x") -> None:
    with Producer(store) as producer:
        for _ in range(count):
            producer.send(Message("t", body))


def take_all(queue: ProcessQueue) -> list[ReceivedMessage]:
    return list(itertools.chain.from_iterable(iter(queue.take, [])))


def test_a_thousand_messages_are_taken_and_not_one_more(store: MessageStore) -> None:
    send(store, 1_100)
    queue = granted(store, ConsumerConfig(flow_control_ms=1))
    taken = take_all(queue)
    assert len(taken) == 1_000
    assert queue.flow_control is FlowControl.MESSAGES

    # One that is finished makes room for one
    queue.settle(taken[:1])
    wait_for(lambda: not queue.is_blocked, "the pause is over")
    assert len(take_all(queue)) == 1


def test_no_batch_is_begun_at_a_hundred_mebibytes(store: MessageStore) -> None:
    body = bytes(4 << 20)
    send(store, 30, body)
    queue = granted(store, ConsumerConfig(batch_messages=1, flow_control_ms=1))
    taken = take_all(queue)
    assert sum(message.size for message in taken[:-1]) < 100 << 20 <= sum(message.size for message in taken)
    assert len(taken) == 25
    assert queue.flow_control is FlowControl.BYTES


def test_the_newest_message_taken_is_two_thousand_offsets_from_the_oldest_unfinished_one(store: MessageStore) -> None:
    send(store, 2_100)
    queue = granted(store, ConsumerConfig(flow_control_ms=1))
    newest = 0
    while batch := queue.take():
        newest = batch[-1].queue_offset
        finished = [message for message in batch if message.queue_offset > 0]
        assert queue.grant.acknowledge_offsets([message.queue_offset for message in finished])
        queue.settle(finished)
    assert newest == 2_000
    assert queue.flow_control is FlowControl.SPAN

    # When the oldest one is finished, the rest follows
    assert queue.grant.acknowledge_offsets([0])
    wait_for(lambda: not queue.is_blocked, "the pause is over")
    assert [message.queue_offset for message in take_all(queue)] == list(range(2_001, 2_100))


@pytest.mark.parametrize(
    ("config", "count", "reason"),
    [
        (ConsumerConfig(max_messages=5), 10, FlowControl.MESSAGES),
        (ConsumerConfig(max_bytes=1_000, batch_messages=1), 50, FlowControl.BYTES),
        (ConsumerConfig(max_span=5, batch_messages=1), 10, FlowControl.SPAN),
    ],
)
def test_a_queue_at_a_limit_is_passed_over_for_fifty_milliseconds(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, config: ConsumerConfig, count: int, reason: FlowControl
) -> None:
    send(store, count)
    queue = granted(store, config)
    now = 1_000.0
    monkeypatch.setattr("rmqclient.store.clock.elapsed", lambda: now)
    take_all(queue)
    assert queue.flow_control is reason
    assert queue.next_due() == pytest.approx(now + 0.050)
    assert queue.is_blocked
    now += 0.049
    assert queue.is_blocked
    now += 0.002
    assert not queue.is_blocked


@pytest.mark.parametrize(("held", "most"), [(1, 1_000), (3, 333), (7, 142), (1_000, 1), (1_001, 1)])
def test_the_limit_of_a_topic_is_shared_by_the_queues_that_are_held(store: MessageStore, held: int, most: int) -> None:
    send(store, 1_010)
    queue = granted(store, ConsumerConfig(max_messages_per_topic=1_000, max_messages=5))
    queue.share_limits(held)
    assert len(take_all(queue)) == most


def test_so_is_the_limit_in_bytes(store: MessageStore) -> None:
    send(store, 50, bytes(1_000))
    queue = granted(store, ConsumerConfig(max_bytes_per_topic=30_000, batch_messages=1))
    queue.share_limits(3)
    taken = take_all(queue)
    assert sum(message.size for message in taken[:-1]) < 10_000 <= sum(message.size for message in taken)


def test_each_rebalance_shares_the_limit_anew(store: MessageStore) -> None:
    app, go_on = App(store.root), threading.Event()

    @app.handler("shared", group="g")
    def handle(message: ReceivedMessage) -> None:
        go_on.wait(20)

    with Producer(store) as producer:
        producer.create_topic("shared", 4)
        for _ in range(200):
            producer.send(Message("shared", b"x"))
    config = ConsumerConfig(max_messages_per_topic=40, drain_ms=1, flow_control_ms=5)
    with consuming(store, app, config) as consumer:
        queues = consumer.subscriptions[0].delivery.queues
        assert [queue.max_messages for queue in queues] == [10] * 4
        (subscription,) = consumer.subscriptions
        other = store.members().join("g", "shared", "~", subscription.handler.subscription)
        try:
            delivery = subscription.delivery
            wait_for(
                lambda: [queue.max_messages for queue in delivery.queues] == [20] * 2, "the other one has its part"
            )
        finally:
            go_on.set()
            other.leave()


@pytest.mark.parametrize("name", ["max_messages_per_topic", "max_bytes_per_topic"])
def test_a_limit_of_a_topic_may_be_off_and_not_negative(name: str) -> None:
    assert getattr(ConsumerConfig(), name) == 0
    with pytest.raises(ValueError, match=f"{name}=-1"):
        ConsumerConfig(**{name: -1})  # type: ignore[arg-type]


def test_why_a_queue_gives_nothing_is_seen_from_outside(store: MessageStore) -> None:
    app, go_on = App(store.root), threading.Event()

    @app.handler("t", group="g", threads=5)
    def handle(message: ReceivedMessage) -> None:
        go_on.wait(20)

    with consuming(store, app, ConsumerConfig(max_messages=4, batch_messages=4)):
        assert [queue.state for queue in Admin(store).lag("g")] == ["idle"]
        send(store, 20)
        wait_for(lambda: Admin(store).lag("g")[0].state == "flow control: messages", "the limit is seen")
        go_on.set()
        wait_for(lambda: Admin(store).lag("g")[0].lag == 0, "everything is handled")
        assert Admin(store).lag("g")[0].state == "idle"
    assert Admin(store).lag("g")[0].state == "idle"


def test_a_failed_message_that_cannot_be_stored_for_its_next_attempt_is_shown(store: MessageStore) -> None:
    send(store, 1)
    queue = granted(store, ConsumerConfig())
    (message,) = queue.take()
    assert queue.take() == []
    assert queue.flow_control is FlowControl.NONE
    queue.retry_later(message)
    assert queue.take() == []
    assert FlowControl.of_code(shown(store)) is FlowControl.UNSTORED


def test_what_the_last_owner_met_is_over_for_the_next_one(store: MessageStore) -> None:
    queue = granted(store, ConsumerConfig(max_messages=1))
    send(store, 2)
    take_all(queue)
    assert shown(store) == FlowControl.MESSAGES.code
    granted(store, ConsumerConfig())
    assert shown(store) == FlowControl.NONE.code


@pytest.mark.parametrize("flow_control", FlowControl)
def test_every_state_has_a_number_of_its_own(flow_control: FlowControl) -> None:
    assert FlowControl.of_code(flow_control.code) is flow_control
    assert FlowControl.of_code(len(FlowControl)) is FlowControl.NONE


def test_a_queue_whose_lease_has_run_out_gives_nothing_until_it_is_renewed(store: MessageStore) -> None:
    # Given a process that stood still for longer than its lease, and whose queue nobody has taken as yet
    send(store, 3)
    queue = granted(store, ConsumerConfig())
    slot_of(store).store("lease_until", boottime() - 1)
    assert queue.take() == []
    assert queue.is_blocked, "so that its thread sleeps"

    # Then it goes on as soon as the lease is renewed
    slot_of(store).store("lease_until", boottime() + 10**10)
    wait_for(lambda: not queue.is_blocked, "the pause is over")
    assert len(queue.take()) == 3
