"""Records for pulls: copied as they stand, checked, filtered, and with the store host that the client knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Producer
from rmqclient.store import Message, MessageQueue, MessageStore, ReceivedMessage, TagSet, open_store
from rmqclient.store.kernel._kernel import READ, Appender, RecordReader, append_received
from rmqclient.store.wire import ReadStatus, decode_records
from tests.support.oracle import reference
from tests.support.stores import QUEUE, SMALL, TOPIC, appender_of, body_of
from tests.unit.upkeep.compacted import CONFIG, compact, pulled, send
from tests.unit.upkeep.compacted import QUEUE as PRICES
from tests.unit.upkeep.retained import force

SERVER = bytes((192, 168, 0, 7)) + (9_876).to_bytes(4, "big")
SERVER_6 = bytes(range(16, 32)) + (9_876).to_bytes(4, "big")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def appender(store: MessageStore) -> Appender:
    return appender_of(store)


@pytest.fixture
def reader(store: MessageStore) -> RecordReader:
    store.topics.create(TOPIC, 1)
    return store.grants.record_reader(QUEUE)


def fill(appender: Appender, count: int, size: int = 60, tags: Sequence[str | None] = (None,)) -> None:
    for number in range(count):
        appender.append(Message(TOPIC, body_of(number, size), tags=tags[number % len(tags)]))


def read(
    reader: RecordReader,
    offset: int,
    tags: Sequence[str] = (),
    passes: Callable[[ReceivedMessage], bool] | None = None,
    **more: Any,
) -> tuple[list[ReceivedMessage], int, ReadStatus]:
    limits = {"most_messages": 32, "most_bytes": 262_144, "most_looked_at": 10_000, **more}
    body, next_offset, count, status = reader.read(offset, TagSet(tags, passes), **limits)
    messages = decode_records(body, QUEUE)
    assert len(messages) == count
    assert (status == ReadStatus.FOUND) == (count > 0)
    return messages, next_offset, ReadStatus(status)


def test_the_numbers_are_those_of_the_kernel() -> None:
    assert {status.name: status.value for status in ReadStatus} == READ


def test_records_are_read_as_they_stand(store: MessageStore, appender: Appender, reader: RecordReader) -> None:
    fill(appender, 50)
    messages, next_offset, status = read(reader, 10)
    assert [message.queue_offset for message in messages] == list(range(10, 42))
    assert (next_offset, status) == (42, ReadStatus.FOUND)
    assert [m.record() for m in messages] == [store.messages.at(QUEUE, n).record() for n in range(10, 42)]


def test_a_limit_of_bytes_holds_from_the_second_record_on(appender: Appender, reader: RecordReader) -> None:
    fill(appender, 5, size=500)
    size = read(reader, 0, most_messages=1)[0][0].size
    assert len(read(reader, 0, most_bytes=1)[0]) == 1
    assert len(read(reader, 0, most_bytes=2 * size)[0]) == 2
    assert len(read(reader, 0, most_bytes=2 * size - 1)[0]) == 1


def test_reading_goes_over_the_ends_of_files(store: MessageStore, appender: Appender, reader: RecordReader) -> None:
    fill(appender, 150, size=1_500)
    assert len(store.log_files.bases()) > 3
    offset, seen = 0, []
    while True:
        messages, offset, status = read(reader, offset)
        if status is not ReadStatus.FOUND:
            break
        seen += [message.queue_offset for message in messages]
    assert (seen, offset, status) == (list(range(150)), 150, ReadStatus.AT_END)


def test_an_offset_above_the_end_gives_the_end(appender: Appender, reader: RecordReader) -> None:
    assert read(reader, 0)[1:] == (0, ReadStatus.AT_END)
    fill(appender, 3)
    assert read(reader, 3)[1:] == (3, ReadStatus.AT_END)
    assert read(reader, 4)[1:] == (3, ReadStatus.BEYOND_END)


def test_tags_select(appender: Appender, reader: RecordReader) -> None:
    fill(appender, 60, tags=["a", "b", "c", None])
    messages, next_offset, _ = read(reader, 1, tags=["a", "c"], most_messages=5)
    assert [message.queue_offset for message in messages] == [2, 4, 6, 8, 10]
    assert next_offset == 11


def test_tags_with_the_same_hash_are_told_apart(appender: Appender, reader: RecordReader) -> None:
    fill(appender, 10, tags=["Aa", "BB"])
    assert [message.tags for message in read(reader, 0, tags=["BB"])[0]] == ["BB"] * 5


def test_a_search_in_vain_says_how_far_it_looked(appender: Appender, reader: RecordReader) -> None:
    fill(appender, 200, tags=["a"])
    read(reader, 0)
    assert read(reader, 0, tags=["b"], most_looked_at=70)[1:] == (70, ReadStatus.NONE_WANTED)
    assert read(reader, 70, tags=["b"], most_looked_at=1_000)[1:] == (200, ReadStatus.NONE_WANTED)


def test_a_predicate_is_asked_about_messages_whose_tag_matches(appender: Appender, reader: RecordReader) -> None:
    fill(appender, 20, tags=["a", "b"])
    asked: list[int] = []

    def passes(message: ReceivedMessage) -> bool:
        asked.append(message.queue_offset)
        return message.queue_offset % 4 == 0

    messages, next_offset, _ = read(reader, 0, ["a"], passes)
    assert asked == list(range(0, 20, 2))
    assert [message.queue_offset for message in messages] == [0, 4, 8, 12, 16]
    assert next_offset == 20


@pytest.mark.parametrize("stored", [SERVER, SERVER_6])
@pytest.mark.parametrize("asked", [bytes((10, 0, 0, 1)) + SERVER[4:], bytes(16) + SERVER[4:], SERVER, SERVER_6])
def test_the_client_finds_the_address_that_it_knows(
    appender: Appender, reader: RecordReader, stored: bytes, asked: bytes
) -> None:
    for number in range(3):
        append_received(
            appender, TOPIC, 0, body_of(number), "TAGS\x01t", flag=1, sys_flag=0, born_timestamp=9, born_host=SERVER_6,
            store_host=stored, reconsume_times=3,
        )  # fmt: skip
    body, _, count, _ = reader.read(
        0, TagSet(()), most_messages=9, most_bytes=100_000, most_looked_at=9, store_host=asked
    )
    assert count == 3
    at = 0
    for number, message in enumerate(decode_records(body)):
        offset_id = asked.hex().upper() + f"{message.commit_log_offset:016X}"
        assert message.offset_message_id == offset_id
        assert (message.body, message.reconsume_times, message.queue_offset) == (body_of(number), 3, number)
        found = reference.decode(body, at)
        assert isinstance(found, reference.ReferenceRecord)
        assert found.has_crc
        assert (found.store_host, found.sys_flag & 0x20 > 0) == (asked[:-4], len(asked) == 20)
        at += message.size


def test_a_damaged_record_is_stepped_over_and_noted(
    store: MessageStore, appender: Appender, reader: RecordReader
) -> None:
    fill(appender, 5)
    begin = store.messages.at(QUEUE, 2).commit_log_offset
    memoryview(store.log_files.mapping(0))[begin + 100] ^= 0xFF

    messages, next_offset, _ = read(reader, 0)
    assert [message.queue_offset for message in messages] == [0, 1, 3, 4]
    assert next_offset == 5
    assert [(offset, at) for offset, at, _ in reader.damaged] == [(2, begin)]


@pytest.mark.parametrize("at", range(20))
def test_a_damaged_entry_is_stepped_over(
    store: MessageStore, appender: Appender, reader: RecordReader, at: int
) -> None:
    fill(appender, 5)
    for value in (0x00, 0x7F, 0xFF):
        memoryview(store.consume_queues[QUEUE].files.mapping(0))[40 + at] = value
        messages, next_offset, _ = read(reader, 0)
        assert {0, 1, 3, 4} <= {message.queue_offset for message in messages}
        assert next_offset == 5


def test_removed_messages_are_told_of_before_those_that_are_there(
    store: MessageStore, appender: Appender, reader: RecordReader
) -> None:
    fill(appender, 100, size=1_500)
    read(reader, 0)
    store.flusher.flush_thorough()
    force(store)
    low = store.messages.oldest(QUEUE)
    assert low > 50
    assert read(reader, 0)[1:] == (low, ReadStatus.REMOVED)
    assert read(reader, low - 1)[1:] == (low, ReadStatus.REMOVED)
    assert read(reader, low)[0][0].queue_offset == low
    assert reader.damaged == []


def test_a_compact_topic_is_read_from_its_compacted_file_on(tmp_path: Path) -> None:
    with open_store(tmp_path / "compact", CONFIG, housekeeping=False) as store:
        producer = Producer(store)
        producer.create_topic(PRICES.topic, 1, cleanup_policy="compact")
        send(producer, *[(f"key{number % 40}", b"a") for number in range(100)])
        compact(store)
        for _ in range(40):
            producer.send(Message("others", b"x" * 2_000))
        store.flusher.flush_thorough()
        force(store)
        expected = [offset for offset, _, _ in pulled(store)]
        reader = store.grants.record_reader(PRICES)

        offset, seen = 0, []
        while offset < reader.max_offset:
            messages, offset, _ = read(reader, offset, most_messages=3)
            seen += [message.queue_offset for message in messages]
        assert len(expected) >= 40
        assert seen == expected
        for _ in range(2):  # another group, from further back
            assert read(reader, seen[5], most_messages=4)[0][3].queue_offset == seen[8]
            assert read(reader, seen[5], most_bytes=2_500)[1] == seen[6] + 1


@pytest.mark.parametrize("unwrap", [True, False])
def test_a_compressed_batch_is_returned_as_its_messages_if_asked(
    store: MessageStore, appender: Appender, reader: RecordReader, unwrap: bool
) -> None:
    batch = [Message(TOPIC, body_of(number)) for number in range(5)]
    appender.append_inner_batch(batch, lambda content: (content, 0), most_bytes=10_000)
    fill(appender, 1)
    messages, next_offset, _ = read(reader, 0, unwrap=unwrap)
    assert next_offset == 2
    if unwrap:
        assert [message.body for message in messages] == [body_of(n) for n in [*range(5), 0]]
        assert [message.queue_offset for message in messages] == [0] * 5 + [1]
    else:
        assert [message.queue_offset for message in messages] == [0, 1]


def test_another_group_may_read_from_further_back(appender: Appender, reader: RecordReader) -> None:
    fill(appender, 80)
    for offset in (70, 3, 41, 0):
        assert read(reader, offset)[0][0].queue_offset == offset


@pytest.mark.parametrize("more", [{"most_messages": 0}, {"most_looked_at": 0}, {"store_host": b"123"}])
def test_limits_that_make_no_sense_are_refused(appender: Appender, reader: RecordReader, more: dict[str, Any]) -> None:
    fill(appender, 1)
    with pytest.raises(ValueError, match=r"at least 1|3 bytes"):
        read(reader, 0, **more)


def test_another_topic_has_its_own_records(store: MessageStore, appender: Appender, reader: RecordReader) -> None:
    fill(appender, 2)
    appender.append(Message("other", b"x"))
    other = store.grants.record_reader(MessageQueue("other", 0))
    assert [message.topic for message in read(other, 0)[0]] == ["other"]
