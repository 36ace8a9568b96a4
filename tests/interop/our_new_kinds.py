"""A store with what RocketMQ 4.9 does not know: compact topics, timed messages, compressed batches, sends by key.

Of the compact topics the log has lost the first messages: all of ``settings``, and most of ``prices``.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from rmqclient import Compression, Message, Producer, PullConsumer
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep import retention
from tests.interop.our_store import CONFIG

COMPACT = {"prices": 2, "settings": 1}
"""Compact topics, and their queues."""
PLAIN, BATCHED, TIMED = "plain", "batched", "timed"

KEYS = 20
DELETED = "key-7"
CANCELLED = b"cancelled"
DELIVERED = b"delivered here"
FAR = [b"far %d" % number for number in range(3)]
SOON = [b"soon %d" % number for number in range(3)]
SOON_S = 3.0
IN_A_BATCH = 10

Table = dict[tuple[str, int, str], bytes]
"""The values of the compact topics, by topic, queue id and key."""


def write(root: Path) -> None:
    """Make the store and close it."""
    with open_store(root, CONFIG, housekeeping=False) as store, Producer(store) as producer:
        for topic, queue_count in COMPACT.items():
            producer.create_topic(topic, queue_count, cleanup_policy="compact")
        for topic in (PLAIN, BATCHED, TIMED):
            producer.create_topic(topic, 1)
        producer.send(Message(TIMED, FAR[0], keys=["far"]), delay=timedelta(days=30))
        for number in range(5):
            producer.send(Message("settings", b"setting %d" % number, keys=[f"key-{number % 3}"]))
        for number in range(1_500):
            producer.send(Message("prices", b"price %d " % number * 30, keys=[f"key-{number % KEYS}"]))
        producer.send(Message("prices", b"", keys=[DELETED]))
        remove_files(store)
        for number in range(8):
            producer.send(Message("prices", b"later price %d" % number, keys=[f"key-{number * 5}"]))
            producer.send(Message(PLAIN, b"plain %d" % number, keys=[f"k{number}"]))
        send_once(producer)
        _write_batches(producer)
        _write_timed(store, producer)


def expected_table() -> dict[tuple[str, str], bytes]:
    """Return the last value that was written of each key."""
    prices = {f"key-{number % KEYS}": b"price %d " % number * 30 for number in range(1_500)} | {DELETED: b""}
    prices |= {f"key-{number * 5}": b"later price %d" % number for number in range(8)}
    settings = {"key-0": b"setting 3", "key-1": b"setting 4", "key-2": b"setting 2"}
    return {("prices", key): value for key, value in prices.items()} | {
        ("settings", key): value for key, value in settings.items()
    }


def send_once(producer: Producer) -> bool:
    """Send a message by its key; return whether it was there already."""
    return producer.send_once(Message(PLAIN, b"once"), "order-1").is_duplicate


def remove_files(store: MessageStore) -> None:
    """Let retention remove every commit log file but the newest; the compact topics are compacted for that."""
    store.flusher.flush_thorough()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "PAUSE_S", 0)
        patch.setattr(store.disk, "usage", lambda: Usage(86.0, 1 << 40))
        while store.retention.clean():
            pass


def _write_batches(producer: Producer) -> None:
    """Write a batch with each compression between single messages: at each odd offset from 1 on."""
    for number, compression in enumerate(Compression):
        producer.send(Message(BATCHED, b"single %d" % number))
        producer.send_batch([Message(BATCHED, body) for body in batch_of(compression)], compression=compression)
    producer.send(Message(BATCHED, b"single %d" % len(Compression)))


def batch_of(compression: Compression) -> list[bytes]:
    """Return the bodies of a batch."""
    return [b"%s %d of a batch" % (compression.name.encode(), number) for number in range(IN_A_BATCH)]


def _write_timed(store: MessageStore, producer: Producer) -> None:
    """Write messages of which one is delivered, one is cancelled, and the others wait, some for a moment."""
    producer.send(Message(TIMED, DELIVERED), delay=timedelta(milliseconds=1))
    assert producer.cancel(producer.send(Message(TIMED, CANCELLED), delay=timedelta(days=1)).message_id)
    while store.topics.max_offset(MessageQueue(TIMED, 0)) == 0:
        store.timer.look()  # the thread of the store looks, too, so what this returns may be about the far messages
    for body in FAR[1:]:
        producer.send(Message(TIMED, body, keys=["far"]), delay=timedelta(days=30))
    producer.send_batch([Message(TIMED, body, keys=["soon"]) for body in SOON], delay=timedelta(seconds=SOON_S))


def table(store: MessageStore) -> Table:
    """Read the compact topics from their begin; a tombstone is an empty body."""
    found: Table = {}
    with PullConsumer(store, group="table") as consumer:
        for topic in COMPACT:
            for queue in consumer.queues(topic):
                for message in all_of(store, consumer, queue):
                    found[topic, queue.queue_id, message[0]] = message[1]
    return found


def all_of(store: MessageStore, consumer: PullConsumer, queue: MessageQueue) -> list[tuple[str, bytes]]:
    """Return key and body of every message of a queue."""
    offset, found = store.topics.min_offset(queue), list[tuple[str, bytes]]()
    while True:
        pulled = consumer.pull(queue, offset)
        if not pulled.messages:
            return found
        found += [(message.keys[0], message.body) for message in pulled.messages]
        offset = pulled.next_offset


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    """Return the bodies of queue 0 of a topic."""
    queue = MessageQueue(topic, 0)
    return [store.messages.at(queue, number).body for number in range(store.topics.max_offset(queue))]
