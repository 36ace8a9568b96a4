"""Log child: what a process does with a long log. Each function runs in a child."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.child import Begin
from benchmarks.growing.cost import Worked
from benchmarks.machine import process_fields
from benchmarks.traffic import BATCH, TAG, TOPIC, ignore, watch
from rmqclient import App, Message, Producer
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.consuming.reader import Reader
from rmqclient.store import MessageQueue, MessageStore, open_store

QUEUES = 4
_DRAIN_S = 30.0


class Opened(NamedTuple):
    """An opening, and the closing after it, in seconds."""

    open_s: float
    close_s: float
    resident_bytes: int
    """Most that the process had until the store was open."""
    messages: int


class Consumed(NamedTuple):
    """A group that handled the end of a log."""

    work: Worked
    resident_bytes: int
    """Most that the process had."""


class Searched(NamedTuple):
    """Milliseconds of a search: the first one of a process, and the median of all of them."""

    first_ms: float
    median_ms: float


class Verified(NamedTuple):
    """A run of ``rmq store verify``."""

    took_s: float
    resident_bytes: int
    """Most that the process had."""


def key_of(number: int) -> str:
    """Return the key of a message; the first one of each batch has a key."""
    return f"order-{number:010}"


def fill(begin: Begin, root: Path, first: int, messages: int, body_bytes: int) -> None:
    """Send batches to all queues in turn, then die as by ``kill -9``.

    One message of each batch has a key: its number, which begins with ``first``.
    """
    body = bytes(body_bytes)
    without_key = [Message(TOPIC, body, tags=TAG)] * (BATCH - 1)
    with Producer(root) as producer:
        producer.create_topic(TOPIC, QUEUES)
        begin()
        for number in range(first, first + messages, BATCH):
            producer.send_batch([Message(TOPIC, body, tags=TAG, keys=(key_of(number),)), *without_key])
        os.kill(os.getpid(), signal.SIGKILL)


def opening(begin: Begin, root: Path) -> Opened:
    """Open a store that no process has open, and close it."""
    begin()
    begun = time.monotonic()
    with open_store(root, create=False, housekeeping=False) as store:
        open_s, resident = time.monotonic() - begun, _most_resident_bytes()
        messages = Admin(store).topic(TOPIC).messages
        begun = time.monotonic()
    return Opened(open_s, time.monotonic() - begun, resident, messages)


def consume_last(begin: Begin, root: Path, group: str, messages: int) -> Consumed:
    """Handle the last messages of the log in a new group, on one thread, with a handler that does nothing."""
    app = App(root)
    app.handler(TOPIC, group=group)(ignore)
    with open_store(root, create=False) as store:
        queues = store.topics.queues(TOPIC)
        each = messages // len(queues)
        ends = {queue: store.topics.max_offset(queue) for queue in queues}
        Admin(store).place(group, {(TOPIC, queue.queue_id): end - each for queue, end in ends.items()})
        consumer = PushConsumer(store, app.handlers)
        consumer.hold()
        consumer.start()
        begin()
        used_s = time.process_time()
        consumer.resume()
        span = watch(consumer, each * len(queues))
        used_s, resident = time.process_time() - used_s, _most_resident_bytes()
        consumer.stop(_DRAIN_S)
    return Consumed(Worked(span, each * len(queues), used_s), resident)


def search_keys(begin: Begin, root: Path, numbers: Sequence[int]) -> Searched:
    """Find messages by their keys, as ``Reader.find`` does for everybody."""
    with open_store(root, create=False, housekeeping=False) as store:
        reader = Reader(store)

        def find(number: int) -> None:
            (found,) = reader.find(TOPIC, key_of(number))
            assert found.keys == (key_of(number),)

        begin()
        return _searched(find, numbers)


def search_times(begin: Begin, root: Path, numbers: Sequence[int]) -> Searched:
    """Find the first message that was stored when another one was."""
    with open_store(root, create=False, housekeeping=False) as store:
        known = {number: _stored_ms(store, number) for number in numbers}

        def find(number: int) -> None:
            queue, offset = _place(number)
            assert store.messages.offset_by_time(queue, known[number]) <= offset

        begin()
        return _searched(find, numbers)


def verify(begin: Begin, root: Path) -> Verified:
    """Run ``rmq store verify``, the start of its interpreter included. Raises CalledProcessError for a problem."""
    begin()
    begun = time.monotonic()
    command = [sys.executable, "-m", "rmqclient.workers", "store", "verify", str(root)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    took_s = time.monotonic() - begun
    return Verified(took_s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)


def _searched(find: Callable[[int], None], numbers: Sequence[int]) -> Searched:
    took_ms = []
    for number in numbers:
        begun = time.perf_counter()
        find(number)
        took_ms.append((time.perf_counter() - begun) * 1e3)
    return Searched(took_ms[0], median(took_ms))


def _place(number: int) -> tuple[MessageQueue, int]:
    """Return queue and queue offset of about this message: batches go to the queues in turn, from any of them on."""
    batch, within = divmod(number, BATCH)
    turn, queue_id = divmod(batch, QUEUES)
    return MessageQueue(TOPIC, queue_id), turn * BATCH + within


def _stored_ms(store: MessageStore, number: int) -> int:
    return store.messages.at(*_place(number)).store_timestamp


def _most_resident_bytes() -> int:
    return int(process_fields(os.getpid())["VmHWM"].removesuffix(" kB")) << 10
