"""Topics and their queues, as several handles and the file ``topics.json`` see them."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageQueue, MessageStore, StoreConfig, layout, open_store
from rmqclient.store.errors import TableFull, UnknownTopic
from rmqclient.store.settings import config_file
from rmqclient.store.settings.config_file import TopicConfig
from tests.support.stores import appender_of

SMALL = StoreConfig(commit_log_file_bytes=36_864, max_body_bytes=2_048, consume_queue_file_entries=64)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def other(store: MessageStore) -> Iterator[MessageStore]:
    """The same store as another process has it open."""
    with open_store(store.root, housekeeping=False) as opened:
        yield opened


def test_a_topic_that_was_removed_and_made_again_as_compact_is_compact_to_every_process(
    store: MessageStore, other: MessageStore
) -> None:
    queues = store.topics.create("t", 2)
    assert (other.topics.is_compact("t"), other.topics.compact_queues()) == (False, [])
    store.topics.remove("t")
    store.topics.create("t", 2, "compact")
    assert (other.topics.is_compact("t"), other.topics.compact_queues()) == (True, queues)


def test_a_topic_is_made_once_and_keeps_its_queues(store: MessageStore, other: MessageStore) -> None:
    made = store.topics.create("t", 3)
    assert made == [MessageQueue("t", number) for number in range(3)]
    assert store.topics.create("t", 8) == made
    assert other.topics.create("t", 1) == made
    assert len(store.topics) == len(other.topics) == 3


def test_what_a_running_producer_sends_after_a_removal_is_hidden_by_the_next_one(store: MessageStore) -> None:
    appender = appender_of(store)
    appender.append(Message("t", b"old"))
    assert store.topics.remove("t")
    appender.append(Message("t", b"new"))
    queues = store.topics.queues("t")
    assert sum(store.topics.max_offset(queue) - store.topics.min_offset(queue) for queue in queues) == 1
    assert store.topics.remove("t")
    assert all(store.topics.max_offset(queue) == store.topics.min_offset(queue) for queue in queues)
    assert not store.topics.remove("t")


def test_a_topic_of_another_process_is_seen_at_once(store: MessageStore, other: MessageStore) -> None:
    with pytest.raises(UnknownTopic, match="'t'"):
        other.topics.queues("t")
    store.topics.create("t", 2)
    store.topics.create("a", 1)
    assert other.topics.queues("t") == [MessageQueue("t", 0), MessageQueue("t", 1)]
    assert other.topics.topics() == ["a", "t"]
    assert other.topics.slot(MessageQueue("a", 0)) == 2
    assert other.topics.queue(2) == MessageQueue("a", 0)
    assert store.topics.all_queues() == other.topics.all_queues()


def test_a_topic_that_is_made_while_a_close_name_is_looked_for_is_no_error(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.topics.create("orders", 1)

    def made_meanwhile(_name: str, names: Iterable[str], n: int) -> list[str]:
        found = iter(names)
        first = next(found)
        store.topics.create("mails", 1)
        return [first, *found][:n]

    monkeypatch.setattr(difflib, "get_close_matches", made_meanwhile)
    with pytest.raises(UnknownTopic, match="did you mean orders"):
        store.topics.queues("order")


def test_what_does_not_exist_is_unknown(store: MessageStore) -> None:
    store.topics.create("t", 2)
    with pytest.raises(UnknownTopic, match="queue 2 of topic 't'"):
        store.topics.slot(MessageQueue("t", 2))
    with pytest.raises(UnknownTopic):
        store.topics.max_offset(MessageQueue("nothing", 0))
    with pytest.raises(IndexError):
        store.topics.queue(2)


def test_everybody_is_told_of_a_new_topic(store: MessageStore) -> None:
    word = layout.RUNTIME_HEADER.at["membership_word"]
    before = store.state.words.load32(word)
    store.topics.create("t", 1)
    assert store.state.words.load32(word) != before


def test_one_topic_made_by_many_at_once_is_one(store: MessageStore, other: MessageStore) -> None:
    found: list[list[MessageQueue]] = []

    def make(handle: MessageStore) -> None:
        found.append(handle.topics.create("t", 4))

    threads = [threading.Thread(target=make, args=(handle,)) for handle in (store, other) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[MessageQueue("t", number) for number in range(4)]] * 8
    assert len(store.topics) == 4


@pytest.mark.guarantee("G10")
def test_topics_json_says_what_a_broker_needs_before_any_queue_can_be_used(store: MessageStore) -> None:
    store.topics.create("t", 3)
    document = json.loads((store.root / "config" / "topics.json").read_text(encoding="utf-8"))
    table = document["topicConfigTable"]["t"]
    assert (table["readQueueNums"], table["writeQueueNums"], table["perm"]) == (3, 3, 6)


def test_a_topic_whose_maker_died_half_way_is_completed(store: MessageStore, other: MessageStore) -> None:
    # Given a process that died after writing topics.json, before any slot, and one that died after a part of the slots
    topics = {"early": TopicConfig(read_queue_count=2, write_queue_count=2), "half": TopicConfig(4, 4)}
    config_file.write_topics(store.root, topics)
    store.topics.add([MessageQueue("half", 0), MessageQueue("half", 1)])

    # Then whoever wants the topic gets it as it was meant
    assert other.topics.create("early", 9) == [MessageQueue("early", 0), MessageQueue("early", 1)]
    assert len(other.topics.create("half", 9)) == 4


def test_topics_are_there_again_after_a_restart(store: MessageStore) -> None:
    store.topics.create("used", 2)
    store.topics.create("empty", 3)
    appender = store.appenders.make(store.topics.queues, lambda body: bytes(str(body), "utf-8"))
    results = [appender.append(Message("used", b"")) for _ in range(5)]
    store.close()
    with open_store(store.root, housekeeping=False) as again:
        assert len(again.topics.queues("empty")) == 3
        for queue in again.topics.queues("used"):
            assert again.topics.max_offset(queue) == sum(result.queue == queue for result in results)
            assert again.topics.min_offset(queue) == 0


def test_a_queue_can_have_more_to_read_than_to_write(store: MessageStore) -> None:
    config_file.write_topics(store.root, {"shrunk": TopicConfig(read_queue_count=4, write_queue_count=2)})
    assert len(store.topics.create("shrunk", 1)) == 4


def test_a_full_table_takes_no_part_of_a_topic(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "QUEUE_SLOTS", 6)
    store.topics.create("first", 4)
    with pytest.raises(TableFull, match="3 more queues: the store has 4 of at most 6"):
        store.topics.create("second", 3)
    assert store.topics.topics() == ["first"]
    assert len(store.topics.create("third", 2)) == 2


def test_the_longest_name_fits(store: MessageStore, other: MessageStore) -> None:
    store.topics.create("x" * 127, 1)
    assert other.topics.topics() == ["x" * 127]


def test_a_max_offset_is_never_lowered_by_a_repair(store: MessageStore) -> None:
    (queue,) = store.topics.create("t", 1)
    appender = store.appenders.make(lambda _: [queue], lambda body: bytes(str(body), "utf-8"))
    for _ in range(3):
        appender.append(Message("t", b""))
    store.topics.advance_max_offset(queue, 2)
    assert store.topics.max_offset(queue) == 3
