"""Traffic: the work of the producers and consumers of the benchmarks. Each function runs in a child."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child import Begin
from benchmarks.measure import Span
from rmqclient import App, Message, Producer, SendResult
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.handler import Order
from rmqclient.store import open_store

TOPIC = "benchmark"
TAG = "created"
KEYS = tuple(f"order-{number:04}" for number in range(1_024))
"""Number of keys and of sharding keys: enough to give every queue its share."""

BATCH = 100
_PREBUILT_BATCHES = 100
_LOOK_INTERVAL_S = 0.01
_LONGEST_STALL_S = 30.0


class Opened(NamedTuple):
    """Seconds of each opening."""

    alone: float
    beside: float


def send(begin: Begin, root: Path, messages: int, body_bytes: int, queue_count: int = 4, topic: str = TOPIC) -> Span:
    """Send one by one; each message is made just before, with tag, key and sharding key."""
    body = bytes(body_bytes)
    with Producer(root) as producer:
        producer.create_topic(topic, queue_count)
        first, *_ = [producer.send(Message(topic, body, tags=TAG, keys=(key,)), key) for key in KEYS]
        begin()
        begun_ns = time.monotonic_ns()
        for key in islice(cycle(KEYS), messages):
            producer.send(Message(topic, body, tags=TAG, keys=(key,)), key)
        ended_ns = time.monotonic_ns()
    return _span(messages, first, begun_ns, ended_ns)


def send_in_turns(
    begin: Begin, root: Path, messages: int, body_bytes: int, queue_count: int, queues_of_a_topic: int
) -> tuple[Span, int]:
    """Send one by one to all queues in turn, without sharding keys; also return the resident bytes at the end."""
    body = bytes(body_bytes)
    counts = [min(queues_of_a_topic, queue_count - made) for made in range(0, queue_count, queues_of_a_topic)]
    topics = [f"{TOPIC}-{number}" for number in range(len(counts))]
    with Producer(root) as producer:
        for topic, count in zip(topics, counts, strict=True):
            producer.create_topic(topic, count)
        first, *_ = [
            producer.send(Message(topic, body, tags=TAG, keys=KEYS[:1])) for topic in islice(cycle(topics), queue_count)
        ]
        begin()
        begun_ns = time.monotonic_ns()
        for key, topic in islice(zip(cycle(KEYS), cycle(topics), strict=False), messages):
            producer.send(Message(topic, body, tags=TAG, keys=(key,)))
        ended_ns = time.monotonic_ns()
        resident = _resident_bytes()
    return _span(messages, first, begun_ns, ended_ns), resident


def opening(begin: Begin, root: Path) -> Opened:
    """Open a store that no process has open, then open it a second time."""
    begin()
    begun = time.monotonic()
    with open_store(root, housekeeping=False) as store:
        alone = time.monotonic() - begun
        begun = time.monotonic()
        with open_store(root, housekeeping=False) as other:
            beside = time.monotonic() - begun
            assert len(other.topics) == len(store.topics)
    return Opened(alone, beside)


def send_prebuilt(begin: Begin, root: Path, messages: int, body_bytes: int) -> Span:
    """Send batches of prepared messages: 100 batches in turn, 10,000 messages."""
    batches = prebuilt(body_bytes)
    with Producer(root) as producer:
        first = producer.send_batch(batches[0], KEYS[0])[0]
        begin()
        begun_ns = time.monotonic_ns()
        for batch, key in islice(zip(cycle(batches), cycle(KEYS), strict=False), messages // BATCH):
            producer.send_batch(batch, key)
        ended_ns = time.monotonic_ns()
    return _span(messages // BATCH * BATCH, first, begun_ns, ended_ns)


def send_built(begin: Begin, root: Path, messages: int, body_bytes: int) -> Span:
    """Send batches; the messages of each are made just before."""
    batches = _batches(body_bytes)
    with Producer(root) as producer:
        first = producer.send_batch(next(batches), KEYS[0])[0]
        begin()
        begun_ns = time.monotonic_ns()
        for batch, key in islice(zip(batches, cycle(KEYS), strict=False), messages // BATCH):
            producer.send_batch(batch, key)
        ended_ns = time.monotonic_ns()
    return _span(messages // BATCH * BATCH, first, begun_ns, ended_ns)


def send_bulk(begin: Begin, root: Path, log_bytes: int, topic: str) -> None:
    """Send bodies of 1 KiB to 64 KiB in batches until the log has grown by a number of bytes."""
    batch = [Message(topic, bytes(1024 << step)) for step in range(7)] * 2
    with Producer(root) as producer:
        begin()
        first = last = producer.send_batch(batch, KEYS[0])[0]
        keys = cycle(KEYS)
        while last.commit_log_end - first.commit_log_offset < log_bytes:
            last = producer.send_batch(batch, next(keys))[-1]


def consume(
    begin: Begin,
    root: Path,
    threads: int = 1,
    topic: str = TOPIC,
    *,
    order: Order | None = None,
    handle: Callable[[Any], object] | None = None,
) -> Span:
    """Handle all messages of a topic, by default with a handler that does nothing; each is acknowledged singly."""
    app = App(root)
    app.handler(topic, group="readers", threads=threads, order=order)(handle or ignore)
    with open_store(root) as store:
        total = Admin(store).topic(topic).messages
        consumer = PushConsumer(store, app.handlers)
        begin()
        consumer.start()
        span = watch(consumer, total)
        consumer.stop_taking()
        consumer.drain(_LONGEST_STALL_S)
        consumer.close()
    return span


def consume_and_weigh(begin: Begin, root: Path, threads: int) -> tuple[Span, int]:
    """Do the same, and also return the resident bytes at the end."""
    return consume(begin, root, threads), _resident_bytes()


def call(begin: Begin, messages: int) -> Span:
    """Call the same handler in a loop: the upper limit of any consumer."""
    arguments = [Message(TOPIC, b"", tags=TAG, keys=(key,)) for key in KEYS]
    handler: Callable[[object], None] = ignore
    begin()
    begun_ns = time.monotonic_ns()
    for message in islice(cycle(arguments), messages):
        handler(message)
    return Span(messages=messages, record_bytes=0, begun_ns=begun_ns, ended_ns=time.monotonic_ns())


def prebuilt(body_bytes: int) -> list[list[Message]]:
    """Return 100 batches of 100 messages."""
    return list(islice(_batches(body_bytes), _PREBUILT_BATCHES))


def ignore(_message: object) -> None:
    """Handle a message by doing nothing."""


async def ignore_async(_message: object) -> None:
    """Handle a message in a coroutine that does nothing, and waits for nothing."""


def _batches(body_bytes: int) -> Iterator[list[Message]]:
    body = bytes(body_bytes)
    keys = cycle(KEYS)
    while True:
        yield [Message(TOPIC, body, tags=TAG, keys=(key,)) for key in islice(keys, BATCH)]


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _span(messages: int, example: SendResult, begun_ns: int, ended_ns: int) -> Span:
    record_bytes = example.commit_log_end - example.commit_log_offset
    return Span(messages=messages, record_bytes=record_bytes, begun_ns=begun_ns, ended_ns=ended_ns)


def watch(consumer: PushConsumer, total: int) -> Span:
    """Watch the counter; return the span from the first progress seen to the last before the end.

    Raises TimeoutError if there is no more progress.
    """
    looks = [(time.monotonic_ns(), 0)]
    progress_at = time.monotonic()
    while looks[-1][1] < total:
        time.sleep(_LOOK_INTERVAL_S)
        looks.append((time.monotonic_ns(), consumer.counters.handled))
        if looks[-1][1] > looks[-2][1]:
            progress_at = time.monotonic()
        elif time.monotonic() > progress_at + _LONGEST_STALL_S:
            raise TimeoutError(f"{looks[-1][1]} of {total} messages handled, and no more for {_LONGEST_STALL_S} s")
    under_way = [look for look in looks if 0 < look[1] < total]
    seen = (under_way[0], under_way[-1]) if under_way else (looks[0], looks[-1])
    first, last = seen if seen[0][1] < seen[1][1] else (looks[0], looks[-1])
    return Span(messages=last[1] - first[1], record_bytes=0, begun_ns=first[0], ended_ns=last[0])
