"""The processes of the campaign of random kills: senders and consumers that say what they do until they are killed.

Evidence goes to a file for each process, outside of the store, by one write for each line, which a kill cannot take
back. A sender writes before and after each send::

    i first count           it is about to send so many messages, numbered from the first on
    o first count queue     the send has returned; the queue that it named

A consumer writes before and after each handler call::

    s thread ns sender number queue offset
    e thread ns sender number queue offset
"""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

from rmqclient.app import App
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.failures.retry import RetryPolicy
from rmqclient.message import Message, ReceivedMessage
from rmqclient.sending.producer import Producer
from rmqclient.store import StoreConfig, boottime, open_store
from rmqclient.store.config import FlushConfig

TOPIC = "events"
GROUP = "readers"
QUEUES = 4
THREADS = 2

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 20,
    max_body_bytes=16 << 10,
    consume_queue_file_entries=1_000,
    default_queue_count=QUEUES,
    flush=FlushConfig(interval_ms=50, thorough_interval_ms=300),
    offset_persist_interval_ms=100,
)
CONSUMER = ConsumerConfig(liveness_interval_ms=20, lease_ms=20_000)
"""A lease so long that only a death can end it."""

LARGEST_BATCH = 8
BURST = 80
"""Sends of one burst."""


def body_of(sender: int, number: int) -> bytes:
    """Return the only right body of a message; its length depends on the message, too."""
    text = b"%d %d;" % (sender, number)
    return text * (1 + (sender * 31 + number * 17) % 40)


def sender_and_number(body: bytes) -> tuple[int, int] | None:
    """Return whose message a body is, None when it is damaged."""
    try:
        sender, number = map(int, body.partition(b";")[0].split())
    except ValueError:
        return None
    return (sender, number) if body == body_of(sender, number) else None


def send(root: Path, evidence: Path, sender: int, seed: int, ready: int, bursts: int) -> None:
    """Send a burst for each ``b`` that comes from ``bursts``, alone or in batches, to one queue or in turns."""
    said = _open(evidence)
    chance = random.Random(seed)
    producer = Producer(root, config=CONFIG)
    os.write(ready, b"r")
    number = 0
    while os.read(bursts, 1) == b"b":
        for _ in range(BURST):
            count = chance.randint(1, LARGEST_BATCH) if chance.random() < 0.3 else 1
            key = f"key {chance.randint(0, 9)}" if chance.random() < 0.5 else None
            messages = [Message(TOPIC, body_of(sender, number + step), keys=[str(number)]) for step in range(count)]
            os.write(said, b"i %d %d\n" % (number, count))
            result = producer.send(messages[0], key) if count == 1 else producer.send_batch(messages, key)[0]
            os.write(said, b"o %d %d %d\n" % (number, count, result.queue.queue_id))
            number += count


def consume(root: Path, evidence: Path, ready: int, config: StoreConfig = CONFIG) -> None:
    """Handle messages until the end."""
    said = _open(evidence)
    app = App(root, config=config)

    @app.handler(TOPIC, group=GROUP, threads=THREADS, retry=RetryPolicy(max_retries=1_000, delay_levels=(1,)))
    def handle(message: ReceivedMessage) -> None:
        sender, number = sender_and_number(message.body) or (-1, -1)
        line = b"%d %d %d %d\n" % (sender, number, message.queue_id, message.queue_offset)
        thread = threading.get_ident()
        os.write(said, b"s %d %d " % (thread, boottime()) + line)
        os.write(said, b"e %d %d " % (thread, boottime()) + line)

    PushConsumer(open_store(root, config), app.handlers, config=CONSUMER).start()
    os.write(ready, b"r")
    while True:
        signal.pause()


def _open(evidence: Path) -> int:
    return os.open(evidence, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
