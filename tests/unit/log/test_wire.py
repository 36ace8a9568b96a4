"""Wire: what a broker sends as records is read, and what a client sends is written as RocketMQ's clients do."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import struct
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.errors import MessageRejected, PropertiesTooLarge, RecordsDamaged
from rmqclient.store import Message, MessageQueue, ReceivedMessage, layout
from rmqclient.store.wire import (
    OffsetId,
    decode_records,
    encode_batch,
    encode_each,
    encode_properties,
    new_message_id,
    parse_offset_id,
    sent_results,
)
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord

QUEUE = MessageQueue("TopicA", 3, "broker-a")
RETRY = ReferenceRecord(
    topic="%RETRY%g",
    body=b"hello",
    properties=b"RETRY_TOPIC\x01TopicA\x02TAGS\x01a\x02UNIQ_KEY\x01" + b"A" * 32,
    queue_offset=7,
    commit_log_offset=4711,
    reconsume_times=2,
)

names = st.text("abcdefgXYZ_ä", min_size=1, max_size=8)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x01\x02"), min_size=1, max_size=12)
records = st.builds(
    ReferenceRecord,
    topic=st.from_regex(r"[%a-zA-Z0-9_-]{1,127}", fullmatch=True),
    body=st.binary(max_size=60),
    properties=st.dictionaries(names, values, max_size=4).map(reference.format_properties),
    queue_id=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(0, 2**62),
    commit_log_offset=st.integers(0, 2**62),
    born_timestamp=st.integers(0, 2**62),
    store_timestamp=st.integers(0, 2**62),
    reconsume_times=st.integers(0, 100),
).flatmap(
    lambda record: st.sampled_from(
        [
            record,
            dataclasses.replace(record, sys_flag=0x10, born_host=bytes(range(16))),
            dataclasses.replace(record, sys_flag=0x30, born_host=bytes(range(16)), store_host=bytes(range(16, 32))),
        ]
    )
)


def encoded(*given: ReferenceRecord, crc_property: bool = False) -> bytes:
    return b"".join(reference.encode(record, crc_property) for record in given)


@given(st.lists(records, max_size=5), st.booleans())
def test_records_are_read_as_the_reference_reads_them(given: list[ReferenceRecord], crc_property: bool) -> None:
    messages = decode_records(encoded(*given, crc_property=crc_property), QUEUE)
    assert len(messages) == len(given)
    for message, record in zip(messages, given, strict=True):
        assert message.queue is QUEUE
        assert (message.topic, message.body, message.queue_id) == (record.topic, record.body, record.queue_id)
        assert (message.queue_offset, message.commit_log_offset) == (record.queue_offset, record.commit_log_offset)
        assert (message.flag, message.sys_flag) == (record.flag, record.sys_flag)
        assert (message.born_timestamp, message.store_timestamp) == (record.born_timestamp, record.store_timestamp)
        assert (message.reconsume_times, message.delivery_attempt) == (
            record.reconsume_times,
            record.reconsume_times + 1,
        )
        assert message.properties == record.property_map
        assert message.offset_message_id == reference.offset_message_id(
            record.store_host, record.store_port, record.commit_log_offset
        )


def test_without_a_queue_each_message_says_its_own() -> None:
    messages = decode_records(encoded(RETRY, dataclasses.replace(RETRY, topic="T", queue_id=2)), broker_name="b")
    assert [message.queue for message in messages] == [MessageQueue("%RETRY%g", 0, "b"), MessageQueue("T", 2, "b")]


def test_a_retry_for_a_group_shows_the_topic_where_it_failed_and_counts_its_attempts() -> None:
    (stored,) = decode_records(encoded(RETRY), QUEUE)
    (message,) = decode_records(encoded(RETRY), QUEUE, delivered=True)
    assert (stored.topic, message.topic, message.message_id) == ("%RETRY%g", "TopicA", "A" * 32)
    assert (message.reconsume_times, message.delivery_attempt, message.redelivered(5).delivery_attempt) == (2, 3, 5)


def test_a_message_survives_pickling_without_the_others_of_its_answer() -> None:
    message = decode_records(encoded(RETRY, RETRY), QUEUE, delivered=True)[1]
    again = pickle.loads(pickle.dumps(message))
    assert (again.topic, again.body, again.queue, again.record()) == ("TopicA", b"hello", QUEUE, encoded(RETRY))


def long_topic(record: ReferenceRecord, topic: str) -> bytes:
    """A record of message version 2, whose topic has its size in two bytes."""
    old = reference.encode(record, False)
    at = old.index(struct.pack(">b", len(record.topic)) + record.topic.encode())
    name = topic.encode()
    new = old[:at] + struct.pack(">h", len(name)) + name + old[at + 1 + len(record.topic) :]
    return struct.pack(">ii", len(new), -626843477) + new[8:]


@pytest.mark.parametrize("size", [1, 128, 300])
def test_a_record_of_a_5x_broker_may_have_a_long_topic(size: int) -> None:
    data = long_topic(RETRY, "x" * size) + encoded(RETRY)
    first, second = decode_records(data)
    assert (first.topic, first.body, first.properties) == ("x" * size, b"hello", RETRY.property_map)
    assert second.topic == "%RETRY%g"
    assert pickle.loads(pickle.dumps(first)).topic == first.as_delivered().topic == "x" * size


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_a_compressed_body_is_opened_up_to_the_limit(sys_flag: int) -> None:
    record = dataclasses.replace(RETRY, body=zlib.compress(b"x" * 5_000), sys_flag=sys_flag)
    (message,) = decode_records(encoded(record), QUEUE, max_opened_body_bytes=5_000)
    assert message.body == b"x" * 5_000
    assert message.max_opened_body_bytes == 5_000


def test_a_batch_of_a_5x_broker_becomes_its_messages_each_with_an_offset() -> None:
    content = encode_batch([Message("T", b"one", tags="a"), Message("T", b"two", flag=9)])
    batch = dataclasses.replace(RETRY, topic="T", body=content, sys_flag=0xC0, properties=b"INNER_NUM\x012\x02")
    messages = decode_records(encoded(batch, dataclasses.replace(RETRY, queue_offset=9)), QUEUE)
    assert [(each.queue_offset, each.body, each.flag) for each in messages] == [
        (7, b"one", 0),
        (8, b"two", 9),
        (9, b"hello", 0),
    ]
    assert messages[0].tags == "a"
    assert pickle.loads(pickle.dumps(messages[1])).queue_offset == 8


def test_a_batch_that_cannot_be_opened_stays_and_says_why() -> None:
    batch = dataclasses.replace(RETRY, body=b"no batch", sys_flag=0xC0)
    (message,) = decode_records(encoded(batch), QUEUE)
    assert "sizes do not add up" in str(message.unopened)


def test_a_broken_record_is_refused_and_its_position_named() -> None:
    good = encoded(RETRY)
    with pytest.raises(RecordsDamaged, match="the CRC of the body does not match") as raised:
        decode_records(good + good.replace(b"hello", b"hallo") + good)
    assert (raised.value.position, raised.value.size) == (len(good), 3 * len(good))
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize("cut", [1, 3, 7, 8, 40, 90])
def test_a_record_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(RecordsDamaged, match="bytes missing"):
        decode_records(encoded(RETRY) + encoded(RETRY)[:cut])


@pytest.mark.parametrize("size", [-1, 32_767])
def test_a_topic_that_is_longer_than_the_record_is_refused(size: int) -> None:
    data = long_topic(dataclasses.replace(RETRY, properties=b""), "x" * 10)
    at = len(data) - 2 - 10 - 2
    broken = data[:at] + struct.pack(">h", size) + data[at + 2 :]
    with pytest.raises(RecordsDamaged, match="sizes do not add up"):
        decode_records(broken)


@pytest.mark.parametrize("topic", [b"\xff\xff\xff", b"\xc3A\xc3"])
def test_a_topic_that_is_no_text_is_refused(topic: bytes) -> None:
    data = encoded(dataclasses.replace(RETRY, topic="TTT", properties=b""))
    with pytest.raises(RecordsDamaged, match="the topic is not a valid name"):
        decode_records(data.replace(b"TTT", topic))
    with pytest.raises(RecordsDamaged, match="the topic is not a valid name"):
        decode_records(long_topic(RETRY, ""))


def read_all(message: ReceivedMessage) -> None:
    _ = message.topic, message.properties, message.tags, message.keys, message.message_id, message.stored_body
    _ = message.offset_message_id, message.some_properties((b"TAGS", b"UNIQ_KEY")), message.tags_code, repr(message)
    pickle.loads(pickle.dumps(message))


@given(st.lists(records, min_size=1, max_size=3), st.integers(0, 2**32), st.booleans())
def test_changed_bytes_are_read_within_bounds_or_refused(given: list[ReferenceRecord], seed: int, cut: bool) -> None:
    chance, data = random.Random(seed), bytearray(encoded(*given))
    for _ in range(chance.randint(1, 4)):
        at = chance.choice([chance.randrange(len(data)), chance.randrange(min(92, len(data)))])
        data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    whole = bytes(data[: chance.randrange(len(data))] if cut else data)
    try:
        for message in decode_records(whole, delivered=True):
            read_all(message)
    except RecordsDamaged as error:
        assert 0 <= error.position < error.size == len(whole)


def test_properties_are_those_of_the_message_and_then_the_further_ones() -> None:
    message = Message("T", b"", tags="a", keys=["k1", "k2"], properties={"colour": "blue"})
    text = encode_properties(message, {"UNIQ_KEY": "id", "WAIT": "true", "absent": ""})
    assert text == "KEYS\x01k1 k2\x02TAGS\x01a\x02colour\x01blue\x02UNIQ_KEY\x01id\x02WAIT\x01true\x02"


def test_a_message_without_an_id_gets_one() -> None:
    first, second = (reference.parse_properties(encode_properties(Message("T", b"")).encode()) for _ in range(2))
    assert first.keys() == second.keys() == {"UNIQ_KEY"}
    assert first != second


@given(st.dictionaries(names, values, max_size=5), st.dictionaries(names.map("x-".__add__), values, max_size=5))
def test_properties_are_read_again(own: dict[str, str], extra: dict[str, str]) -> None:
    text = encode_properties(Message("T", b"", properties=own), {"UNIQ_KEY": "1", **extra})
    assert reference.parse_properties(text.encode()) == {**own, "UNIQ_KEY": "1", **extra}


def test_separators_and_reserved_names_are_refused() -> None:
    with pytest.raises(MessageRejected, match="belongs to the queue itself"):
        encode_properties(Message("T", b"", properties={"WAIT": "true"}))
    with pytest.raises(MessageRejected, match="byte 0x01 or 0x02"):
        encode_properties(Message("T", b""), {"x": "a\x02b"})


def test_properties_have_a_limit() -> None:
    room = layout.MAX_SENT_PROPERTIES_BYTES - len("UNIQ_KEY..1") - len("x..")
    longest = encode_properties(Message("T", b""), {"UNIQ_KEY": "1", "x": "v" * room})
    assert len(longest) == layout.MAX_SENT_PROPERTIES_BYTES
    with pytest.raises(PropertiesTooLarge):
        encode_properties(Message("T", b""), {"UNIQ_KEY": "1", "x": "v" * (room + 1)})


@given(st.lists(st.tuples(st.binary(max_size=40), st.dictionaries(names, values, max_size=3)), max_size=5))
def test_a_batch_is_a_row_of_messages(given: list[tuple[bytes, dict[str, str]]]) -> None:
    messages = [Message("T", body, properties=own, flag=number) for number, (body, own) in enumerate(given)]
    batch, at = encode_batch(messages, [{"UNIQ_KEY": str(number)} for number in range(len(given))]), 0
    for number, (body, own) in enumerate(given):
        size, *zeros, flag, body_size = struct.unpack_from(">iiiii", batch, at)
        assert (zeros, flag, batch[at + 20 : at + 20 + body_size]) == ([0, 0], number, body)
        (properties_size,) = struct.unpack_from(">h", batch, at + 20 + body_size)
        text = batch[at + 22 + body_size : at + size]
        assert len(text) == properties_size
        assert reference.parse_properties(text) == {**own, "UNIQ_KEY": str(number)}
        at += size
    assert at == len(batch)


def test_a_compressed_message_of_a_batch_has_no_bytes_for_it_must_be_sent_alone() -> None:
    plain = Message("T", b"1")
    extras = [{"UNIQ_KEY": str(number)} for number in range(3)]
    first, second, third = encode_each([plain, plain.with_body(b"x", 0x301), plain], extras)
    assert (first, second) == (encode_batch([plain], extras[:1]), b"")
    assert third == encode_batch([plain], extras[2:])


def test_a_batch_takes_bytes_that_are_not_compressed() -> None:
    with pytest.raises(MessageRejected, match="send it alone"):
        encode_batch([Message("T", b"").with_body(b"x", 0x301)])
    with pytest.raises(TypeError):
        encode_batch([Message("T", {"a": 1})])
    with pytest.raises(ValueError, match="1 further properties for 2 messages"):
        encode_batch([Message("T", b""), Message("T", b"")], [{}])


def test_ids_are_unique_and_tell_address_process_and_time_of_the_month() -> None:
    ids = [new_message_id() for _ in range(100_000)]
    assert len(set(ids)) == len(ids)
    assert ids[0][:12] == "7F000001" + f"{os.getpid() & 0xFFFF:04X}"
    now = time.localtime()
    begin = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    assert int(ids[0][20:28], 16) / 1000 == pytest.approx(time.time() - begin, abs=60)


def test_a_forked_child_makes_ids_of_its_own() -> None:
    new_message_id()
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, new_message_id().encode())
        os._exit(0)
    child = os.read(reading, 32).decode()
    os.wait()
    os.close(reading)
    os.close(writing)
    assert child[:20] != new_message_id()[:20]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("7F00000100002A9F000000000000096E", OffsetId("127.0.0.1", 10911, 0x96E)),
        ("20010DB8000000000000000000000001" + "00002A9F" + "000000000000096E", OffsetId("2001:db8::1", 10911, 0x96E)),
    ],
)
def test_an_offset_message_id_tells_where_the_record_is(text: str, means: OffsetId) -> None:
    assert parse_offset_id(text) == means
    (result,) = sent_results(QUEUE, 5, ["M" * 32], [text])
    assert (result.queue, result.queue_offset, result.message_id) == (QUEUE, 5, "M" * 32)
    assert (result.commit_log_offset, result.commit_log_end, result.offset_message_id) == (0x96E, 0x96E, text)
    assert pickle.loads(pickle.dumps(result)) == result


def test_an_address_has_brackets_around_an_ipv6_host() -> None:
    assert OffsetId("127.0.0.1", 10911, 0).address == "127.0.0.1:10911"
    assert OffsetId("::1", 10911, 0).address == "[::1]:10911"


@pytest.mark.parametrize(
    "text",
    ["", "7F", "Z" * 32, " " * 32, "7F00000100002A9F000000000000096E,7F", "7F 000001 00002A9F 0000000000000" + "0" * 3],
)
def test_what_is_no_offset_message_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="32 or 56 hexadecimal digits"):
        parse_offset_id(text)
    with pytest.raises(ValueError, match="32 or 56 hexadecimal digits"):
        sent_results(QUEUE, 5, ["M" * 32], [text])


def test_messages_that_a_broker_stored_in_a_row_have_consecutive_offsets() -> None:
    places = [f"7F00000100002A9F{place:016X}" for place in (100, 250, 1 << 40)]
    results = sent_results(QUEUE, 7, ["A" * 32, "of another client", "C" * 32], places)
    assert [each.queue_offset for each in results] == [7, 8, 9]
    assert [each.commit_log_offset for each in results] == [100, 250, 1 << 40]
    assert [each.message_id for each in results] == ["A" * 32, "of another client", "C" * 32]
    with pytest.raises(ValueError, match="shorter"):
        sent_results(QUEUE, 7, ["A" * 32, "B" * 32], places[:1])
