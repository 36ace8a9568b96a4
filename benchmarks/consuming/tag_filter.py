"""Tag filter: entries a second that a consumer skips because of their tag, and the cost of the other filters.

Compared with a copy of the same entries, the limit of the memory: a skip has to read each of their bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Begin, Child, alone
from benchmarks.measure import WARMED, Benchmark, Samples, Size, Span, at_least, rate, scratch
from rmqclient import App, Message, Producer, jmespath, sql
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.filters import MessageFilter
from rmqclient.store import MessageQueue, MessageStore, QueueGrant, layout, open_store

TOPIC = "benchmark"
QUEUE = MessageQueue(TOPIC, 0)
WANTED = "wanted"
COPIED = "the same entries, copied"
SKIPPED = "skipped by a grant"
ASKED = "looked at by a grant"

CASES = (
    (SKIPPED, "1 % matches", MessageFilter(WANTED), at_least(50e6)),
    (SKIPPED, "nothing matches", MessageFilter("never"), None),
    (ASKED, "sql, 1 % matches", MessageFilter(filter=sql("kind = 1")), None),
    (ASKED, "jmespath, 1 % matches", MessageFilter(filter=jmespath("kind == `1`")), None),
)

_BATCH = 100
_TAKEN = 32
_SPAN = 2_000
_ENTRY_BYTES = layout.CONSUME_QUEUE_ENTRY.size
_LOOK_INTERVAL_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of messages and of turns."""

    repetitions: int
    messages: int
    """A multiple of 100: one message of each 100 is wanted."""


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn, over one store."""
    samples.note(WARMED)
    samples.note(
        "One queue, in which each hundredth message has the wanted tag, property and body. A grant takes 32 messages "
        "at a time and acknowledges them; a worker is a PushConsumer whose handler does nothing. The copy is one of "
        "20 bytes an entry into memory of its own, done for the second time."
    )
    messages = parameters.messages
    with scratch(directory, messages * 256) as root:
        alone(Child(fill, root, messages))
        for turn in range(parameters.repetitions):
            for number, (name, case, wanted, target) in enumerate(CASES):
                span = alone(Child(take_all, root, f"group-{turn}-{number}", wanted))
                samples.add(name, case, "/s", rate(span), target)
            samples.add("skipped by a worker", "1 % matches", "/s", rate(alone(Child(consume, root, f"worker-{turn}"))))
            samples.add(COPIED, "20 B each", "/s", rate(alone(Child(copy, root))))
    samples.add_ratio("a grant to the copy", "1 % matches", (SKIPPED, "1 % matches"), (COPIED, "20 B each"))


def fill(begin: Begin, root: Path, messages: int) -> None:
    """Send the messages; the fiftieth of each hundred is wanted."""
    batch = [_message(number == _BATCH // 2) for number in range(_BATCH)]
    with Producer(root) as producer:
        producer.create_topic(TOPIC, 1)
        begin()
        for _ in range(messages // _BATCH):
            producer.send_batch(batch)


def take_all(begin: Begin, root: Path, group: str, wanted: MessageFilter) -> Span:
    """Take and acknowledge the messages that pass, as the owner of the queue."""
    with open_store(root, housekeeping=False) as store:
        grant = _grant(store, group, wanted)
        messages = grant.max_offset
        _touch(store, messages)
        begin()
        begun_ns = time.monotonic_ns()
        while grant.has_more:
            taken = grant.take(_TAKEN, _SPAN)
            grant.acknowledge_offsets([message.queue_offset for message in taken])
        ended_ns = time.monotonic_ns()
        if grant.committed_offset != messages:
            raise RuntimeError(f"{grant.committed_offset:,} of {messages:,} messages are finished")
        return _span(messages, begun_ns, ended_ns)


def consume(begin: Begin, root: Path, group: str) -> Span:
    """Handle the messages with the wanted tag; the span is from the first look at the committed offset to the last."""
    app = App(root)
    app.handler(TOPIC, group=group, tags=WANTED)(ignore)
    with open_store(root) as store:
        messages = store.topics.max_offset(QUEUE)
        _touch(store, messages)
        consumer = PushConsumer(store, app.handlers)
        begin()
        looks = [(time.monotonic_ns(), 0)]
        consumer.start()
        committed = _committed(store, group)
        while looks[-1][1] < messages:
            time.sleep(_LOOK_INTERVAL_S)
            looks.append((time.monotonic_ns(), committed()))
        consumer.stop_taking()
        consumer.drain(10)
        consumer.close()
    under_way = [look for look in looks if 0 < look[1] < messages]
    first, last = (under_way[0], under_way[-1]) if len(under_way) > 1 else (looks[0], looks[-1])
    return _span(last[1] - first[1], first[0], last[0])


def copy(begin: Begin, root: Path) -> Span:
    """Copy all entries."""
    with open_store(root, housekeeping=False) as store:
        messages = store.topics.max_offset(QUEUE)
        _touch(store, messages)
        begin()
        begun_ns = time.monotonic_ns()
        _touch(store, messages)
        return _span(messages, begun_ns, time.monotonic_ns())


def ignore(_message: object) -> None:
    """Handle a message by doing nothing."""


def _message(wanted: bool) -> Message:
    kind = "1" if wanted else "2"
    body = b'{"kind": %b, "name": "a body as one would send it"}' % kind.encode()
    return Message(TOPIC, body, tags=WANTED if wanted else "other", keys=("7",), properties={"kind": kind})


def _grant(store: MessageStore, group: str, wanted: MessageFilter) -> QueueGrant:
    slot = store.groups.find_or_add(group, store.topics.slot(QUEUE), 0)
    return store.grants.grant(slot, slot.load("epoch"), wanted.tag_set)


def _touch(store: MessageStore, messages: int) -> None:
    """Read every entry once, so that its page is mapped."""
    in_file = store.config.consume_queue_file_entries
    for first in range(0, messages, in_file):
        mapped = store.grants.queue_file(store.topics.slot(QUEUE), first)
        if mapped is not None:
            bytes(memoryview(mapped[0])[: min(in_file, messages - first) * _ENTRY_BYTES])


def _committed(store: MessageStore, group: str) -> Callable[[], int]:
    slot = store.groups.find_or_add(group, store.topics.slot(QUEUE), 0)
    return lambda: slot.committed_offset


def _span(messages: int, begun_ns: int, ended_ns: int) -> Span:
    return Span(messages=messages, record_bytes=_ENTRY_BYTES, begun_ns=begun_ns, ended_ns=ended_ns)


BENCHMARK = Benchmark(
    name="tag_filter",
    title="Filtering",
    parameters={
        Size.FULL: Parameters(repetitions=5, messages=3_000_000),
        Size.QUICK: Parameters(repetitions=2, messages=1_000_000),
        Size.SMALLEST: Parameters(repetitions=1, messages=2_000),
    },
    run=run,
)
