"""Moving, pausing and resuming a group while its members are at work."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rmqclient import App, Message, MessageQueue, Producer, ReceivedMessage
from rmqclient.admin import Admin, Position
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import InvalidName, OffsetOutOfRange, UnknownGroup, UnknownTopic
from rmqclient.store import MessageStore, TagSet, open_store
from rmqclient.store.settings import config_file
from tests.groups.membership import test_takeover as takeover
from tests.groups.membership.test_takeover import members, wait_for
from tests.groups.processes.member import GROUP, TOPIC


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        yield opened


class Consumer:
    """A member of group ``g``; its handler waits while ``gate`` is shut."""

    def __init__(self, store: MessageStore, *, gate: threading.Event | None = None) -> None:
        self.got: list[str] = []
        self.begun: list[str] = []
        app = App(store.root)

        @app.handler("t", group="g")
        def handle(message: ReceivedMessage) -> None:
            self.begun.append(message.body.decode())
            if gate is not None:
                gate.wait(20)
            self.got.append(message.body.decode())

        self.consumer = PushConsumer(store, app.handlers)
        self.consumer.start()

    @property
    def refused(self) -> int:
        return sum(subscription.delivery.counters.refused for subscription in self.consumer.subscriptions)

    def close(self) -> None:
        self.consumer.stop_taking()
        self.consumer.drain(10)
        self.consumer.close()


def send(store: MessageStore, *names: str, queues: int = 1) -> None:
    with Producer(store) as producer:
        producer.create_topic("t", queues)
        for name in names:
            producer.send(Message("t", name.encode()))


def is_settled(store: MessageStore) -> bool:
    return bool(Admin(store).lag("g")) and all(queue.lag == 0 for queue in Admin(store).lag("g"))


@pytest.mark.guarantee("G16")
def test_everything_is_delivered_again_while_a_member_is_at_work(store: MessageStore) -> None:
    names = [f"m{number}" for number in range(100)]
    send(store, *names, queues=4)
    consumer = Consumer(store)
    wait_for(lambda: is_settled(store), "everything is handled")
    (first, *_) = moved = Admin(store).seek("g", "t", "earliest")
    assert len(moved) == 4
    assert (first.from_offset, first.to_offset) == (25, 0)
    took = wait_for(lambda: len(consumer.got) == 200, "everything is handled again")
    assert took < 8, "the member takes its queues back at once, and not at the end of its lease"
    consumer.close()
    assert set(Counter(consumer.got).values()) == {2}


@pytest.mark.guarantee("G16")
def test_what_is_in_flight_is_not_acknowledged_into_the_new_position(store: MessageStore) -> None:
    # Given a member in the middle of the last message
    send(store, "a", "b", "c")
    gate = threading.Event()
    gate.set()
    consumer = Consumer(store, gate=gate)
    wait_for(lambda: is_settled(store), "everything is handled")
    gate.clear()
    send(store, "d")
    wait_for(lambda: consumer.begun[-1] == "d", "the last one is being handled")

    # When the group goes back to the first one, and the handler returns
    Admin(store).seek("g", "t", 0)
    gate.set()

    # Then its acknowledgement is refused, and every message comes again, the last one too
    wait_for(lambda: is_settled(store), "everything is handled")
    wait_for(lambda: consumer.refused == 1, "its acknowledgement is refused")
    consumer.close()
    assert Counter(consumer.got) == {"a": 2, "b": 2, "c": 2, "d": 2}


@pytest.mark.guarantee("G16")
def test_what_fails_when_its_queue_has_gone_is_not_stored_beside_the_message_that_comes_again(
    store: MessageStore,
) -> None:
    # Given a handler that is in the middle of a message
    send(store, "a")
    begun, gate = list[int](), threading.Event()
    app, end = App(store.root), store.state.published_to

    @app.handler("t", group="g")
    def handle(message: ReceivedMessage) -> None:
        begun.append(message.delivery_attempt)
        if len(begun) == 1:
            gate.wait(20)
            raise RuntimeError("too late")

    consumer = PushConsumer(store, app.handlers)
    consumer.start()
    wait_for(lambda: begun, "it is being handled")

    # When its queue goes to a later grant, and the handler raises
    Admin(store).seek("g", "t", 0)
    gate.set()
    wait_for(lambda: is_settled(store) and len(begun) == 2, "it is handled again")
    consumer.stop_taking()
    consumer.drain(10)
    consumer.close()

    # Then that is its first attempt, and no copy is stored for a second one
    assert begun == [1, 1]
    assert store.state.published_to == end


@pytest.mark.guarantee("G16")
def test_a_seek_forward_passes_over_what_is_in_between_and_what_was_finished_ahead(store: MessageStore) -> None:
    names = [f"m{number}" for number in range(10)]
    send(store, *names)
    slot = store.groups.find_or_add("g", store.topics.slot(MessageQueue("t", 0)), 0)
    grant = store.grants.grant(slot, slot.load("epoch"), TagSet(()))
    assert grant.acknowledge_offsets([2, 7])
    Admin(store).seek("g", "t", 5)
    assert [(queue.committed_offset, queue.acknowledged_ahead) for queue in Admin(store).lag("g")] == [(5, 0)]
    consumer = Consumer(store)
    wait_for(lambda: is_settled(store), "the rest is handled")
    consumer.close()
    assert consumer.got == names[5:]


def test_a_group_goes_to_either_end_to_an_offset_and_to_a_time(store: MessageStore) -> None:
    send(store, "a", "b")
    moment = store.state.last_store_timestamp + 2
    wait_for(lambda: time.time() * 1000 > moment, "time goes on")
    send(store, "c", "d", "e")
    at = datetime.fromtimestamp(moment / 1000, UTC)
    moves: list[tuple[Position, int]] = [
        ("latest", 5), (3, 3), (at, 2), ("earliest", 0), (at + timedelta(days=1), 5)
    ]  # fmt: skip
    before = None
    for to, expected in moves:
        (told,) = Admin(store).seek("g", "t", to, dry_run=True)
        assert (told.from_offset, told.to_offset) == (before, expected)
        assert [queue.committed_offset for queue in Admin(store).lag("g")] == ([] if before is None else [before])
        before = expected
        assert Admin(store).seek("g", "t", to) == [told]
        assert [queue.committed_offset for queue in Admin(store).lag("g")] == [expected]
        assert config_file.read_consumer_offsets(store.root)["t", "g"] == {0: expected}


def test_one_queue_may_be_moved_alone(store: MessageStore) -> None:
    send(store, *map(str, range(8)), queues=2)
    Admin(store).seek("g", "t", "latest")
    Admin(store).seek("g", "t", 1, queue_id=1)
    assert [queue.committed_offset for queue in Admin(store).lag("g")] == [4, 1]


def test_what_cannot_be_is_refused_and_nothing_is_moved(store: MessageStore) -> None:
    send(store, "a", "b", "c", queues=2)  # two messages in one queue, one in the other
    with pytest.raises(OffsetOutOfRange, match=r"offset 2: queue \d of 't' has 0 to 1"):
        Admin(store).seek("g", "t", 2)
    with pytest.raises(OffsetOutOfRange, match="offset -1"):
        Admin(store).seek("g", "t", -1)
    with pytest.raises(ValueError, match="time zone"):
        Admin(store).seek("g", "t", datetime(2026, 11, 20))  # noqa: DTZ001 - what is refused
    with pytest.raises(ValueError, match="to='begin'"):
        Admin(store).seek("g", "t", "begin")  # type: ignore[arg-type]
    with pytest.raises(UnknownTopic):
        Admin(store).seek("g", "nothing", "latest")
    with pytest.raises(UnknownTopic):
        Admin(store).seek("g", "t", "latest", queue_id=2)
    with pytest.raises(InvalidName):
        Admin(store).seek("a|b", "t", "latest")
    assert Admin(store).lag("g") == []


@pytest.mark.guarantee("G16")
def test_a_paused_group_takes_nothing_until_it_is_resumed(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a member with nothing to do, that does not look by itself
    monkeypatch.setattr("rmqclient.delivery.process_queue._LOOK_AT_PAUSE_MS", 60_000)
    monkeypatch.setattr("rmqclient.delivery.turns.LONGEST_SLEEP_S", 60.0)
    send(store, "a")
    consumer = Consumer(store)
    wait_for(lambda: is_settled(store), "everything is handled")

    # When the group is paused and messages come
    assert [queue.state for queue in Admin(store).pause("g")] == ["paused"]
    send(store, "b", "c")
    (queue,) = consumer.consumer.subscriptions[0].delivery.queues
    wait_for(lambda: queue.flow_control.value == "paused", "the owner has seen it")
    assert (consumer.got, [queue.lag for queue in Admin(store).lag("g")]) == (["a"], [2])

    # Then they are handled when it is resumed, because that wakes its owner
    assert [queue.state for queue in Admin(store).resume("g")] != ["paused"]
    wait_for(lambda: is_settled(store), "everything is handled")
    assert Admin(store).lag("g")[0].state == "idle"
    consumer.close()
    assert consumer.got == ["a", "b", "c"]


def test_a_pause_is_of_a_group_of_a_topic_or_of_a_queue(store: MessageStore) -> None:
    send(store, "a", "b", queues=2)
    with Producer(store) as producer:
        producer.create_topic("u", 1)
    for name in ("t", "u"):
        Admin(store).seek("g", name, "earliest")
    Admin(store).seek("other", "t", "earliest")

    def paused() -> list[tuple[str, int]]:
        return [(queue.topic, queue.queue_id) for queue in Admin(store).lag("g") if queue.state == "paused"]

    for arguments, expected in [
        ({}, [("t", 0), ("t", 1), ("u", 0)]),
        ({"topic": "t"}, [("t", 0), ("t", 1)]),
        ({"topic": "t", "queue_id": 1}, [("t", 1)]),
    ]:
        Admin(store).pause("g", **arguments)  # type: ignore[arg-type]
        assert paused() == expected
        assert [queue.state for queue in Admin(store).lag("other")] == ["no owner"] * 2
        Admin(store).resume("g")
        assert paused() == []
    unknown: list[tuple[str, str | None, int | None]] = [("nobody", None, None), ("g", "v", None), ("g", "t", 2)]
    for group, topic, queue_id in unknown:
        with pytest.raises(UnknownGroup, match=f"group '{group}' never consumed"):
            Admin(store).pause(group, topic, queue_id=queue_id)


@pytest.mark.guarantee("G16")
def test_processes_that_are_killed_and_moved_handle_everything_from_the_new_position_on(store: MessageStore) -> None:
    # Given two processes that work through some messages slowly
    names = takeover.send(store, 200)
    with members(store, 2, pause_s=0.002) as (first, second):
        wait_for(lambda: len(first.names("end") + second.names("end")) >= 60, "some are handled")

        # When the group is moved back under them, and one of them is killed
        at = {each: len(each.names("start")) for each in (first, second)}  # before: they begin anew at once
        Admin(store).seek(GROUP, TOPIC, "earliest")
        first.send_signal(signal.SIGKILL)
        wait_for(lambda: takeover.is_finished(store), "everything is handled")

        # Then every message was begun after that, those that were handled before, too
        after = {name for each in (first, second) for name in each.names("start")[at[each] :]}
        assert after == set(names)
        assert second.process.poll() is None
