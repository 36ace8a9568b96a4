"""Bodies that are compressed: how they are sent and stored, and that whoever reads them gets what was sent."""

from __future__ import annotations

import json
import random
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Compression, Message, Producer, ReceivedMessage, StoreConfig, TransactionProducer
from rmqclient.databases.outbox import Outbox
from rmqclient.databases.relay import Relay
from rmqclient.errors import BodyTooLarge, MessageRejected, NotInstalled
from rmqclient.store import HALF_TOPIC, OPERATION_TOPIC, MessageStore, bodies, open_store
from tests.client.conftest import wait_for
from tests.client.sending.compressed import LONG, messages, send_stored, without
from tests.support.oracle import reference
from tests.support.stores import after_every_delay

NOISE = random.Random(4_711).randbytes(5_000)
"""What no compression makes smaller."""

KEEPING_IT_SHORT = StoreConfig(max_body_bytes=len(LONG))


def check_stored(message: ReceivedMessage, body: bytes, compression: Compression) -> None:
    """Compare a message with what another reader of the format finds in its record."""
    record = reference.decode(message.record(), 0)
    assert isinstance(record, reference.ReferenceRecord)
    assert record.sys_flag & 0x701 == compression.value
    assert record.body == message.stored_body
    assert len(record.body) < len(body) // 4
    assert message.body == body


@pytest.mark.guarantee("G38")
@pytest.mark.parametrize("compression", Compression)
def test_a_long_body_is_stored_compressed_and_read_as_it_was_sent(
    store: MessageStore, compression: Compression
) -> None:
    with Producer(store, compression=compression) as producer:
        result = producer.send(Message("flights", LONG, tags="late", keys="UA1545", properties={"a": "b"}, flag=7))

    message = store.messages.at(result.queue, 0)
    check_stored(message, LONG, compression)
    assert (message.tags, message.keys, message.properties["a"], message.flag) == ("late", ("UA1545",), "b", 7)
    assert reference.check_store(store.root) == []


def test_zlib_is_what_every_rocketmq_client_opens(store: MessageStore) -> None:
    with Producer(store, compression=Compression.ZLIB) as producer:
        producer.send(Message("flights", LONG))

    (message,) = messages(store, "flights")
    assert zlib.decompress(message.stored_body) == LONG


def test_what_is_short_or_would_not_become_smaller_is_stored_as_it_is(store: MessageStore) -> None:
    short = LONG[:4_095]
    with Producer(store, compression=Compression.ZSTD) as producer:
        producer.send_batch([Message("flights", body) for body in (short, NOISE, b"", LONG[:4_096])])

    found = messages(store, "flights")
    assert [message.body for message in found] == [short, NOISE, b"", LONG[:4_096]]
    assert [message.sys_flag for message in found] == [0, 0, 0, Compression.ZSTD.value]
    assert [message.stored_body for message in found[:3]] == [short, NOISE, b""]


def test_how_much_is_compressed_and_how_hard_can_be_said(store: MessageStore) -> None:
    sizes = []
    for level in (1, 9):
        with Producer(
            store, compression=Compression.ZLIB, compress_over_bytes=100, compression_level=level
        ) as producer:
            producer.send(Message(f"level-{level}", NOISE[:64] * 2 + bytes(range(256)) * 20))
            producer.send(Message(f"level-{level}", LONG[:100]))
        long, short = sorted(messages(store, f"level-{level}"), key=lambda message: -len(message.body))
        assert short.sys_flag == long.sys_flag == Compression.ZLIB.value
        sizes.append(long.stored_body)
    assert sizes[0] != sizes[1]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"compression": "zstd"}, "compression='zstd'"),
        ({"compress_over_bytes": -1}, "compress_over_bytes=-1: must be from 0"),
        ({"compression_level": 10}, "compression_level=10 of ZLIB"),
        ({"compression_level": 23, "compression": Compression.ZSTD}, "compression_level=23 of ZSTD"),
        ({"compression_level": "much"}, "compression_level='much': must be a whole number"),
    ],
)
def test_a_setting_that_is_none_is_refused_before_a_store_is_made(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        Producer(tmp_path / "store", **{"compression": Compression.ZLIB} | settings)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("compression", "package"), [(Compression.LZ4, "lz4"), (Compression.ZSTD, "zstandard")])
def test_a_package_that_is_missing_is_told_when_the_producer_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: Compression, package: str
) -> None:
    without(monkeypatch, package)

    with pytest.raises(NotInstalled, match=rf"needs the package {package}: pip install 'rmqclient\[compression\]'"):
        Producer(tmp_path / "store", compression=compression)
    with pytest.raises(NotInstalled):
        Relay(tmp_path / "other", Outbox(), lambda: sqlite3.connect(":memory:"), compression=compression)
    assert not (tmp_path / "store").exists()


@pytest.mark.guarantee("G38")
def test_the_limit_of_a_body_is_that_of_the_body_as_it_is_sent(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "store", KEEPING_IT_SHORT) as store,
        Producer(store, compression=Compression.ZSTD, write_buffer_bytes=100_000) as producer,
    ):
        producer.send(Message("flights", LONG))
        for send in (producer.send, lambda message: producer.send_batch([message]), producer.send_buffered):
            with pytest.raises(BodyTooLarge, match=f"a body of {len(LONG) + 1} bytes is over the limit of {len(LONG)}"):
                send(Message("flights", LONG + b" "))
        assert len(messages(store, "flights")) == 1


def test_a_body_that_is_compressed_may_be_read_where_the_limit_allows_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store, Producer(store, compression=Compression.ZSTD) as producer:
        producer.send(Message("flights", LONG, keys="UA1545"))
        result = producer.send(Message("flights", LONG))

    config = replace(StoreConfig(), max_opened_body_bytes=len(LONG) - 1)
    with open_store(tmp_path / "store", config) as store:
        found = [
            store.messages.at(result.queue, result.queue_offset),
            store.messages.read(result.commit_log_offset),
            store.messages.by_id(result.message_id),
            *store.messages.by_key("flights", "UA1545"),
        ]
        assert [message.max_opened_body_bytes for message in found if message is not None] == [len(LONG) - 1] * 4


@pytest.mark.parametrize(
    "setting", [{"compression_level": 3}, {"compress_over_bytes": 100}, {"compress_over_bytes": -1}]
)
def test_a_setting_of_a_compression_without_one_is_refused(store: MessageStore, setting: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="without a compression"):
        Producer(store, **setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f"max_opened_body_bytes={limit}: must be from 1"):
        StoreConfig(max_opened_body_bytes=limit)


@pytest.mark.guarantee("G38")
def test_every_way_of_sending_compresses(store: MessageStore) -> None:
    after = [{"flight": number} for number in range(900)]
    with Producer(store, compression=Compression.ZSTD, write_buffer_bytes=1 << 20) as producer:
        producer.send(Message("one", LONG), "key", delay_level=1)
        producer.send_batch([Message("batch", LONG), Message("batch", LONG)])
        producer.send_buffered(Message("buffered", LONG))
        producer.send_buffered(Message("buffered", after))
        producer.flush()
        producer.send(Message("encoded", after))
    store.schedule.now_ms = after_every_delay
    wait_for(lambda: store.schedule.look() > 0, "the delayed one is delivered")

    for topic, count in (("one", 1), ("batch", 2), ("SCHEDULE_TOPIC_XXXX", 1)):
        found = messages(store, topic)
        assert len(found) == count
        for message in found:
            check_stored(message, LONG, Compression.ZSTD)
    as_json = json.dumps(after, separators=(",", ":")).encode()
    assert sorted(message.body for message in messages(store, "buffered")) == sorted([as_json, LONG])
    (encoded,) = messages(store, "encoded")
    check_stored(encoded, as_json, Compression.ZSTD)
    assert all(message.sys_flag == Compression.ZSTD.value for message in messages(store, "buffered"))
    assert reference.check_store(store.root) == []


def test_what_is_refused_uncompressed_is_refused_compressed(store: MessageStore) -> None:
    with Producer(store, compression=Compression.ZSTD, write_buffer_bytes=100_000) as producer:
        for send in (producer.send, producer.send_buffered, lambda message: producer.send_batch([message])):
            with pytest.raises(MessageRejected, match="cannot be encoded"):
                send(Message("t", object()))
            with pytest.raises(MessageRejected, match="RocketMQ drops empty names"):
                send(Message("t", LONG, properties={"": "x"}))
        with pytest.raises(TypeError, match="a batch holds Message objects, not str"):
            producer.send_batch([Message("t", LONG), "no message"])  # type: ignore[list-item]
    assert store.state.published_to == 0


def test_what_is_compressed_already_is_not_compressed_again(store: MessageStore) -> None:
    packed = bodies.compress(LONG * 100, Compression.LZ4, 0)
    with Producer(store, compression=Compression.ZSTD, compress_over_bytes=0) as producer:
        send_stored(producer, packed, Compression.LZ4.value)

    (message,) = messages(store, "flights")
    check_stored(message, LONG * 100, Compression.LZ4)
    assert message.stored_body == packed


def test_a_message_of_a_transaction_is_compressed_from_its_half_message_on(store: MessageStore) -> None:
    with TransactionProducer(store, group="bookings", compression=Compression.LZ4) as producer:
        with producer.transaction(Message("flights", LONG)):
            (half,) = messages(store, HALF_TOPIC)
            check_stored(half, LONG, Compression.LZ4)
            assert half.sys_flag == Compression.LZ4.value
        producer.transaction(Message("flights", LONG)).rollback()

    (message,) = messages(store, "flights")
    check_stored(message, LONG, Compression.LZ4)
    assert message.sys_flag & 0xC == 0x8
    assert [operation.body for operation in messages(store, OPERATION_TOPIC)] == [b"0", b"1"]


def test_an_outbox_is_sent_compressed_and_holds_what_the_application_wrote(tmp_path: Path) -> None:
    root, database = tmp_path / "store", tmp_path / "outbox.db"
    outbox = Outbox()
    with closing(sqlite3.connect(database)) as connection:
        outbox.create(connection)
        connection.execute("BEGIN")
        outbox.add(connection, Message("flights", LONG))
        connection.commit()
    with (
        open_store(root) as store,
        Relay(store, outbox, lambda: sqlite3.connect(database), compression=Compression.ZSTD) as relay,
    ):
        assert relay.send() == 1
        (message,) = messages(store, "flights")
        check_stored(message, LONG, Compression.ZSTD)
