"""Workers: more and more processes handle the messages of one topic, which has queues enough for all of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.child import Begin, Child, alone
from benchmarks.growing.cost import Worked, per_processor_second
from benchmarks.growing.senders import processes
from benchmarks.measure import Samples, rate, scratch
from benchmarks.starting.scale import FLAT
from benchmarks.traffic import BATCH, KEYS, TOPIC, ignore, watch
from rmqclient import App, Message, MessageQueue, Producer
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import MessageStore, open_store

HANDLED = "handler that does nothing, all workers"
HANDLED_PER_CPU = "handler that does nothing, a second of processor time"
WAITED = "handler that waits 1 ms, all workers"

_GROUP = "workers"
_QUEUES = 16
_RECORD_BYTES = 356
_WAIT_S = 0.001
_SETTLE_S = 60.0
_DRAIN_S = 30.0


def measure(messages: int, waiting_each: int, counts: tuple[int, ...], directory: Path, samples: Samples) -> None:
    """Measure every number of workers once with either handler.

    All share ``messages`` when the handler does nothing. When it waits, there are ``waiting_each`` for each worker,
    because it is the wait that takes the time.
    """
    for count in counts:
        done = _worked(messages, count, ignore, directory)
        samples.add(HANDLED, processes(count), "/s", rate(*(each.span for each in done)))
        samples.add(HANDLED_PER_CPU, processes(count), "/s", per_processor_second(*done))
        done = _worked(waiting_each * count, count, wait, directory)
        samples.add(WAITED, processes(count), "/s", rate(*(each.span for each in done)))


def compare(counts: tuple[int, ...], samples: Samples) -> None:
    """Add the ratios to one process."""
    one = processes(counts[0])
    for count in counts[1:]:
        case = processes(count)
        for name in (HANDLED, WAITED):
            samples.add_ratio(f"{name}, to {one}", case, (name, case), (name, one))
        name = f"processor time of a handled message, to {one}"
        samples.add_ratio(name, case, (HANDLED_PER_CPU, one), (HANDLED_PER_CPU, case), FLAT)


def fill(begin: Begin, root: Path, messages: int, queues: int) -> None:
    """Run in a child: send messages of 100 B in batches, to all queues in turn."""
    batch = [Message(TOPIC, bytes(100), keys=(key,)) for key in KEYS[:BATCH]]
    with Producer(root) as producer:
        producer.create_topic(TOPIC, queues)
        begin()
        for _ in range(0, messages, BATCH):
            producer.send_batch(batch)


def work(begin: Begin, root: Path, workers: int, handle: Callable[[object], None]) -> Worked:
    """Run in a child: be one of the workers, on one thread, and handle what is in this worker's queues.

    The child begins twice: with its messages when every worker has its queues, and to leave when every worker is done,
    because queues move when a member leaves.
    """
    app = App(root)
    app.handler(TOPIC, group=_GROUP)(handle)
    with open_store(root) as store:
        consumer = PushConsumer(store, app.handlers)
        consumer.hold()
        consumer.start()
        share = sum(store.topics.max_offset(queue) for queue in _share(store, consumer, workers))
        begin()
        used_s = time.process_time()
        consumer.resume()
        span = watch(consumer, share)
        used_s = time.process_time() - used_s
        begin()
        consumer.stop(_DRAIN_S)
    return Worked(span, share, used_s)


def wait(_message: object) -> None:
    """Handle a message as one does that asks a database: by waiting."""
    time.sleep(_WAIT_S)


def _worked(messages: int, count: int, handle: Callable[[object], None], directory: Path) -> list[Worked]:
    with scratch(directory, messages * _RECORD_BYTES) as root:
        alone(Child(fill, root, messages, _QUEUES))
        children = [Child(work, root, count, handle) for _ in range(count)]
        for _ in ("take messages", "leave"):
            for child in children:
                child.wait_until_ready()
            for child in children:
                child.begin()
        return [child.result() for child in children]


def _share(store: MessageStore, consumer: PushConsumer, workers: int) -> tuple[MessageQueue, ...]:
    """Return the queues of this worker, when every worker has as many. Raises TimeoutError after a minute."""
    deadline = time.monotonic() + _SETTLE_S
    each = _QUEUES // workers
    while True:
        (queues,) = consumer.queues.values()
        shares = _shares(store)
        if shares == [each] * workers and len(queues) == each:
            return queues
        if time.monotonic() > deadline:
            raise TimeoutError(f"the queues are not shared by {workers} workers: {shares}, {len(queues)} here")
        time.sleep(0.005)


def _shares(store: MessageStore) -> list[int]:
    """Return how many queues each worker has."""
    owners = zip(store.groups.column("owner"), store.groups.column("owner_incarnation"), strict=True)
    return list(Counter(pair for pair in owners if pair[0]).values())
