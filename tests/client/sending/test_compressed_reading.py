"""What reads compressed bodies: handlers, filters, pull consumers, and limits against bombs."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
    jmespath,
)
from rmqclient.failures import dead_letters
from rmqclient.filters import MessageFilter
from rmqclient.store import MessageStore, TagSet, bodies, open_store
from tests.client.conftest import consuming, wait_for
from tests.client.sending.compressed import LONG, messages, send_stored, without


def bomb(compression: Compression, size: int) -> bytes:
    """Return a body that opens to much more than it is."""
    packed = bodies.compress(bytes(size), compression)
    assert len(packed) < size // 100
    return packed


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
    grant = store.grants.grant(slot, slot.load("epoch"), TagSet(()))
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
