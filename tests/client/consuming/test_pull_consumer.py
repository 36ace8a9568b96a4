"""Pulling: the four outcomes, the wake-up, and the offsets that a group keeps by itself."""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, MessageQueue, Producer, PullConsumer, PullResult, PullStatus, ReceivedMessage
from rmqclient.errors import InvalidName, OffsetOutOfRange, QueueOwned, StoreClosed, StoreUnusable, UnknownTopic
from rmqclient.local.backend import _Queues
from rmqclient.store import MessageStore, StoreConfig, open_store
from rmqclient.store.layout import QUEUE_SLOT
from rmqclient.store.runtime.shared_state import queue_slot_at
from tests.client.conftest import consuming, wait_for
from tests.support.host.load import slowdown

QUEUE = MessageQueue("t", 0)


@pytest.fixture
def consumer(store: MessageStore, producer: Producer) -> PullConsumer:
    producer.create_topic("t", 1)
    return PullConsumer(store, group="g")


def send(producer: Producer, *tags: str | None) -> None:
    for number, tag in enumerate(tags):
        producer.send(Message("t", b"%d" % number, tags=tag))


def offsets(result: PullResult) -> list[int]:
    return [message.queue_offset for message in result.messages]


def remove_below(store: MessageStore, queue_offset: int) -> None:
    """Say that retention has removed what stands below."""
    store.state.words.store(queue_slot_at(store.topics.slot(QUEUE)) + QUEUE_SLOT.at["min_offset"], queue_offset)


# --- the four outcomes -------------------------------------------------------------------------------------------


def test_messages_are_found_from_the_offset_on_up_to_the_limit(consumer: PullConsumer, producer: Producer) -> None:
    send(producer, *[None] * 50)
    result = consumer.pull(QUEUE, 3)
    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (PullStatus.FOUND, 35, 0, 50)
    assert offsets(result) == list(range(3, 35))
    assert offsets(consumer.pull(QUEUE, 45, limit=1_024)) == list(range(45, 50))
    assert offsets(consumer.pull(QUEUE, 45, limit=1)) == [45]


def test_at_the_end_there_is_no_new_message(consumer: PullConsumer, producer: Producer) -> None:
    assert consumer.pull(QUEUE, 0) == PullResult(PullStatus.NO_NEW_MESSAGE, 0, 0, 0)
    send(producer, None)
    assert consumer.pull(QUEUE, 1) == PullResult(PullStatus.NO_NEW_MESSAGE, 1, 0, 1)


def test_tags_that_nothing_has_move_the_offset_on(consumer: PullConsumer, producer: Producer) -> None:
    send(producer, "a", "b", None, "b")
    assert consumer.pull(QUEUE, 0, tags="c") == PullResult(PullStatus.NO_MATCHED_MESSAGE, 4, 0, 4)
    found = consumer.pull(QUEUE, 0, tags="a || b")
    assert (offsets(found), found.next_offset) == ([0, 1, 3], 4)


def test_tags_are_compared_as_text_and_not_by_their_hash(consumer: PullConsumer, producer: Producer) -> None:
    send(producer, "Aa", "BB")  # the same Java hash
    assert offsets(consumer.pull(QUEUE, 0, tags="BB")) == [1]


def test_one_look_passes_over_800_entries_at_most(consumer: PullConsumer, producer: Producer) -> None:
    send(producer, *["a"] * 1_000, "b")
    first = consumer.pull(QUEUE, 0, tags="b", wait=10)
    assert (first.status, first.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 800)
    assert offsets(consumer.pull(QUEUE, first.next_offset, tags="b")) == [1_000]


@pytest.mark.parametrize(("offset", "corrected"), [(6, 5), (1_000, 5), (1, 2), (0, 2), (-1, 2)])
def test_an_offset_outside_of_the_queue_is_corrected_to_its_nearest_end(
    store: MessageStore, consumer: PullConsumer, producer: Producer, offset: int, corrected: int
) -> None:
    send(producer, *[None] * 5)
    remove_below(store, 2)
    assert consumer.pull(QUEUE, offset, wait=10) == PullResult(PullStatus.OFFSET_ILLEGAL, corrected, 2, 5)


def test_an_empty_queue_has_no_other_offset_than_0(consumer: PullConsumer) -> None:
    assert consumer.pull(QUEUE, 7) == PullResult(PullStatus.OFFSET_ILLEGAL, 0, 0, 0)


def test_a_damaged_message_is_stepped_over(
    store: MessageStore, consumer: PullConsumer, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, None, None, None)
    damaged = store.messages.at(QUEUE, 1)
    path = store.log_files.path(0)
    with path.open("r+b") as file:
        file.seek(damaged.commit_log_offset + damaged.size - 3)
        file.write(b"\xff\xff")
    assert offsets(consumer.pull(QUEUE, 0)) == [0, 2]
    assert "message 1 of" in caplog.text


# --- waiting -----------------------------------------------------------------------------------------------------


class Waiting:
    """A pull in a thread of its own."""

    def __init__(self, pull: Callable[[], PullResult]) -> None:
        self.result: PullResult | None = None
        self._pull = pull
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.result = self._pull()


def is_asleep(store: MessageStore) -> bool:
    """Tell whether a consumer asked to be woken by the next message."""
    return store.state.words.load(queue_slot_at(store.topics.slot(QUEUE)) + QUEUE_SLOT.at["waiting_lanes"]) != 0


def test_a_pull_at_the_end_is_woken_by_the_next_message(
    store: MessageStore, consumer: PullConsumer, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqclient.consuming.pull_consumer.LONGEST_SLEEP_S", 60.0)  # only a sender wakes it
    waiting = Waiting(lambda: consumer.pull(QUEUE, 0, wait=60))
    wait_for(lambda: is_asleep(store), "the pull sleeps")
    begin = time.monotonic()
    send(producer, None)
    waiting.thread.join(20)
    assert waiting.result is not None
    assert offsets(waiting.result) == [0]
    assert time.monotonic() - begin < 5 * slowdown()


def test_a_message_that_does_not_match_leaves_it_asleep(
    store: MessageStore, consumer: PullConsumer, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqclient.consuming.pull_consumer.LONGEST_SLEEP_S", 60.0)
    looks, look = [], _Queues.read

    def counted(*arguments: Any) -> PullResult:
        looks.append(arguments)
        return look(*arguments)

    monkeypatch.setattr(_Queues, "read", counted)
    waiting = Waiting(lambda: consumer.pull(QUEUE, 0, tags="b", wait=60))
    wait_for(lambda: is_asleep(store), "the pull sleeps")
    send(producer, "a")
    wait_for(lambda: is_asleep(store), "it sleeps again")
    assert waiting.result is None
    send(producer, "b")
    waiting.thread.join(20)
    assert waiting.result is not None
    assert (offsets(waiting.result), waiting.result.next_offset) == ([1], 2)
    assert len(looks) <= 4, "two at the end, one after each message"


def test_it_wakes_by_itself_when_the_time_is_up(consumer: PullConsumer) -> None:
    begin = time.monotonic()
    assert consumer.pull(QUEUE, 0, wait=0.03).status is PullStatus.NO_NEW_MESSAGE
    assert 0.030 <= time.monotonic() - begin < 5 * slowdown()


def test_what_was_passed_over_while_waiting_is_told_when_the_time_is_up(
    store: MessageStore, consumer: PullConsumer, producer: Producer
) -> None:
    waiting = Waiting(lambda: consumer.pull(QUEUE, 0, tags="b", wait=0.7))
    wait_for(lambda: is_asleep(store), "the pull sleeps")
    send(producer, "a", "a")
    waiting.thread.join(20)
    assert waiting.result == PullResult(PullStatus.NO_MATCHED_MESSAGE, 2, 0, 2)


# --- offsets -----------------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_committed(store: MessageStore, consumer: PullConsumer, producer: Producer) -> None:
    send(producer, *[None] * 10)
    assert consumer.committed_offset(QUEUE) is None
    for offset in (4, 10, 0, 7):
        consumer.commit(QUEUE, offset)
        assert consumer.committed_offset(QUEUE) == PullConsumer(store, group="g").committed_offset(QUEUE) == offset
    assert PullConsumer(store, group="other").committed_offset(QUEUE) is None


def test_a_commit_is_written_for_rocketmq(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Producer(root) as producer:
        producer.create_topic("t", 1)
        send(producer, None, None, None)
        with PullConsumer(root, group="g") as consumer:
            consumer.commit(QUEUE, 2)
    written = json.loads((root / "config" / "consumerOffset.json").read_text())
    assert written["offsetTable"]["t@g"] == {"0": 2}
    with PullConsumer(root, group="g") as consumer:
        assert consumer.committed_offset(QUEUE) == 2


def test_the_handlers_of_the_group_begin_there(store: MessageStore, consumer: PullConsumer, producer: Producer) -> None:
    send(producer, *[None] * 10)
    consumer.commit(QUEUE, 6)
    app, got = App(store.root), []

    @app.handler("t", group="g")
    def handle(message: ReceivedMessage) -> None:
        got.append(message.queue_offset)

    with consuming(store, app):
        wait_for(lambda: len(got) == 4, "the rest is handled")
    assert got == [6, 7, 8, 9]


def test_a_commit_is_refused_while_a_member_has_the_queue(
    store: MessageStore, consumer: PullConsumer, producer: Producer
) -> None:
    send(producer, *[None] * 10)
    app, got = App(store.root), []

    @app.handler("t", group="g")
    def handle(message: ReceivedMessage) -> None:
        got.append(message.queue_offset)

    with consuming(store, app) as running:
        wait_for(lambda: consumer.committed_offset(QUEUE) == 10, "everything is handled")
        with pytest.raises(
            QueueOwned, match=r"group 'g': queue 0 of 't' is owned by member .*rmq group seek"
        ) as refused:
            consumer.commit(QUEUE, 0)
        assert running.client_id in str(refused.value)
        assert consumer.committed_offset(QUEUE) == 10
        assert offsets(consumer.pull(QUEUE, 8)) == [8, 9], "reading is for everybody"
    consumer.commit(QUEUE, 0)
    assert consumer.committed_offset(QUEUE) == 0


def test_a_late_acknowledgement_of_a_former_member_does_not_reach_what_was_committed(
    store: MessageStore, consumer: PullConsumer, producer: Producer
) -> None:
    send(producer, *[None] * 10)
    app, begun, go_on = App(store.root), threading.Event(), threading.Event()

    @app.handler("t", group="g")
    def handle(message: ReceivedMessage) -> None:
        begun.set()
        go_on.wait(20)

    with consuming(store, app) as running:
        assert begun.wait(10)
        running.stop_taking()
        running.close()  # before the handler has ended
        consumer.commit(QUEUE, 0)
        go_on.set()
        assert running.drain(10) == 0
    assert consumer.committed_offset(QUEUE) == 0


def test_times_become_offsets(consumer: PullConsumer, producer: Producer) -> None:
    send(producer, None, None)
    now = datetime.datetime.now(datetime.UTC)
    assert consumer.offset_by_time(QUEUE, now - datetime.timedelta(hours=1)) == 0
    assert consumer.offset_by_time(QUEUE, now + datetime.timedelta(hours=1)) == 2
    with pytest.raises(ValueError, match="time zone"):
        consumer.offset_by_time(QUEUE, datetime.datetime(2026, 11, 20))  # noqa: DTZ001 - what is refused


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"limit": 0}, "limit=0: must be from 1 to 1,024"),
        ({"limit": 1_025}, "limit=1025"),
        ({"wait": -1}, "wait=-1: must be at least 0 s"),
        ({"tags": "a ||"}, "alternative 2 of 2 is empty"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_refused(consumer: PullConsumer, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("|", r"\|")):
        consumer.pull(QUEUE, 0, **arguments)


@pytest.mark.parametrize("offset", [-1, 4])
def test_a_group_cannot_stand_outside_of_its_queue(consumer: PullConsumer, producer: Producer, offset: int) -> None:
    send(producer, None, None, None)
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} of .*0 to 3"):
        consumer.commit(QUEUE, offset)
    assert consumer.committed_offset(QUEUE) is None


def test_queues_that_are_not_there_and_names_that_cannot_be(store: MessageStore, consumer: PullConsumer) -> None:
    assert consumer.queues("t") == [QUEUE]
    for ask in (consumer.min_offset, consumer.max_offset, consumer.committed_offset):
        with pytest.raises(UnknownTopic):
            ask(MessageQueue("t", 1))
    with pytest.raises(UnknownTopic):
        consumer.queues("nothing")
    with pytest.raises(InvalidName):
        PullConsumer(store, group="a|b")


def test_no_store_is_made_by_who_only_reads(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable):
        PullConsumer(tmp_path / "nothing", group="g")
    assert list(tmp_path.iterdir()) == []


def test_after_its_end_it_refuses(tmp_path: Path) -> None:
    open_store(tmp_path / "store", StoreConfig()).close()
    consumer = PullConsumer(tmp_path / "store", group="g")
    consumer.close()
    consumer.close()
    with pytest.raises(StoreClosed):
        consumer.queues("t")
