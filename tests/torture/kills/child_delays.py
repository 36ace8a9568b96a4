"""The processes of the rig of delayed messages, which say what they do until they are killed.

Each writes to a file of its own, outside of the store, by one write for each line, which a kill cannot take back. A
producer writes behind each send, and around each cancel::

    s number due       the send has returned
    C number           it is about to cancel
    c number 0|1       the cancel has returned that

A consumer writes before it handles a message::

    now producer number due

Times are milliseconds of the wall clock. A housekeeper writes ``h`` when it has got the role.
"""

from __future__ import annotations

import datetime
import heapq
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import StoreConfig, open_store
from rmqclient.store.errors import StoreBusy
from tests.crash.processes.child_campaign import GROUP, TOPIC

CONFIG = StoreConfig(
    commit_log_file_bytes=16 << 20,
    max_body_bytes=16 << 10,
    index_slots=1 << 18,
    index_entries=1 << 20,
    default_queue_count=4,
    offset_persist_interval_ms=1_000,
)
CONSUMER = ConsumerConfig(liveness_interval_ms=20, lease_ms=60_000)
"""A lease so long that only a death can end it."""

SLICE = 20
"""Messages that are sent before a producer looks whether it is ahead of its pace."""
CANCELLED = 0.02
LATEST_CANCEL_S = 5.0
WORK_EVERY = 100
"""Every so many messages take the handler some time."""
WORK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one producer sends, and how."""

    producer: int
    numbers: range
    per_second: float
    shortest_s: float
    longest_s: float
    """Delays are log-uniform between these."""
    seed: int


def body_of(producer: int, number: int, due_ms: int) -> bytes:
    """Return the only right body of a message."""
    return b"%d %d %d" % (producer, number, due_ms)


def parts_of(body: bytes) -> tuple[int, int, int]:
    """Return the producer, the number and the due time of a message. Raises ValueError for another body."""
    producer, number, due_ms = map(int, body.split())
    return producer, number, due_ms


def produce(root: Path, evidence: Path, share: Share) -> None:
    """Send the messages of a share at its pace, and take some back; returns when all is done."""
    say, chance = _saying(evidence), random.Random(share.seed)
    cancels: list[tuple[float, int, str]] = []
    with Producer(open_store(root, CONFIG, housekeeping=False)) as producer:
        began = time.monotonic()
        for sent, number in enumerate(share.numbers):
            delay_s = share.shortest_s * (share.longest_s / share.shortest_s) ** chance.random()
            due_ms, message_id = _send(producer, share.producer, number, delay_s)
            say(b"s %d %d" % (number, due_ms))
            if chance.random() < CANCELLED:
                after_s = chance.uniform(0, min(delay_s, LATEST_CANCEL_S))
                heapq.heappush(cancels, (time.monotonic() + after_s, number, message_id))
            if sent % SLICE == 0:
                _cancel(producer, cancels, say)
                time.sleep(max(0.0, began + sent / share.per_second - time.monotonic()))
        while cancels:
            time.sleep(max(0.0, cancels[0][0] - time.monotonic()))
            _cancel(producer, cancels, say)


def consume(root: Path, evidence: Path) -> None:
    """Handle messages until the end."""
    say = _saying(evidence)
    app = App(root)

    @app.handler(TOPIC, group=GROUP, retry=RetryPolicy(max_retries=1_000, delay_levels=(1,)))
    def handle(message: ReceivedMessage) -> None:
        say(b"%d %s" % (now_ms(), message.body))
        if parts_of(message.body)[1] % WORK_EVERY == 0:
            time.sleep(WORK_S)  # so that kills meet a message in its handler

    PushConsumer(open_store(root, CONFIG, housekeeping=False), app.handlers, config=CONSUMER).start()
    while True:
        signal.pause()


def keep_house(root: Path, evidence: Path) -> None:
    """Be the housekeeper, or be there to become it, until the end."""
    say = _saying(evidence)
    store = open_store(root, CONFIG)
    assert store.housekeeper is not None
    while not store.housekeeper.has_role:
        time.sleep(0.01)
    say(b"h")
    while True:
        signal.pause()


def now_ms() -> int:
    """Return the time of the wall clock."""
    return time.time_ns() // 1_000_000


def _send(producer: Producer, own: int, number: int, delay_s: float) -> tuple[int, str]:
    """Send one message, for a time or after a delay; return the time before which nobody may get it."""
    while True:
        delay_ms = int(delay_s * 1_000)
        due_ms = now_ms() + delay_ms
        message = Message(TOPIC, body_of(own, number, due_ms))
        with suppress(StoreBusy):  # nothing was stored
            if number % 2:
                deliver_at = datetime.datetime.fromtimestamp(due_ms / 1_000, datetime.UTC)
                return due_ms, producer.send(message, deliver_at=deliver_at).message_id
            return due_ms, producer.send(message, delay=datetime.timedelta(milliseconds=delay_ms)).message_id


def _cancel(producer: Producer, cancels: list[tuple[float, int, str]], say: Callable[[bytes], None]) -> None:
    while cancels and cancels[0][0] <= time.monotonic():
        _, number, message_id = heapq.heappop(cancels)
        say(b"C %d" % number)
        with suppress(StoreBusy):  # then nobody knows
            say(b"c %d %d" % (number, producer.cancel(message_id)))


def _saying(evidence: Path) -> Callable[[bytes], None]:
    file = os.open(evidence, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(what: bytes) -> None:
        os.write(file, what + b"\n")

    return say
