"""Bodies that are compressed: how they are sent and stored, and that whoever reads them gets what was sent."""

from __future__ import annotations

import importlib
import json
import random
import sqlite3
import subprocess
import sys
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import zstandard

from rmqclient import (
    App,
    Batch,
    Compression,
    Message,
    Producer,
    PullConsumer,
    ReceivedMessage,
    RetryPolicy,
    StoreConfig,
    TransactionProducer,
    jmespath,
)
from rmqclient.databases.outbox import Outbox, Relay
from rmqclient.errors import BodyTooLarge, MessageRejected, NotInstalled
from rmqclient.failures import dead_letters
from rmqclient.filters import MessageFilter
from rmqclient.store import HALF_TOPIC, OPERATION_TOPIC, MessageStore, TagSet, bodies, open_store
from tests.client.conftest import consuming, wait_for
from tests.support.oracle import reference
from tests.support.stores import after_every_delay

LONG = b'{"flight": "UA1545", "delay": 2}' * 200
NOISE = random.Random(4_711).randbytes(5_000)
"""What no compression makes smaller."""

KEEPING_IT_SHORT = StoreConfig(max_body_bytes=len(LONG))


def messages(store: MessageStore, topic: str) -> list[ReceivedMessage]:
    return [
        store.message_at(queue, offset)
        for queue in store.topics.queues(topic)
        for offset in range(store.topics.max_offset(queue))
    ]


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

    message = store.message_at(result.queue, 0)
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
        ({"compression": "zstd"}, "'zstd' is not a valid Compression"),
        ({"compress_over_bytes": -1}, "compress_over_bytes=-1: must not be negative"),
        ({"compression_level": 10}, "compression_level=10 of ZLIB"),
        ({"compression_level": 23, "compression": Compression.ZSTD}, "compression_level=23 of ZSTD"),
        ({"compression_level": "much"}, "compression_level='much' of ZLIB"),
    ],
)
def test_a_setting_that_is_none_is_refused_before_a_store_is_made(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
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


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Make a package be missing, as one that is not installed."""
    installed = importlib.import_module

    def import_module(name: str) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(name=name)
        return installed(name)

    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setattr(bodies, "_zstandard", bodies._Zstandard())


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
            store.message_at(result.queue, result.queue_offset),
            store.read(result.commit_log_offset),
            store.message_by_id(result.message_id),
            *store.messages_by_key("flights", "UA1545"),
        ]
        assert [message.max_opened_body_bytes for message in found if message is not None] == [len(LONG) - 1] * 4


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f"max_opened_body_bytes={limit}: must be at least 1"):
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
    with sqlite3.connect(database) as connection:
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


# --- what reads them ------------------------------------------------------------------------------


def bomb(compression: Compression, size: int) -> bytes:
    """Return a body that opens to much more than it is."""
    packed = bodies.compress(bytes(size), compression)
    assert len(packed) < size // 100
    return packed


def send_stored(producer: Producer, body: bytes, sys_flag: int, **more: Any) -> None:
    """Send what a careless or a hostile client may: any bytes that are said to be compressed."""
    producer.send(Message("flights", b"", **more).with_body(body, sys_flag))


@dataclass
class Flight:
    flight: str


@pytest.mark.guarantee("G38")
@pytest.mark.parametrize("order", [None, "queue", "key"])
def test_handlers_get_bodies_as_they_were_sent_whatever_they_ask_for(
    store: MessageStore, order: Literal["queue", "key"] | None
) -> None:
    body = b'{"flight": "UA1545"}' + b" " * 5_000
    app = App()
    got: list[object] = []

    @app.handler("flights", group="objects", order=order)
    def objects(flight: Flight) -> None:
        got.append(flight)

    @app.handler("flights", group="bytes")
    async def raw(body: bytes) -> None:
        got.append(body)

    @app.handler("flights", group="texts", batch=Batch(10))
    def texts(texts: list[str]) -> None:
        got.extend(texts)

    @app.handler("flights", group="messages", threads=2)
    def message(message: ReceivedMessage) -> None:
        got.append((message.body, len(message.stored_body) < 100))

    with Producer(store, compression=Compression.ZSTD) as producer, consuming(store, app):
        producer.send(Message("flights", body), "key")
        wait_for(lambda: len(got) == 4, "all groups have it")
    assert Flight("UA1545") in got
    assert body in got
    assert body.decode() in got
    assert (body, True) in got


@pytest.mark.guarantee("G38")
@pytest.mark.parametrize(
    ("body", "sys_flag", "reason"),
    [
        (bomb(Compression.ZSTD, 10_000_000), Compression.ZSTD.value, "opens to more than 1000000"),
        (b"damaged", Compression.ZLIB.value, "is damaged"),
        (bodies.compress(LONG, Compression.LZ4)[:-9], Compression.LZ4.value, "ends too soon"),
        (LONG, 0x701, "in a way that is not known"),
    ],
)
def test_a_body_that_cannot_be_opened_is_retried_and_becomes_a_dead_letter(
    tmp_path: Path, body: bytes, sys_flag: int, reason: str
) -> None:
    app = App()
    got: list[bytes] = []

    @app.handler("flights", group="delays", retry=RetryPolicy(max_retries=1, delay_levels=(1,)))
    def handle(body: bytes) -> None:
        got.append(body)

    config = StoreConfig(max_opened_body_bytes=1_000_000)
    with (
        open_store(tmp_path / "store", config) as store,
        Producer(store) as producer,
        consuming(store, app) as consumer,
    ):
        send_stored(producer, body, sys_flag, keys="bad")
        producer.send(Message("flights", b"good"))
        wait_for(lambda: consumer.counters.failed == 2, "both attempts have failed")
        producer.send(Message("flights", b"good"))
        wait_for(lambda: got == [b"good", b"good"], "the worker goes on")

        (letter,) = dead_letters.select(store, "delays", dead_letters.Selection())
        assert letter.error.startswith("rmqclient.store.errors.BodyUnreadable: ")
        assert reason in letter.failures[0]["text"]
        assert [failure["attempt"] for failure in letter.failures] == [1, 2]
        assert letter.message.stored_body == body
        assert letter.message.sys_flag == sys_flag
        # and it can be read where there is more room for it
        if "1000000" in reason:
            assert letter.message.limited_to(10_000_000).body == bytes(10_000_000)


def test_a_dead_letter_that_is_sent_again_is_compressed_as_it_was(store: MessageStore) -> None:
    app = App()
    failing = [True]
    got: list[tuple[bytes, int]] = []

    @app.handler("flights", group="delays", retry=RetryPolicy(max_retries=0))
    def handle(message: ReceivedMessage) -> None:
        if failing:
            raise ValueError("not yet")
        got.append((message.body, message.sys_flag))

    with Producer(store, compression=Compression.LZ4) as producer, consuming(store, app) as consumer:
        producer.send(Message("flights", LONG))
        wait_for(lambda: consumer.counters.failed == 1, "it is a dead letter")
        failing.clear()
        assert len(list(dead_letters.replay(store, "delays", dead_letters.Selection()))) == 1
        wait_for(lambda: got, "it is delivered")
    assert got == [(LONG, Compression.LZ4.value)]


def test_a_message_whose_package_is_missing_fails_and_is_not_lost(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()

    @app.handler("flights", group="delays", filter=jmespath("flight"), retry=RetryPolicy(max_retries=0))
    def handle(flight: Flight) -> None:
        raise AssertionError(flight)

    with Producer(store, compression=Compression.ZSTD) as producer:
        producer.send(Message("flights", {"flight": "UA1545", "more": "x" * 5_000}))
    without(monkeypatch, "zstandard")
    with consuming(store, app) as consumer:
        wait_for(lambda: consumer.counters.failed == 1, "its delivery has failed")
    (letter,) = dead_letters.select(store, "delays", dead_letters.Selection())
    assert letter.error.startswith("rmqclient.store.errors.NotInstalled: this compression needs the package zstandard")


@pytest.mark.guarantee("G38")
def test_filters_look_into_compressed_bodies_and_keep_none(store: MessageStore) -> None:
    wanted = MessageFilter(filter=jmespath("delay > `60`"))
    with Producer(store, compression=Compression.ZLIB) as producer:
        for delay in (90, 30, 61):
            producer.send_batch([Message("flights", {"delay": delay, "more": "x" * 5_000})], "key")
        send_stored(producer, bomb(Compression.ZSTD, 2 << 20), Compression.ZSTD.value)
        send_stored(producer, b"damaged", Compression.ZSTD.value)

    passed = [message for message in messages(store, "flights") if wanted.matches(message)]
    assert sorted(json.loads(message.body)["delay"] for message in passed) == [61, 90]
    assert (wanted.counts.refused_by_body, wanted.counts.undecided) == (3, 2)


def test_a_pull_consumer_gives_bodies_as_they_were_sent(store: MessageStore) -> None:
    with Producer(store, compression=Compression.LZ4) as producer:
        producer.create_topic("flights", 1)
        producer.send(Message("flights", LONG))
    with PullConsumer(store, group="reports") as consumer:
        (queue,) = consumer.queues("flights")
        (message,) = consumer.pull(queue, 0).messages
        assert message.body == LONG


def test_an_acknowledged_message_no_longer_keeps_what_was_opened(store: MessageStore) -> None:
    with Producer(store, compression=Compression.ZSTD) as producer:
        producer.create_topic("flights", 1)
        producer.send(Message("flights", LONG))
    slot = store.groups.find_or_add("group", store.topics.slot(store.topics.queues("flights")[0]), 0)
    grant = store.grant(slot, slot.load("epoch"), TagSet(()))
    (message,) = grant.take(1, 100)

    first = message.body
    assert message.body is first
    assert grant.acknowledge(message)
    assert message.body == first
    assert message.body is not first


@pytest.mark.guarantee("G38")
def test_bombs_take_no_more_memory_than_their_limit(tmp_path: Path) -> None:
    # Given bodies that would open to 256 MiB each, and more of those that are allowed than there is room for
    limit = 16 << 20
    root = tmp_path / "store"
    with Producer(root) as producer:
        for compression in Compression:
            with Producer(root, compression=compression) as compressing:
                for _ in range(12):
                    compressing.send(Message("flights", bytes(4 << 20)), "one queue")
        large = zlib.compressobj(1)
        packed = b"".join(large.compress(bytes(1 << 20)) for _ in range(256)) + large.flush()
        send_stored(producer, packed, Compression.ZLIB.value)
        send_stored(producer, one_zstd_frame(256 << 20), Compression.ZSTD.value)

    # When a process handles all of them
    child = subprocess.run(
        [sys.executable, "-c", _HANDLING, root, str(limit)], capture_output=True, text=True, timeout=100, check=False
    )

    # Then it has lived on, the bombs have failed, and it never held more than one or two opened bodies
    assert child.returncode == 0, child.stderr
    handled, failed, grown_kib = map(int, child.stdout.split())
    assert (handled, failed) == (36, 2)
    assert grown_kib < 4 * limit >> 10


def one_zstd_frame(size: int) -> bytes:
    """Return a frame that does not tell its size, as a stream is written."""
    compressor = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    return b"".join(compressor.compress(bytes(1 << 20)) for _ in range(size >> 20)) + compressor.flush()


_HANDLING = """
import resource, sys, time
from rmqclient import App, RetryPolicy, StoreConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store

app = App()
handled = []

@app.handler("flights", group="delays", retry=RetryPolicy(max_retries=0))
def handle(body: bytes) -> None:
    handled.append(len(body))

def largest():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

with open_store(sys.argv[1], StoreConfig(max_opened_body_bytes=int(sys.argv[2]))) as store:
    before = largest()
    consumer = PushConsumer(store, app.handlers)
    consumer.start()
    deadline = time.monotonic() + 60
    while len(handled) + consumer.counters.failed < 38 and time.monotonic() < deadline:
        time.sleep(0.01)
    print(len(handled), consumer.counters.failed, largest() - before)
    consumer.stop_taking()
    consumer.drain(10)
    consumer.close()
"""
