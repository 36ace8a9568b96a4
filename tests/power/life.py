"""The processes whose power is cut: senders, a consumer, and the one that opens the store after the cut.

Evidence goes to a file for each process, on another file system than the store, by one write for each line. Times are
ns of :func:`rmqclient.store.boottime`::

    w ns stage                                       opening, open, closing, closed
    i first count size topic                         it is about to send so many messages of so many bytes
    o ns first count queue queue_offset end          the send has returned; where the first one stands, where all end
    k topic queue queue_offset sender number         it is about to acknowledge this message
    r log_end                                        recovery is done, and the log ends here
    g topic queue committed min max                  the group's committed offset after recovery
    x ns what                                        an error; none may come before the cut
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rmqclient.sending.producer import Producer
from rmqclient.store import (
    Durability,
    Message,
    MessageQueue,
    MessageStore,
    QueueGrant,
    StoreConfig,
    boottime,
    open_store,
)
from rmqclient.store.config import FlushConfig
from tests.support.stores import grant_of

TOPICS = ("events", "orders")
GROUP = "readers"
QUEUES = 2

CONFIG = StoreConfig(
    commit_log_file_bytes=64 << 10,
    max_body_bytes=8 << 10,
    consume_queue_file_entries=64,
    index_slots=16,
    index_entries=64,
    default_queue_count=QUEUES,
    flush=FlushConfig(interval_ms=10, thorough_interval_ms=50),
    offset_persist_interval_ms=20,
)
LAZY = replace(CONFIG, flush=FlushConfig(interval_ms=100, thorough_interval_ms=300))
"""More is lost at a cut, so more can go wrong."""

LARGEST_BATCH = 6
RECORD_OVERHEAD = 159
"""Bytes of a record of these topics besides the body, so that some records fill pages exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a sender is to do."""

    sender: int
    seed: int
    durability: Durability
    sizes: tuple[int, ...]
    """Of the bodies, to choose from."""
    sends: int
    pause_s: float
    """Longest pause between sends."""
    close: bool
    """Whether to leave the store after the last send."""


def body_of(sender: int, number: int, size: int) -> bytes:
    """Return the only right body of a message."""
    text = b"%d %d;" % (sender, number)
    return (text * -(-size // len(text)))[: max(size, len(text))]


def name_of(body: bytes) -> tuple[int, int] | None:
    """Return sender and number of a message, None when its body is damaged."""
    try:
        sender, number = map(int, body.partition(b";")[0].split())
    except ValueError:
        return None
    return (sender, number) if body == body_of(sender, number, len(body)) else None


class Evidence:
    """The file of one process, and a pipe that gets a byte with each stage."""

    def __init__(self, path: Path, stages: int) -> None:
        self._stages = stages
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(self, line: str) -> None:
        """Write one line, which no kill can take back."""
        os.write(self._descriptor, f"{line}\n".encode())

    def stage(self, name: str) -> None:
        """Say how far the process is."""
        self.say(f"w {boottime()} {name}")
        os.write(self._stages, b".")

    def error(self, what: str) -> None:
        """Say what went wrong, and when."""
        self.say(f"x {boottime()} {' '.join(what.split())}")


class _ErrorLog(logging.Handler):
    """Errors that the store reports by logging are evidence, too."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(logging.ERROR)
        self._evidence = evidence

    def emit(self, record: logging.LogRecord) -> None:
        self._evidence.error(record.getMessage())


def send(root: Path, config: StoreConfig, evidence: Evidence, errand: Errand) -> None:
    """Open the store, send, and leave it or wait for the cut."""
    chance = random.Random(errand.seed)
    with _opened(root, config, evidence, close=errand.close) as store:
        producer = Producer(store, config=replace(config, durability=errand.durability))
        number = 0
        for _ in range(errand.sends):
            count = chance.randint(2, LARGEST_BATCH) if chance.random() < 0.3 else 1
            first = errand.sender, number
            _send(producer, evidence, first, count, chance.choice(errand.sizes), chance.choice(TOPICS))
            number += count
            if chance.random() < 0.05:
                store.index.catch_up()
            time.sleep(chance.uniform(0, errand.pause_s))  # so that flushes fall between sends


def consume(root: Path, config: StoreConfig, evidence: Evidence, seed: int) -> None:
    """Take what there is and acknowledge most of it, not always in order, until the cut."""
    chance = random.Random(seed)
    with _opened(root, config, evidence, close=False) as store:
        queues = [queue for topic in TOPICS for queue in store.topics.create(topic, QUEUES)]
        grants = {queue: grant_of(store, GROUP, queue) for queue in queues}
        left: dict[MessageQueue, list[int]] = {queue: [] for queue in queues}
        while True:
            for queue, grant in grants.items():
                _acknowledge(grant, evidence, left[queue], chance)
            time.sleep(0.001)


def _acknowledge(grant: QueueGrant, evidence: Evidence, left: list[int], chance: random.Random) -> None:
    offsets = []
    for message in grant.take(8, 2_000):
        sender, number = name_of(message.body) or (-1, -1)
        evidence.say(f"k {message.topic} {message.queue_id} {message.queue_offset} {sender} {number}")
        offsets.append(message.queue_offset)
    if chance.random() < 0.5:
        chance.shuffle(offsets)
        left += offsets[:1]  # done with later ones first
        offsets = offsets[1:]
    else:
        offsets += left
        left.clear()
    if offsets:
        grant.acknowledge_offsets(offsets)


def look(root: Path, config: StoreConfig, evidence: Evidence, errand: Errand) -> None:
    """Recover the store, say what recovery made of it, and append to it; perhaps leave it as a kill would."""
    with _opened(root, config, evidence, close=errand.close, housekeeping=False) as store:
        evidence.say(f"r {store.state.published_to}")
        for slot in store.groups:
            queue = store.topics.queue(slot.queue_slot)
            ends = f"{store.topics.min_offset(queue)} {store.topics.max_offset(queue)}"
            evidence.say(f"g {queue.topic} {queue.queue_id} {slot.committed_offset} {ends}")
        producer = Producer(store, config=replace(config, durability=errand.durability))
        _send(producer, evidence, (errand.sender, 0), 1, errand.sizes[0], TOPICS[errand.seed % 2])
        store.index.catch_up()
        if not errand.close:
            os._exit(0)


def _send(producer: Producer, evidence: Evidence, first: tuple[int, int], count: int, size: int, topic: str) -> None:
    """Send so many messages, numbered from the first on, and say so before and after."""
    sender, number = first
    messages = [Message(topic, body_of(sender, number + step, size)) for step in range(count)]
    evidence.say(f"i {number} {count} {size} {topic}")
    results = [producer.send(messages[0])] if count == 1 else producer.send_batch(messages)
    where = f"{results[0].queue.queue_id} {results[0].queue_offset} {results[-1].commit_log_end}"
    evidence.say(f"o {boottime()} {number} {count} {where}")


@contextmanager
def _opened(
    root: Path, config: StoreConfig, evidence: Evidence, *, close: bool, housekeeping: bool = True
) -> Iterator[MessageStore]:
    logging.getLogger("rmqclient.store").addHandler(_ErrorLog(evidence))
    logging.getLogger("rmqclient.store").propagate = False
    evidence.stage("opening")
    store = open_store(root, config, housekeeping=housekeeping)
    evidence.stage("open")
    yield store
    if not close:
        while True:
            signal.pause()
    evidence.stage("closing")
    store.close()
    evidence.stage("closed")
