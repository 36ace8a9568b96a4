"""Messages of remote clients in the log: byte for byte as they were sent, with the addresses of both ends."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient.errors import BatchTooLarge, BodyTooLarge, MessageRejected, PropertiesTooLarge
from rmqclient.store import Message, MessageQueue, MessageStore, SendResult, open_store
from rmqclient.store.kernel._kernel import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    Appender,
    append_received,
    append_received_batch,
    java_hash,
)
from rmqclient.store.wire import encode_batch, parse_offset_id
from tests.support.oracle import reference
from tests.support.stores import SMALL, TOPIC, after_every_delay, appender_of, grant_of

CLIENT = bytes((10, 1, 2, 3)) + (5_000).to_bytes(4, "big")
SERVER = bytes((192, 168, 0, 7)) + (9_876).to_bytes(4, "big")
CLIENT_6 = bytes(range(16)) + (5_000).to_bytes(4, "big")
SERVER_6 = bytes(range(16, 32)) + (9_876).to_bytes(4, "big")
KEY = "0A010203000018B4AAC21D6F3B5C0001"
TEXT = f"KEYS\x01order-7\x02UNIQ_KEY\x01{KEY}\x02CLUSTER\x01DefaultCluster\x02TAGS\x01paid"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def appender(store: MessageStore) -> Appender:
    return appender_of(store)


def send(appender: Appender, body: bytes = b"body", properties: bytes | str = TEXT, **more: Any) -> SendResult:
    given: dict[str, Any] = {"flag": 7, "sys_flag": 0, "born_timestamp": 123_456, "born_host": CLIENT}
    return append_received(appender, TOPIC, 0, body, properties, **{**given, "store_host": SERVER, **more})


def send_batch(appender: Appender, body: bytes, properties: str = "", **more: Any) -> list[SendResult]:
    given: dict[str, Any] = {"sys_flag": 0, "born_timestamp": 123_456, "born_host": CLIENT, "store_host": SERVER}
    return append_received_batch(appender, TOPIC, 0, body, properties, **{**given, **more})


def records_of(store: MessageStore) -> list[reference.ReferenceRecord]:
    return [record for _, record in reference.read_commit_log(store.root)]


# --- one message ----------------------------------------------------------------------------------


def test_a_message_is_stored_as_its_client_wrote_it(store: MessageStore, appender: Appender) -> None:
    result = send(appender, reconsume_times=2)

    (record,) = records_of(store)
    assert record.properties == TEXT.encode() + b"\x02"
    assert (record.topic, record.queue_id, record.body, record.flag) == (TOPIC, 0, b"body", 7)
    assert (record.born_host + record.born_port.to_bytes(4, "big"), record.born_timestamp) == (CLIENT, 123_456)
    assert record.store_host + record.store_port.to_bytes(4, "big") == SERVER
    assert (record.reconsume_times, record.sys_flag, record.has_crc) == (2, 0, True)
    assert (result.message_id, result.queue, result.queue_offset) == (KEY, MessageQueue(TOPIC, 0), 0)
    assert store.consume_queues[MessageQueue(TOPIC, 0)].entry(0).tags_code == java_hash("paid")


def test_the_offset_message_id_has_the_address_by_which_the_client_came(
    store: MessageStore, appender: Appender
) -> None:
    send(appender)
    result = send(appender)
    assert result.offset_message_id is not None
    found = parse_offset_id(result.offset_message_id)
    assert (found.address, found.commit_log_offset) == ("192.168.0.7:9876", result.commit_log_offset)
    assert store.messages.at(MessageQueue(TOPIC, 0), 1).offset_message_id == result.offset_message_id


@pytest.mark.parametrize(("client", "server"), [(CLIENT_6, SERVER_6), (CLIENT_6, SERVER), (CLIENT, SERVER_6)])
def test_addresses_of_ip_6_have_their_own_size(
    store: MessageStore, appender: Appender, client: bytes, server: bytes
) -> None:
    result = send(appender, born_host=client, store_host=server, sys_flag=0x30)

    (record,) = records_of(store)
    assert record.sys_flag == 0x10 * (len(client) == 20) + 0x20 * (len(server) == 20)
    assert record.born_host + record.born_port.to_bytes(4, "big") == client
    assert record.store_host + record.store_port.to_bytes(4, "big") == server
    (message,) = grant_of(store).take(1, 10)
    assert (message.body, message.keys) == (b"body", ("order-7",))
    assert message.offset_message_id == result.offset_message_id


def test_a_message_without_an_id_gets_one(store: MessageStore, appender: Appender) -> None:
    result = send(appender, properties="WAIT\x01true")
    (record,) = records_of(store)
    assert record.property_map == {"WAIT": "true", "UNIQ_KEY": result.message_id}
    assert store.messages.by_id(result.message_id, TOPIC) is not None


def test_no_properties_at_all_are_enough(store: MessageStore, appender: Appender) -> None:
    result = send(appender, b"", b"")
    (record,) = records_of(store)
    assert (record.body, record.property_map) == (b"", {"UNIQ_KEY": result.message_id})


def test_an_id_of_another_length_is_kept(store: MessageStore, appender: Appender) -> None:
    assert send(appender, properties="UNIQ_KEY\x01käse\x02").message_id == "käse"


def test_the_crc_of_a_forwarded_record_is_left_out(store: MessageStore, appender: Appender) -> None:
    send(appender, properties=f"__CRC32#\x010000000000\x02{TEXT}")
    (record,) = records_of(store)
    assert record.properties == TEXT.encode() + b"\x02"


def test_a_compressed_body_stays_compressed_and_opens(store: MessageStore, appender: Appender) -> None:
    packed = zlib.compress(b"body " * 100)
    send(appender, packed, sys_flag=0x301)
    (record,) = records_of(store)
    assert (record.body, record.sys_flag) == (packed, 0x301)
    assert grant_of(store).take(1, 10)[0].body == b"body " * 100


@pytest.mark.parametrize(("given", "kept"), [(0x4, 0), (0x8, 0x8), (0xC, 0), (0xC0, 0), (0x7FFFFFFF, 0x703)])
def test_a_client_cannot_make_a_record_that_has_no_place_in_its_queue(
    store: MessageStore, appender: Appender, given: int, kept: int
) -> None:
    send(appender, sys_flag=given)
    (record,) = records_of(store)
    assert record.sys_flag == kept
    assert record.in_a_queue


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"body": bytes(2_049)}, BodyTooLarge, "2049 bytes"),
        ({"properties": "a\x01" + "b" * 32_766}, PropertiesTooLarge, "32767"),
        ({"properties": "a\x01" + "b" * 30_980}, PropertiesTooLarge, "31000"),
        ({"properties": b"a\x01\xff\x02"}, MessageRejected, "UTF-8"),
        ({"properties": "a\x01\ud800\x02"}, MessageRejected, "UTF-8"),
        ({"born_host": b"1234"}, ValueError, "4 bytes"),
        ({"store_host": bytes(16)}, ValueError, "16 bytes"),
        ({"reconsume_times": -1}, ValueError, "reconsume_times"),
        ({"delay_level": -1}, ValueError, "delay_level"),
        ({"due_ms": -5}, ValueError, "due_ms"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_written(
    store: MessageStore, appender: Appender, more: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        send(appender, **more)
    assert store.state.published_to == 0
    assert send(appender).queue_offset == 0


def test_the_topics_in_which_messages_wait_cannot_be_sent_to(appender: Appender) -> None:
    for topic in (SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC):
        with pytest.raises(MessageRejected, match=topic):
            append_received(
                appender, topic, 0, b"", "", flag=0, sys_flag=0, born_timestamp=0, born_host=CLIENT, store_host=SERVER
            )


@pytest.mark.parametrize("queue_id", [-1, 1])
def test_a_queue_that_the_topic_does_not_have_is_refused(appender: Appender, queue_id: int) -> None:
    with pytest.raises(MessageRejected, match=f"no queue with the id {queue_id}"):
        append_received(
            appender,
            TOPIC,
            queue_id,
            b"",
            "",
            flag=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=CLIENT,
            store_host=SERVER,
        )


def test_a_compact_topic_takes_messages_with_keys_only(store: MessageStore, appender: Appender) -> None:
    store.topics.create(TOPIC, 1, cleanup_policy="compact")
    with pytest.raises(MessageRejected, match="compact"):
        send(appender, properties="TAGS\x01paid")
    assert send(appender).queue_offset == 0


# --- messages that wait ---------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [{}, {"born_host": CLIENT_6, "store_host": SERVER_6}])
def test_a_message_with_a_delay_level_waits_and_is_then_the_same(
    store: MessageStore, appender: Appender, hosts: dict[str, bytes]
) -> None:
    result = send(appender, properties=f"DELAY\x013\x02{TEXT}", delay_level=3, **hosts)
    assert result.queue == MessageQueue(SCHEDULE_TOPIC, 2)

    store.schedule.now_ms = after_every_delay
    store.schedule.look()

    (message,) = grant_of(store).take(1, 10)
    assert (message.body, message.message_id, message.born_timestamp) == (b"body", KEY, 123_456)
    assert message.properties["CLUSTER"] == "DefaultCluster"


def test_a_level_above_the_last_one_means_the_last_one(appender: Appender) -> None:
    assert send(appender, delay_level=99).queue == MessageQueue(SCHEDULE_TOPIC, 17)


def test_a_message_with_a_time_waits_in_the_timer(store: MessageStore, appender: Appender) -> None:
    result = send(appender, due_ms=2_000_000_000_000)
    assert result.queue == MessageQueue(TIMER_TOPIC, 0)
    assert store.messages.read(result.commit_log_offset).tags_code == 2_000_000_000_000


def test_a_half_message_waits_for_its_decision(store: MessageStore, appender: Appender) -> None:
    result = send(appender, properties=f"TRAN_MSG\x01true\x02PGROUP\x01payers\x02{TEXT}", sys_flag=0x4, half=True)
    assert (result.queue, result.queue_offset) == (MessageQueue(HALF_TOPIC, 0), 0)

    half = store.messages.read(result.commit_log_offset)
    assert (half.sys_flag, half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == (0, TOPIC, "0")
    assert half.properties["PGROUP"] == "payers"
    assert half.offset_message_id == result.offset_message_id


# --- batches --------------------------------------------------------------------------------------


def batch_of(count: int) -> bytes:
    messages = [Message(TOPIC, b"body %d" % number, tags="t", flag=number) for number in range(count)]
    return encode_batch(messages)


def test_a_batch_becomes_its_messages_in_one_append(store: MessageStore, appender: Appender) -> None:
    send(appender)
    results = send_batch(appender, batch_of(3), "CLUSTER\x01c\x02UNIQ_KEY\x01batch\x02WAIT\x01true")

    records = records_of(store)[1:]
    assert [(record.body, record.flag) for record in records] == [(b"body 0", 0), (b"body 1", 1), (b"body 2", 2)]
    assert [record.queue_offset for record in records] == [result.queue_offset for result in results] == [1, 2, 3]
    for record, result in zip(records, results, strict=True):
        expected = {"TAGS": "t", "UNIQ_KEY": result.message_id, "CLUSTER": "c", "WAIT": "true"}
        assert record.property_map == expected
        assert parse_offset_id(result.offset_message_id or "").commit_log_offset == record.commit_log_offset
        assert (record.born_host, record.born_timestamp) == (CLIENT[:4], 123_456)
    assert len({result.message_id for result in results}) == 3
    assert [message.body for message in grant_of(store, tags=["t"]).take(9, 10)] == [b"body 0", b"body 1", b"body 2"]


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_batch_that_is_cut_off_is_refused_with_the_position(
    store: MessageStore, appender: Appender, cut: int
) -> None:
    body = batch_of(2)
    with pytest.raises(MessageRejected, match=f"byte {len(body) // 2 if cut < len(body) // 2 else 0} of its content"):
        send_batch(appender, body[:-cut])
    assert store.state.published_to == 0


@pytest.mark.parametrize("at", range(22))
@pytest.mark.parametrize("value", [0, 1, 0x7F, 0x80, 0xFF])
def test_a_damaged_size_is_refused_or_is_no_size(store: MessageStore, appender: Appender, at: int, value: int) -> None:
    body = bytearray(batch_of(2))
    body[at] = value
    try:
        send_batch(appender, bytes(body))
    except MessageRejected:
        assert store.state.published_to == 0
    else:
        assert len(records_of(store)) == 2


def test_properties_in_a_batch_that_are_not_utf_8_are_refused(store: MessageStore, appender: Appender) -> None:
    body = encode_batch([Message(TOPIC, b"", properties={"name": "aaaa"})]).replace(b"aaaa", b"aa\xffa")
    with pytest.raises(MessageRejected, match="UTF-8"):
        send_batch(appender, body)
    assert store.state.published_to == 0


def test_a_batch_without_messages_is_refused(appender: Appender) -> None:
    with pytest.raises(MessageRejected, match="without messages"):
        send_batch(appender, b"")


def test_a_batch_over_a_limit_is_refused(store: MessageStore, appender: Appender) -> None:
    with pytest.raises(BatchTooLarge):
        send_batch(appender, batch_of(65))
    with pytest.raises(BatchTooLarge):
        send_batch(appender, encode_batch([Message(TOPIC, bytes(2_000))] * 30))
    with pytest.raises(BodyTooLarge):
        send_batch(appender, encode_batch([Message(TOPIC, b""), Message(TOPIC, bytes(2_100))]))
    assert store.state.published_to == 0
