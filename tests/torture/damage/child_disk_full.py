"""The senders of the rig that fills disks: each message is sent until there is room for it.

A sender says by lines of a pipe how it fares::

    f           it was told for the first time in this burst that the disk is full
    w ns        a send has worked again, at this CLOCK_BOOTTIME
    d           the burst is over
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rmqclient.message import Message
from rmqclient.sending.producer import Producer
from rmqclient.store import Durability, boottime
from rmqclient.store.errors import StoreFull
from tests.crash.processes.child_campaign import CONFIG, LARGEST_BATCH, QUEUES, TOPIC, body_of

SMALL_FILES = replace(
    CONFIG,
    commit_log_file_bytes=65_536,
    max_body_bytes=2_048,
    consume_queue_file_entries=64,
    index_slots=64,
    index_entries=2_048,
)
BURST = 250
PAUSE_S = 0.002


Result = TypeVar("Result")


class Sender:
    """One sender, until its orders end."""

    def __init__(self, root: Path, evidence: Path, number: int, seed: int, tell: int) -> None:
        self._root = root
        self._number = number
        self._chance = random.Random(seed)
        self._said = os.open(evidence, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pipe = tell
        durability = Durability.SYNC if number % 2 else Durability.ASYNC
        self._producer = Producer(root, config=replace(SMALL_FILES, durability=durability))
        self._producer.create_topic(TOPIC, QUEUES)
        self._next = 0
        self._topics = 0
        self._was_told = False

    def serve(self, bursts: int) -> None:
        """Send a burst for each byte that comes, and close when no more can come."""
        self._tell("d")
        while os.read(bursts, 1):
            self._was_told = False
            if self._chance.random() < 0.3:
                self._topics += 1
                self._insist(lambda: self._producer.create_topic(f"more-{self._number}-{self._topics}", 1))
            for _ in range(BURST):
                self._send()
            self._tell("d")
        self._producer.close()

    def _send(self) -> None:
        count = self._chance.randint(1, LARGEST_BATCH) if self._chance.random() < 0.3 else 1
        key = f"key {self._chance.randint(0, 9)}"
        messages = [Message(TOPIC, body_of(self._number, self._next + step)) for step in range(count)]
        os.write(self._said, b"i %d %d\n" % (self._next, count))
        queue_id = self._insist(lambda: self._producer.send_batch(messages, key))[0].queue.queue_id
        os.write(self._said, b"o %d %d %d\n" % (self._next, count, queue_id))
        self._next += count

    def _insist(self, action: Callable[[], Result]) -> Result:
        """Do it again until there is room. Anything but StoreFull ends this process, which the rig then sees."""
        was_full = False
        while True:
            try:
                result = action()
            except StoreFull as error:
                check(error, self._root)
                was_full = True
                if not self._was_told:
                    self._was_told = True
                    self._tell("f")
                time.sleep(PAUSE_S)
                continue
            if was_full:
                self._tell(f"w {boottime()}")
            return result

    def _tell(self, text: str) -> None:
        os.write(self._pipe, f"{text}\n".encode())


def check(error: StoreFull, root: Path) -> None:
    """Raise AssertionError unless the error says what a caller needs: that it may try again, where, and what to do."""
    text = str(error)
    assert error.retryable, text
    assert not error.stored, text
    assert str(root) in text, text
    assert "Make room" in text, text
