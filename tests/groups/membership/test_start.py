"""Where a group begins that never consumed the topic: on young and small queues as on any other, and in races."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.consuming.start_position import begin
from rmqclient.handler import Start
from rmqclient.opening import open_backend
from rmqclient.store import MessageStore, open_store
from tests.groups.membership.test_takeover import wait_for
from tests.support.stores import abandon


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        yield opened


def send(store: MessageStore, *names: str, topic: str = "t", queues: int = 4) -> None:
    with Producer(store) as producer:
        producer.create_topic(topic, queues)
        for name in names:
            producer.send(Message(topic, name.encode()))


class Consumer:
    """A member of group ``g``, and what its handler got."""

    def __init__(self, store: MessageStore, start: Start) -> None:
        self.got: list[str] = []
        app = App(store.root)

        @app.handler("t", group="g", start=start)
        def handle(message: ReceivedMessage) -> None:
            self.got.append(message.body.decode())

        self.consumer = PushConsumer(store, app.handlers)
        self.consumer.start()

    def close(self) -> None:
        self.consumer.stop_taking()
        self.consumer.drain(10)
        self.consumer.close()


def settled(store: MessageStore) -> bool:
    return bool(Admin(store).lag("g")) and all(queue.lag == 0 for queue in Admin(store).lag("g"))


def begin_at_end(store: MessageStore, topic: str) -> None:
    backend = open_backend(store)
    begin(backend, "g", topic, "latest")


@pytest.mark.guarantee("G17")
@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_end_of_a_young_small_queue_is_its_end(store: MessageStore, count: int) -> None:
    # RocketMQ begins at 0 here: the first message is still there, and in memory
    send(store, *[f"old{number}" for number in range(count)])
    consumer = Consumer(store, "latest")
    send(store, "new0", "new1", "new2", "new3", "new4")
    wait_for(lambda: len(consumer.got) == 5 and settled(store), "the new messages are handled")
    consumer.close()
    assert sorted(consumer.got) == ["new0", "new1", "new2", "new3", "new4"]


def test_the_end_is_that_of_the_moment_when_the_first_member_joined(store: MessageStore) -> None:
    # Given a group whose first member was killed before it took a single queue
    send(store, "old")
    begin_at_end(store, "t")
    send(store, "new")

    # When the next one comes
    consumer = Consumer(store, "latest")
    wait_for(lambda: settled(store), "everything is handled")
    consumer.close()

    # Then what came in between is not lost
    assert consumer.got == ["new"]


def test_members_that_join_at_once_agree(store: MessageStore) -> None:
    send(store, "a", "b", "c")
    barrier = threading.Barrier(8)

    def join() -> None:
        barrier.wait()
        begin_at_end(store, "t")

    threads = [threading.Thread(target=join) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [queue.lag for queue in Admin(store).lag("g")] == [0, 0, 0, 0]


@pytest.mark.guarantee("G17")
def test_queues_that_come_later_begin_at_their_first_message(store: MessageStore) -> None:
    # Given a member of a topic that nobody has made yet
    first = Consumer(store, "latest")

    # When the topic comes with messages, and a second member at the same time
    send(store, "a", "b", "c")
    second = Consumer(store, "latest")
    wait_for(lambda: len(first.got) + len(second.got) == 3 and settled(store), "everything is handled")
    for consumer in (first, second):
        consumer.close()
    assert sorted(first.got + second.got) == ["a", "b", "c"]


def test_a_queue_added_to_a_topic_begins_at_its_first_message(store: MessageStore) -> None:
    send(store, "old", queues=1)
    consumer = Consumer(store, "latest")
    Admin(store).update_topic("t", 2)
    with Producer(store) as producer:
        for number in range(4):
            producer.send(Message("t", b"%d" % number))
    wait_for(lambda: len(consumer.got) == 4 and len(Admin(store).lag("g")) == 2, "everything is handled")
    consumer.close()


@pytest.mark.guarantee("G17")
def test_a_time_is_that_of_the_first_message_stored_then_or_later(store: MessageStore) -> None:
    send(store, "old0", "old1", "old2")
    moment = store.state.last_store_timestamp + 2
    wait_for(lambda: time.time() * 1000 > moment, "time goes on")
    send(store, "new0", "new1")
    consumer = Consumer(store, datetime.fromtimestamp(moment / 1000, UTC))
    wait_for(lambda: settled(store), "everything is handled")
    consumer.close()
    assert sorted(consumer.got) == ["new0", "new1"]


def test_a_time_after_the_last_message_is_the_end(store: MessageStore) -> None:
    send(store, "old")
    consumer = Consumer(store, datetime(2100, 1, 1, tzinfo=UTC))
    send(store, "new")
    wait_for(lambda: consumer.got, "the new one is handled")
    consumer.close()
    assert consumer.got == ["new"]


def test_a_group_that_has_consumed_goes_on_where_it_was(store: MessageStore) -> None:
    send(store, "a")
    first = Consumer(store, "earliest")
    wait_for(lambda: settled(store), "everything is handled")
    first.close()
    send(store, "b")
    second = Consumer(store, "latest")
    wait_for(lambda: settled(store), "everything is handled")
    second.close()
    assert (first.got, second.got) == (["a"], ["b"])


def test_retry_topics_begin_at_their_first_message_whatever_is_asked(store: MessageStore) -> None:
    store.topics.create("%DLQ%g", 1)
    store.topics.create("%RETRY%g", 1)
    begin_at_end(store, "%RETRY%g")
    assert store.groups.groups() == []
    begin_at_end(store, "%DLQ%g")
    assert store.groups.groups() == ["g"], "dead letters are a topic as any other"


@pytest.mark.guarantee("G17")
def test_where_a_group_began_is_on_the_disk_before_it_takes_a_message(store: MessageStore) -> None:
    send(store, "a", "b", "c", queues=1)
    begin_at_end(store, "t")
    written = json.loads((store.root / "config" / "consumerOffset.json").read_text())
    assert written["offsetTable"]["t@g"] == {"0": 3}

    # And it is what a store is opened with when the runtime file is gone, as after a power cut
    root = store.root
    abandon(store)
    (root / "shared").unlink()
    with open_store(root, housekeeping=False) as again:
        assert [queue.committed_offset for queue in Admin(again).lag("g")] == [3]
