"""What the rebalance must survive, step by step, with the members of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.group import MemberTable
from rmqclient.push_consumer import PushConsumer
from store import MessageStore, layout, open_store
from store.file_lock import MEMBER_BYTES, LockFile
from store.shared_state import member_slot_at
from tests.groups.test_takeover import wait_for

TOPIC, GROUP = "orders", "billing"
INCARNATION = layout.MEMBER_SLOT.at["incarnation"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        yield opened


def test_a_queue_that_is_allocated_again_before_it_was_released_is_delivered_to_its_end(store: MessageStore) -> None:
    # Given a member that handles the first of some messages
    names = [f"m{number}" for number in range(40)]
    with Producer(store) as producer:
        producer.create_topic(TOPIC, 1)
        for name in names:
            producer.send(Message(TOPIC, name.encode()))
    app, handled, go_on = App(store.root), [], threading.Event()

    @app.handler(TOPIC, group=GROUP)
    def handle(message: ReceivedMessage) -> None:
        handled.append(message.body.decode())
        go_on.wait(20)

    consumer = PushConsumer(store, app.handlers, client_id="b")
    consumer.start()
    subscription = consumer.subscriptions[0]
    wait_for(lambda: handled, "the first message is handled")

    # When another one, that has the first claim on the queue, comes and goes while that message is handled
    (queue,) = subscription.delivery.queues
    other = subscription.member.table.join(GROUP, TOPIC, "a", subscription.handler.subscription)
    wait_for(lambda: queue.revoked, "the queue is being given up")
    other.leave()
    wait_for(lambda: subscription.rebalancer._view.clients == ("b",), "the other one is gone")
    go_on.set()

    # Then the rest of the queue is handled
    wait_for(lambda: len(handled) == len(names), "everything is handled")
    assert sorted(handled) == sorted(names)
    consumer.close()


def test_the_slot_of_a_dead_member_is_not_locked_while_it_still_shows_that_member(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a member that died: the kernel has unlocked its byte, and its slot tells nothing of that
    dead = MemberTable(store).join(GROUP, TOPIC, "a", "*")
    store.lock.unlock(MEMBER_BYTES + dead.slot)

    # When another one takes the slot
    seen = []
    lock = LockFile.try_exclusive

    def look(self: LockFile, byte: int) -> bool:
        seen.append(store.state.words.load(member_slot_at(dead.slot) + INCARNATION))
        return lock(self, byte)

    monkeypatch.setattr(LockFile, "try_exclusive", look)
    joined = MemberTable(store).join(GROUP, TOPIC, "b", "*")

    # Then the dead one had left the slot before, or it would have been counted as alive for a moment
    assert joined.slot == dead.slot
    assert seen == [dead.incarnation + 1]
    assert joined.incarnation == dead.incarnation + 2
