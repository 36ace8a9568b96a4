"""Messages are found by their ids, by key and by time, also while others append, and also in a broker's store."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.store import Message, MessageQueue, MessageStore, open_store
from rmqclient.store.files.file_queue import FileQueue, MappingCache
from rmqclient.store.log import query
from rmqclient.store.log.consume_queue import ConsumeQueue, ConsumeQueues, Entry
from rmqclient.store.log.index_file import IndexFiles, paths, sizes_in
from tests.support.oracle import reference
from tests.support.oracle.index import keys_of
from tests.support.written import ORDERS, PAYMENTS, SMALL, appender_of, fill

GOLDEN = Path(__file__).parents[2] / "compat" / "golden"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        yield opened


# --- by id ----------------------------------------------------------------------------------------


@pytest.mark.guarantee("G11")
def test_a_message_is_found_by_the_id_that_its_sender_got_and_by_its_offset_id(store: MessageStore) -> None:
    fill(store, 20)
    sent = appender_of(store).append(Message(PAYMENTS, b"this one"))
    fill(store, 20)
    found = store.messages.by_id(sent.message_id)
    assert found is not None
    assert found.body == b"this one"
    again = store.messages.by_id(found.offset_message_id.lower())
    assert again is not None
    assert again.body == b"this one"


@pytest.mark.parametrize(
    "nobody", ["", "x" * 32, "0" * 32, "F" * 32, "7F00000100002A9F" + "00000000000000FF", "é" * 56]
)
def test_an_id_that_no_message_has_finds_none(store: MessageStore, nobody: str) -> None:
    fill(store, 5)
    assert store.messages.by_id(nobody) is None


def test_an_id_is_looked_for_in_one_topic_when_that_is_said(store: MessageStore) -> None:
    sent = appender_of(store).append(Message(PAYMENTS, b"this one"))
    found = store.messages.by_id(sent.message_id, PAYMENTS)
    assert found is not None
    assert store.messages.by_id(sent.message_id, ORDERS) is None
    assert store.messages.by_id(found.offset_message_id, ORDERS) is None


# --- by key and time ------------------------------------------------------------------------------


@pytest.mark.guarantee("G11")
def test_a_query_sees_what_was_sent_a_moment_ago(store: MessageStore) -> None:
    for number in range(3):
        appender_of(store).append(Message(ORDERS, b"%d" % number, keys=["k"]))
        assert [found.body for found in store.messages.by_key(ORDERS, "k", limit=1)] == [b"%d" % number]


@pytest.mark.guarantee("G11")
def test_messages_of_another_topic_or_time_are_not_found(store: MessageStore) -> None:
    appender_of(store).append(Message(ORDERS, b"", keys=["k"]))
    (found,) = store.messages.by_key(ORDERS, "k")
    stored = found.store_timestamp
    assert store.messages.by_key(PAYMENTS, "k") == []
    assert len(store.messages.by_key(ORDERS, "k", begin_ms=stored, end_ms=stored)) == 1
    assert store.messages.by_key(ORDERS, "k", begin_ms=stored + 1) == []
    assert store.messages.by_key(ORDERS, "k", end_ms=stored - 1) == []


def test_topics_that_have_a_key_are_told_from_all_in_one_pass(store: MessageStore) -> None:
    appender = appender_of(store)
    sent = appender.append(Message(ORDERS, b"", keys=["k"]))
    fill(store, 200)  # over several files of the index
    appender.append(Message(PAYMENTS, b"", keys=["k", "p"]))
    topics = ["nowhere", PAYMENTS, ORDERS]
    assert store.messages.topics_with("k", topics) == [PAYMENTS, ORDERS]
    assert store.messages.topics_with("p", topics) == [PAYMENTS]
    assert store.messages.topics_with(sent.message_id, topics) == [ORDERS]
    assert store.messages.topics_with("nobody has it", topics) == []
    assert store.messages.topics_with("\ud800", topics) == []


def test_a_key_that_stands_twice_in_a_message_finds_it_once(store: MessageStore) -> None:
    appender_of(store).append(Message(ORDERS, b"", keys=["k", "k"]))
    assert len(store.messages.by_key(ORDERS, "k")) == 1


# --- by time --------------------------------------------------------------------------------------


def stamped_queue(root: Path, timestamps: list[int]) -> tuple[FileQueue, ConsumeQueues]:
    """Make a log and a queue whose messages were stored at these times, by the reference codec."""
    records, offset = [], 0
    for number, timestamp in enumerate(timestamps):
        record = reference.ReferenceRecord(
            topic="t", queue_offset=number, commit_log_offset=offset, store_timestamp=timestamp
        )
        records.append(reference.encode(record))
        offset += len(records[-1])
    (root / "commitlog").mkdir(parents=True)
    size = max(4_096, offset + 8)
    (root / "commitlog" / f"{0:020d}").write_bytes(b"".join(records).ljust(size, b"\0"))
    mappings = MappingCache(8)
    queues = ConsumeQueues(root, 20 * 64, mappings)
    at = 0
    for number, content in enumerate(records):
        queues[MessageQueue("t", 0)].write(number, Entry(at, len(content), 0))
        at += len(content)
    return FileQueue(root / "commitlog", size, scratch=root, mappings=mappings), queues


@given(steps=st.lists(st.integers(0, 3), max_size=50), wanted=st.integers(90, 260))
def test_the_offset_of_a_time_is_that_of_the_first_message_stored_then_or_later(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], wanted: int
) -> None:
    times = [100 + sum(steps[:number]) for number in range(len(steps))]
    log_files, queues = stamped_queue(tmp_path_factory.mktemp("times"), times)
    found = query.offset_by_time(log_files, queues[MessageQueue("t", 0)], range(len(times)), wanted)
    assert found == next((number for number, time in enumerate(times) if time >= wanted), len(times))


def test_a_time_near_the_end_is_found_by_looking_near_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_files, queues = stamped_queue(tmp_path, list(range(60)))
    looked: list[int] = []
    entry_of = ConsumeQueue.entry

    def looked_at(queue: ConsumeQueue, queue_offset: int) -> Entry:
        looked.append(queue_offset)
        return entry_of(queue, queue_offset)

    monkeypatch.setattr(ConsumeQueue, "entry", looked_at)
    assert query.offset_by_time(log_files, queues[MessageQueue("t", 0)], range(60), 57) == 57
    assert min(looked) >= 52


def test_a_damaged_message_does_not_mislead_the_search(tmp_path: Path) -> None:
    log_files, queues = stamped_queue(tmp_path, list(range(60)))
    queue = queues[MessageQueue("t", 0)]
    for number in (29, 30, 45):
        at = queue.entry(number).commit_log_offset
        memoryview(log_files.mapping(0))[at + 60 : at + 64] = b"\xff\xff\xff\xff"
    for wanted in (10, 28, 32, 44, 47, 59):
        assert query.offset_by_time(log_files, queue, range(60), wanted) == wanted
    assert query.offset_by_time(log_files, queue, range(60), 31) in (29, 30, 31), (
        "behind it come those that are damaged"
    )


# --- a broker's store -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["store-4.9.8-clean", "store-4.9.8-broker-tx-retry-dlq"])
def test_every_message_of_a_brokers_store_is_found_by_its_keys_in_the_brokers_own_index(
    tmp_path: Path, name: str
) -> None:
    with tarfile.open(GOLDEN / f"{name}.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    log_bytes = min((root / "commitlog").iterdir()).stat().st_size
    mappings = MappingCache(8, writable=False)
    log_files = FileQueue(root / "commitlog", log_bytes, scratch=root, mappings=mappings)
    index_files = IndexFiles(root, *sizes_of_index(root), mappings)
    everything = range(log_files.bases()[-1] + log_bytes)
    for offset, record in reference.read_commit_log(root):
        for key in keys_of(record):
            found = query.by_key(log_files, index_files, everything, record.topic, key, (0, query.END_OF_TIME))
            assert offset in [each.commit_log_offset for each in found], (record.topic, key)


def sizes_of_index(root: Path) -> tuple[int, int]:
    found = sizes_in(paths(root)[0])
    assert found is not None
    return found
