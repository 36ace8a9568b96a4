"""Copies of a message for another queue, and copies that wait in a delay level: what RocketMQ 4.9 writes for them."""

from __future__ import annotations

import pickle
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageQueue, MessageStore, open_store
from rmqclient.store.errors import BodyTooLarge, MessageRejected, PropertiesTooLarge
from rmqclient.store.kernel._kernel import DELAYS, SCHEDULE_TOPIC, Appender, ReceivedMessage, SendResult, delay_ms
from rmqclient.store.log import record
from tests.support.oracle import reference
from tests.support.stores import SMALL, TOPIC, abandon, appender_of, grant_of

GOLDEN = sorted((Path(__file__).parents[2] / "compat" / "golden").glob("*.tgz"))
OTHER = "%RETRY%billing"


@pytest.fixture
def message(store: MessageStore, appender: Appender) -> ReceivedMessage:
    """Return the one message of the topic, as a handler gets it."""
    appender.append(Message(TOPIC, b"body", tags="paid", keys=["k1", "k2"], properties={"colour": "red"}, flag=7))
    return grant_of(store).take(1, 10)[0]


def record_at(store: MessageStore, result: SendResult) -> reference.ReferenceRecord:
    return dict(reference.read_commit_log(store.root))[result.commit_log_offset]


# --- a copy ---------------------------------------------------------------------------------------


def test_a_copy_keeps_what_was_sent_and_gets_the_properties_in_the_order_given(
    store: MessageStore, appender: Appender, message: ReceivedMessage
) -> None:
    properties = {"RETRY_TOPIC": TOPIC, **message.properties, "WAIT": "false"}
    result = appender.append_copy(message, OTHER, 0, properties, reconsume_times=3)

    original, copy = (found for _, found in reference.read_commit_log(store.root))
    kept = ("body", "flag", "sys_flag", "born_timestamp", "born_host", "born_port", "store_host", "store_port")
    assert [getattr(copy, name) for name in kept] == [getattr(original, name) for name in kept]
    assert (copy.topic, copy.queue_id, copy.queue_offset, copy.reconsume_times) == (OTHER, 0, 0, 3)
    assert list(copy.property_map.items()) == list(properties.items())
    assert copy.has_crc
    assert (result.queue, result.queue_offset) == (MessageQueue(OTHER, 0), 0)
    assert result.message_id == message.message_id
    assert grant_of(store, queue=MessageQueue(OTHER, 0)).take(1, 10)[0].delivery_attempt == 4


def test_a_copy_of_a_copy_has_one_crc(store: MessageStore, appender: Appender, message: ReceivedMessage) -> None:
    appender.append_copy(message, OTHER, 0, message.properties, reconsume_times=1)
    copy = grant_of(store, queue=MessageQueue(OTHER, 0)).take(1, 10)[0]
    appender.append_copy(copy, OTHER, 0, copy.properties, reconsume_times=2)
    again = store.messages.at(MessageQueue(OTHER, 0), 1)
    assert again.record().count(b"__CRC32#") == 1


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"a\x01": "b"}, "0x01 or 0x02"),
        ({"a": "b\x02"}, "0x02"),
        ({"": "b"}, "empty names and values"),
        ({"a": ""}, "empty names and values"),
    ],
)
def test_properties_that_break_the_format_are_refused(
    appender: Appender, message: ReceivedMessage, properties: dict[str, str], said: str
) -> None:
    with pytest.raises(MessageRejected, match=said):
        appender.append_copy(message, OTHER, 0, properties, reconsume_times=1)


@pytest.mark.parametrize("delay_level", [0, 5])
def test_properties_of_a_copy_take_as_much_as_the_format_holds(
    store: MessageStore, tmp_path: Path, delay_level: int
) -> None:
    with open_store(tmp_path / "large", housekeeping=False) as large:
        appender = appender_of(large)
        appender.append(Message(TOPIC, b"body"))
        message = grant_of(large).take(1, 10)[0]
        own = 20 + len("x..") + (len(f"DELAY.5.REAL_TOPIC.{OTHER}.REAL_QID.0.") if delay_level else 0)
        room = 32_767 - own
        appender.append_copy(message, OTHER, 0, {"x": "y" * room}, reconsume_times=1, delay_level=delay_level)
        with pytest.raises(PropertiesTooLarge, match="32767"):
            appender.append_copy(message, OTHER, 0, {"x": "y" * (room + 1)}, reconsume_times=1, delay_level=delay_level)
        assert len(reference.read_commit_log(large.root)) == 2


def test_a_queue_that_does_not_exist_is_refused(appender: Appender, message: ReceivedMessage) -> None:
    for queue_id in (-1, 1):
        with pytest.raises(MessageRejected, match=f"1 queues, and no queue with the id {queue_id}"):
            appender.append_copy(message, OTHER, queue_id, {}, reconsume_times=0)


def test_nobody_writes_into_a_delay_level_but_by_its_number(appender: Appender, message: ReceivedMessage) -> None:
    with pytest.raises(MessageRejected, match="delay_level"):
        appender.append_copy(message, SCHEDULE_TOPIC, 0, {}, reconsume_times=0)


def test_a_record_that_no_file_of_this_store_can_hold_is_refused(store: MessageStore, tmp_path: Path) -> None:
    with open_store(tmp_path / "large", housekeeping=False) as large:
        appender_of(large).append(Message(TOPIC, bytes(40_000)))
        message = grant_of(large).take(1, 10)[0]
        with pytest.raises(BodyTooLarge, match="larger files"):
            appender_of(store).append_copy(message, OTHER, 0, {}, reconsume_times=0)


# --- waiting in a delay level ---------------------------------------------------------------------


@pytest.mark.parametrize("level", range(1, 19))
def test_a_delayed_copy_waits_in_the_queue_of_its_level(
    store: MessageStore, appender: Appender, message: ReceivedMessage, level: int
) -> None:
    result = appender.append_copy(message, OTHER, 0, message.properties, reconsume_times=1, delay_level=level)
    waiting = record_at(store, result)
    assert (waiting.topic, waiting.queue_id) == (SCHEDULE_TOPIC, level - 1)
    assert (result.queue, result.queue_offset) == (MessageQueue(SCHEDULE_TOPIC, level - 1), 0)
    added = {"DELAY": str(level), "REAL_TOPIC": OTHER, "REAL_QID": "0"}
    assert {name: waiting.property_map[name] for name in added} == added
    ((offset, size, tags_code),) = reference.read_consume_queue(store.root, SCHEDULE_TOPIC, level - 1)
    assert (offset, size) == (result.commit_log_offset, waiting.size)
    assert tags_code == waiting.store_timestamp + delay_ms(level) == waiting.entry_code


def test_the_levels_are_those_of_rocketmq() -> None:
    assert " ".join(DELAYS) == "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    assert [delay_ms(level) for level in range(1, 19)] == [1000 * seconds for seconds in reference.DELAY_SECONDS]
    for level in (-1, 0, 19):
        with pytest.raises(ValueError, match=r"1 1s, .* 18 2h"):
            delay_ms(level)


def test_a_level_above_the_highest_is_the_highest(
    store: MessageStore, appender: Appender, message: ReceivedMessage
) -> None:
    result = appender.append_copy(message, OTHER, 0, message.properties, reconsume_times=1, delay_level=40)
    assert result.queue == MessageQueue(SCHEDULE_TOPIC, 17)
    assert record_at(store, result).property_map["DELAY"] == "18"


def test_a_negative_level_is_refused(appender: Appender, message: ReceivedMessage) -> None:
    with pytest.raises(ValueError, match=r"delay_level=-1.*5 1m"):
        appender.append_copy(message, OTHER, 0, {}, reconsume_times=0, delay_level=-1)


def received(root: Path) -> list[ReceivedMessage]:
    """Return every message of a broker's log."""
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        content, position, base = path.read_bytes(), 0, int(path.name)
        while isinstance(outcome := record.decode(content, position, base + position), record.Record):
            found.append(outcome.message)
            position += outcome.size
    return found


@pytest.mark.parametrize("archive", GOLDEN, ids=lambda path: path.stem)
def test_what_waits_has_the_very_bytes_of_a_broker(
    store: MessageStore, appender: Appender, tmp_path: Path, archive: Path
) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "golden", filter="data")
    (root,) = (tmp_path / "golden").iterdir()
    waiting = [message for message in received(root) if message.topic == SCHEDULE_TOPIC]
    assert waiting
    for message in waiting:
        properties = dict(message.properties)
        topic, queue_id = properties.pop("REAL_TOPIC"), int(properties.pop("REAL_QID"))
        store.topics.create(topic, 4)
        result = appender.append_copy(
            message,
            topic,
            queue_id,
            properties,
            reconsume_times=message.delivery_attempt - 1,
            delay_level=int(properties["DELAY"]),
        )
        assert fixed_part(record_at(store, result)) == fixed_part(reference.decode(message.record(), 0))


def fixed_part(found: reference.ReferenceRecord | reference.Blank | None) -> bytes:
    """Return the bytes of a record, but for its place, its store time and our CRC."""
    assert isinstance(found, reference.ReferenceRecord)
    text = found.properties.rstrip(b"\x02")  # brokers from 4.9.1 on leave out the last separator
    placed = replace(found, queue_offset=0, commit_log_offset=0, store_timestamp=0, properties=text)
    return reference.encode(placed, crc_property=False)


# --- hosts, ids, entries --------------------------------------------------------------------------


def test_a_copy_keeps_addresses_that_are_ipv6(store: MessageStore, appender: Appender, tmp_path: Path) -> None:
    (archive,) = (path for path in GOLDEN if path.name == "store-4.9.8-clean.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "golden", filter="data")
    (root,) = (tmp_path / "golden").iterdir()
    (message,) = (message for message in received(root) if message.sys_flag & 0x30)
    result = appender.append_copy(message, OTHER, 0, message.properties, reconsume_times=2, delay_level=3)
    original, copy = reference.decode(message.record(), 0), record_at(store, result)
    assert isinstance(original, reference.ReferenceRecord)
    assert (copy.born_host, copy.store_host, copy.sys_flag) == (original.born_host, original.store_host, 0x30)
    assert (copy.reconsume_times, copy.body) == (2, original.body)
    assert abs(copy.store_timestamp - store.state.last_store_timestamp) < 1
    assert result.message_id == message.message_id
    assert pickle.loads(pickle.dumps(result)) == result
    assert store.messages.at(result.queue, 0).message_id == result.message_id


def test_entries_made_again_from_the_log_are_those_that_the_append_wrote(store: MessageStore, tmp_path: Path) -> None:
    root = tmp_path / "entries"
    written = open_store(root, SMALL, housekeeping=False)
    appender = appender_of(written)
    for number, tags in enumerate((None, "paid", "中文", "polygenelubricants")):
        appender.append(Message(TOPIC, b"body", tags=tags))
        message = written.messages.at(MessageQueue(TOPIC, 0), number)
        for level in (0, 1, 18):
            for properties in ({}, {"TAGS": "other"}, {"DELAY": "7"}, message.properties):
                appender.append_copy(message, OTHER, 0, properties, reconsume_times=1, delay_level=level)
    queues = [(topic, queue_id) for topic, queue_id in reference.queues_on_disk(root)]
    before = {queue: reference.read_consume_queue(root, *queue) for queue in queues}
    assert sum(map(len, before.values())) == 4 * 13
    abandon(written)
    shutil.rmtree(root / "consumequeue")
    (root / "shared").unlink()
    with open_store(root, SMALL, housekeeping=False):
        assert {queue: reference.read_consume_queue(root, *queue) for queue in queues} == before
    assert reference.check_store(root) == []
