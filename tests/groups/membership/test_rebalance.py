"""What the rebalance must survive, step by step, with the members of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.allocation import Strategy
from rmqclient.backend import Backend
from rmqclient.backend.group_protocols import Terms
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.delivery.delivery import Delivery
from rmqclient.filters import MessageFilter
from rmqclient.opening import Place
from rmqclient.store import MessageQueue, MessageStore, layout
from rmqclient.store.files.file_lock import MEMBER_BYTES, LockFile
from rmqclient.store.runtime.shared_state import member_slot_at
from tests.client.conftest import NOWHERE, backend, store
from tests.groups.membership.test_takeover import wait_for

__all__ = ["backend", "store"]

TOPIC, GROUP = "orders", "billing"
INCARNATION = layout.MEMBER_SLOT.at["incarnation"]


def grants(backend: Backend) -> int:
    return sum(each.epoch for group in backend.groups.all() for each in group.queues)


def test_a_queue_that_is_allocated_again_before_it_was_released_is_delivered_to_its_end(backend: Backend) -> None:
    # Given a member that handles the first of some messages
    names = [f"m{number}" for number in range(40)]
    with Producer(backend) as producer:
        producer.create_topic(TOPIC, 1)
        for name in names:
            producer.send(Message(TOPIC, name.encode()))
    app, handled, go_on = App(NOWHERE), [], threading.Event()

    @app.handler(TOPIC, group=GROUP)
    def handle(message: ReceivedMessage) -> None:
        handled.append(message.body.decode())
        go_on.wait(20)

    # It waits for that one however slow the machine is: behind the drain time another one would get it again.
    config = ConsumerConfig(drain_ms=600_000)
    with PushConsumer(backend, app.handlers, client_id="b", config=config) as consumer:
        subscription = consumer.subscriptions[0]
        wait_for(lambda: handled, "the first message is handled")

        # When another one, that has the first claim on the queue, comes and goes while that message is handled
        (queue,) = subscription.delivery.queues
        other = backend.groups.memberships().join(
            GROUP, TOPIC, "a", Terms(subscription.handler.subscription, MessageFilter())
        )
        wait_for(lambda: queue.revoked, "the queue is being given up")
        other.leave()
        wait_for(lambda: subscription.rebalancer._view.clients == ("b",), "the other one is gone")
        go_on.set()

        # Then the rest of the queue is handled
        wait_for(lambda: len(handled) == len(names), "everything is handled")
        assert sorted(handled) == sorted(names)


def test_the_slot_of_a_dead_member_is_not_locked_while_it_still_shows_that_member(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a member that died: the kernel has unlocked its byte, and its slot tells nothing of that
    dead = store.members().join(GROUP, TOPIC, "a", "*")
    store.lock.unlock(MEMBER_BYTES + dead.slot)

    # When another one takes the slot
    seen = []
    lock = LockFile.try_exclusive

    def look(self: LockFile, byte: int) -> bool:
        if byte == MEMBER_BYTES + dead.slot:  # the housekeeper may try for its role meanwhile
            seen.append(store.state.words.load(member_slot_at(dead.slot) + INCARNATION))
        return lock(self, byte)

    monkeypatch.setattr(LockFile, "try_exclusive", look)
    joined = store.members().join(GROUP, TOPIC, "b", "*")

    # Then the dead one had left the slot before, or it would have been counted as alive for a moment
    assert joined.slot == dead.slot
    assert seen == [dead.incarnation + 1]
    assert joined.incarnation == dead.incarnation + 2


# --- warm start --------------------------------------------------------------------------------------------------


LONG_MS = 600_000
NEVER_LOOKS = ConsumerConfig(liveness_interval_ms=LONG_MS, lease_ms=4 * LONG_MS, rebalance_interval_ms=LONG_MS)
"""A consumer that looks at the tables when it starts, and then only when it is told of a change."""


@pytest.mark.parametrize("strategy", ["averaged", "sticky"])
def test_a_consumer_that_has_started_has_its_queues_and_delivers_without_another_look(
    store: MessageStore, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given messages, and a member that has died with all queues
    send(store, 8, queue_count=4)
    dead = PushConsumer(store, recording(store, [], strategy).handlers, client_id="a", config=NEVER_LOOKS)
    dead.start()
    assert len(dead.subscriptions[0].rebalancer.queues) == 4
    dead.subscriptions[0].delivery.stop_taking()
    send(store, 8, queue_count=4)
    dead._closing.set()  # its threads go, as in a process that is killed, and nobody is told
    dead.subscriptions[0].delivery.join(10)
    dead._members.bell.ring()
    dead._coordinator.join()
    for member in store.members().roll.all():
        if member.topic == TOPIC:
            store.lock.unlock(MEMBER_BYTES + member.slot)

    # When the next one has started
    handled: list[str] = []
    begun_with: list[int] = []
    start = Delivery.start

    def begin(self: Delivery[Any]) -> None:
        begun_with.append(len(self.queues))
        start(self)

    monkeypatch.setattr(Delivery, "start", begin)
    consumer = PushConsumer(store, recording(store, handled, strategy).handlers, client_id="b", config=NEVER_LOOKS)
    consumer.start()

    # Then it had every queue before its threads began, and no message waits for a later look: there is none
    assert begun_with == [4]
    wait_for(lambda: len(handled) >= 8, "the messages are handled")
    consumer.close()


def test_a_consumer_that_joins_a_working_group_is_told_at_once_what_it_gets(backend: Backend) -> None:
    send(backend, 0, queue_count=4)
    consumers = [
        PushConsumer(backend, recording(backend, []).handlers, client_id=name, config=NEVER_LOOKS) for name in "ab"
    ]
    for consumer in consumers:
        consumer.start()
    wait_for(lambda: [len(each.subscriptions[0].rebalancer.queues) for each in consumers] == [2, 2], "two queues each")
    consumers[0].close()
    wait_for(lambda: len(consumers[1].subscriptions[0].rebalancer.queues) == 4, "the other one has all")
    consumers[1].close()


# --- strategies --------------------------------------------------------------------------------------------------


def test_a_sticky_group_moves_only_what_it_must(backend: Backend) -> None:
    send(backend, 0, queue_count=12)
    consumers = [PushConsumer(backend, recording(backend, [], "sticky").handlers, client_id=name) for name in "bca"]

    def sizes() -> list[int]:
        return [len(each.subscriptions[0].rebalancer.queues) for each in consumers if each.subscriptions]

    for consumer in consumers:
        consumer.start()
        wait_for(lambda: set(sizes()) == {12 // len(sizes())}, "even parts")
    assert grants(backend) == 12 + 6 + 4, "one grant for each queue that moved"
    before = consumers[0].subscriptions[0].rebalancer.queues
    consumers[2].close()
    wait_for(lambda: sizes() == [6, 6], "even parts")
    assert set(before) < set(consumers[0].subscriptions[0].rebalancer.queues)
    assert grants(backend) == 12 + 6 + 4 + 4
    for consumer in consumers[:2]:
        consumer.close()


def test_queues_that_a_function_gives_to_nobody_are_told_once(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    send(backend, 0, queue_count=3)
    config = ConsumerConfig(liveness_interval_ms=1, rebalance_interval_ms=1)
    consumer = PushConsumer(backend, recording(backend, [], only_the_first).handlers, config=config)
    consumer.start()
    epoch = time.monotonic() + 0.05
    wait_for(lambda: time.monotonic() > epoch, "many looks")
    assert [queue.queue_id for queue in consumer.subscriptions[0].rebalancer.queues] == [0]
    (said,) = [record.getMessage() for record in caplog.records if "to nobody" in record.getMessage()]
    assert f"{__name__}:only_the_first gives 2 queues to nobody: orders:1, orders:2" in said
    consumer.close()


def test_a_function_that_fails_leaves_its_members_what_they_have_and_is_told_once(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    send(backend, 0, queue_count=3)
    fails = threading.Event()

    def failing(members: Sequence[str], queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
        if fails.is_set():
            raise LookupError("no such room")
        return {members[0]: list(queues)}

    config = ConsumerConfig(liveness_interval_ms=1, rebalance_interval_ms=1)
    consumer = PushConsumer(backend, recording(backend, [], failing).handlers, config=config)
    consumer.start()
    fails.set()
    wait_for(lambda: "no such room" in caplog.text, "it has failed")
    again = time.monotonic() + 0.05
    wait_for(lambda: time.monotonic() > again, "many looks")
    assert len(consumer.subscriptions[0].rebalancer.queues) == 3
    assert caplog.text.count("raised LookupError: no such room; this member keeps the queues that it has") == 1
    consumer.close()


def only_the_first(members: Sequence[str], queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
    return {members[0]: [queues[0]]}


def recording(place: Place, handled: list[str], allocation: str | Strategy = "averaged") -> App:
    app = App(NOWHERE)

    @app.handler(TOPIC, group=GROUP, allocation=allocation)
    def handle(message: ReceivedMessage) -> None:
        handled.append(message.body.decode())

    return app


def send(place: Place, count: int, *, queue_count: int) -> None:
    with Producer(place) as producer:
        producer.create_topic(TOPIC, queue_count)
        for number in range(count):
            producer.send(Message(TOPIC, str(number).encode()))
