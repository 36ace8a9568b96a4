"""Compaction: what a pass keeps, where readers find it, and what waits for it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.errors import ConfigMismatch, MessageRejected
from rmqclient.store.files.compacted_file import open_compacted
from rmqclient.store.inspect.verify import verify
from rmqclient.store.kernel._kernel import Route
from rmqclient.store.settings.config_file import TOPICS_FILE, TopicConfig, read_topics, write_topics
from rmqclient.store.upkeep import compaction_pass, retention
from tests.support.stores import appender_of
from tests.unit.upkeep.compacted import CONFIG, QUEUE, compact, pulled, send


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAUSE_S", 0)


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root, CONFIG, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def producer(store: MessageStore) -> Producer:
    made = Producer(store)
    made.create_topic("prices", 1, cleanup_policy="compact")
    return made


def test_a_compact_topic_is_known_to_other_processes_and_to_a_later_opening(root: Path) -> None:
    with Producer(root, config=CONFIG) as producer:
        producer.create_topic("prices", 2, cleanup_policy="compact")
        assert len(producer.create_topic("prices", 9)) == 2
    with open_store(root) as again:
        assert again.topics.is_compact("prices")
        assert not again.topics.is_compact("others")
    entry = json.loads((root / TOPICS_FILE).read_text())["topicConfigTable"]["prices"]
    assert entry["attributes"] == {"cleanup.policy": "COMPACTION"}  # as RocketMQ 5 has it


def test_a_topic_keeps_its_policy_when_a_broker_writes_its_file_without_it(root: Path) -> None:
    with Producer(root, config=CONFIG) as producer:
        producer.create_topic("prices", 2, cleanup_policy="compact")
    document = json.loads((root / TOPICS_FILE).read_text())
    del document["topicConfigTable"]["prices"]["attributes"]
    (root / TOPICS_FILE).write_text(json.dumps(document))
    with open_store(root) as again:
        assert again.topics.is_compact("prices")


def test_a_topic_that_is_there_cannot_become_compact(store: MessageStore) -> None:
    producer = Producer(store)
    producer.send(Message("prices", b"1"))
    with pytest.raises(ConfigMismatch, match="'delete', asked for 'compact'"):
        producer.create_topic("prices", 1, cleanup_policy="compact")
    with pytest.raises(ValueError, match="give 'delete' or 'compact'"):
        producer.create_topic("prices", 1, cleanup_policy="compacted")


def test_attributes_of_a_topic_that_nobody_here_knows_are_kept(root: Path) -> None:
    write_topics(root, {"prices": TopicConfig(cleanup_policy="compact")})
    document = json.loads((root / TOPICS_FILE).read_text())
    document["topicConfigTable"]["prices"]["attributes"]["message.type"] = "NORMAL"
    (root / TOPICS_FILE).write_text(json.dumps(document))
    write_topics(root, read_topics(root))
    kept = json.loads((root / TOPICS_FILE).read_text())["topicConfigTable"]["prices"]["attributes"]
    assert kept == {"cleanup.policy": "COMPACTION", "message.type": "NORMAL"}


@pytest.mark.guarantee("G40")
def test_a_send_without_a_key_is_refused_before_a_byte_is_written(store: MessageStore, producer: Producer) -> None:
    end = store.state.written_to
    for send_one in (producer.send, lambda message: producer.send_batch([message], "shard")):
        with pytest.raises(MessageRejected, match="topic 'prices' is compact"):
            send_one(Message("prices", b"1"))
    buffered = Producer(store, write_buffer_bytes=1 << 16)
    with pytest.raises(MessageRejected, match="topic 'prices' is compact"):
        buffered.send_buffered(Message("prices", b"1"))
    assert store.state.written_to == end


def test_messages_of_a_key_go_to_one_queue_however_they_are_sent(store: MessageStore) -> None:
    with Producer(store, write_buffer_bytes=1 << 16) as producer:
        producer.create_topic("prices", 5, cleanup_policy="compact")
        keys = [f"key{number}" for number in range(20)]
        homes = {key: producer.send(Message("prices", b"1", keys=[key])).queue for key in keys}
        assert len(set(homes.values())) > 1
        for key in keys:
            assert producer.send(Message("prices", b"2", keys=[key, "other"])).queue == homes[key]
            assert producer.send_batch([Message("prices", b"3", keys=[key])])[0].queue == homes[key]
            producer.send_buffered(Message("prices", b"4", keys=[key]))
        producer.flush()
        for queue in set(homes.values()):
            assert {MessageQueue("prices", queue.queue_id)} == {homes[key] for _, key, _ in pulled(store, queue)}


def test_a_batch_of_keys_that_have_different_queues_is_refused_whole(store: MessageStore) -> None:
    producer = Producer(store)
    producer.create_topic("prices", 5, cleanup_policy="compact")
    batch = [Message("prices", b"1", keys=[f"key{number}"]) for number in range(20)]
    end = store.state.written_to
    with pytest.raises(MessageRejected, match="make a batch for each, or give a sharding_key"):
        producer.send_batch(batch)
    assert store.state.written_to == end
    assert len({result.queue for result in producer.send_batch(batch, "all of them")}) == 1


def test_a_pass_keeps_the_latest_message_of_each_key_as_it_stood_in_the_log(
    root: Path, store: MessageStore, producer: Producer
) -> None:
    send(producer, ("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b"5"))
    records = {number: store.messages.at(QUEUE, number).record() for number in range(5)}
    assert compact(store) == 5
    file = open_compacted(root, QUEUE)
    assert file is not None
    kept = {message.queue_offset: message.record() for _, _, message in file.messages() if message}
    assert kept == {number: records[number] for number in (2, 3, 4)}
    assert (file.compacted_to, file.count) == (5, 3)
    assert verify(root) == []


def test_what_is_not_flushed_is_not_compacted(store: MessageStore, producer: Producer) -> None:
    send(producer, ("a", b"1"))
    store.flusher.flush_thorough()
    send(producer, ("a", b"2"))
    assert store.compaction.compact(QUEUE) == 1


def test_a_later_pass_goes_on_where_the_one_before_ended(
    root: Path, store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_pass, "MOST_KEYS", 3)
    send(producer, *((f"k{number % 5}", b"%d" % (number % 10)) for number in range(20)), fill=1)
    ends: list[int] = []
    while not ends or ends[-1] < 20:
        ends.append(compact(store))
    assert len(ends) > 2
    file = open_compacted(root, QUEUE)
    assert file is not None
    assert [message.queue_offset for _, _, message in file.messages() if message] == [15, 16, 17, 18, 19]
    assert verify(root) == []


def test_a_tombstone_deletes_its_key_and_goes_itself_after_its_time(
    root: Path, store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(producer, ("a", b"1"), ("b", b"2"), ("a", b""))
    compact(store)
    send(producer, ("c", b"3"))
    compact(store)
    file = open_compacted(root, QUEUE)
    assert file is not None
    assert [entry.queue_offset for _, entry, _ in file.messages() if entry] == [1, 2, 3]
    deleted_at = [entry.delete_at for _, entry, _ in file.messages() if entry][1]
    for now_ms, expected in ((deleted_at - 1, [1, 2, 3, 4]), (deleted_at, [1, 3, 4, 5])):
        monkeypatch.setattr(compaction_pass, "now_ms", lambda now_ms=now_ms: now_ms)
        send(producer, (f"d{now_ms}", b"4"))
        compact(store)
        file = open_compacted(root, QUEUE)
        assert file is not None
        assert [entry.queue_offset for _, entry, _ in file.messages() if entry] == expected


def test_records_without_a_key_are_told_of_and_go_with_their_files(
    root: Path, store: MessageStore, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.send(Message("prices", b"1", keys=["a"]))
    broker = appender_of(store)  # which knows of no policy
    broker.add_route(Route("prices", [QUEUE], [store.topics.slot(QUEUE)]))
    broker.append(Message("prices", b"2"))
    with caplog.at_level(logging.WARNING):
        compact(store)
    assert "1 messages of queue 0 of prices have no key" in caplog.text
    file = open_compacted(root, QUEUE)
    assert file is not None
    assert file.count == 1
