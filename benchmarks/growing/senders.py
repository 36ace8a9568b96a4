"""Senders: more and more processes send into one store at once, as many messages in all."""

from __future__ import annotations

import time
from itertools import cycle, islice
from pathlib import Path

from benchmarks.child import Begin, Child, together
from benchmarks.growing.cost import Worked, per_processor_second
from benchmarks.measure import Samples, Span, rate, scratch
from benchmarks.starting.scale import FLAT
from benchmarks.traffic import KEYS, TAG, TOPIC
from rmqclient import Message, Producer

SENT = "send, all together"
SENT_PER_CPU = "send, a second of processor time"

_QUEUES = 4
_RECORD_BYTES = 356
"""Somewhat more than a message takes on the disk."""


def measure(messages: int, counts: tuple[int, ...], directory: Path, samples: Samples) -> None:
    """Measure every number of processes once; each sends its part of ``messages``."""
    for count in counts:
        with scratch(directory, messages * _RECORD_BYTES) as root:
            sent = together(*(Child(send, root, messages // count) for _ in range(count)))
        samples.add(SENT, processes(count), "/s", rate(*(each.span for each in sent)))
        samples.add(SENT_PER_CPU, processes(count), "/s", per_processor_second(*sent))


def compare(counts: tuple[int, ...], samples: Samples) -> None:
    """Add the ratios to one process: of the rate, and of the processor time of a message."""
    one = processes(counts[0])
    for count in counts[1:]:
        case = processes(count)
        samples.add_ratio(f"{SENT}, to {one}", case, (SENT, case), (SENT, one))
        samples.add_ratio(f"processor time of a send, to {one}", case, (SENT_PER_CPU, one), (SENT_PER_CPU, case), FLAT)


def send(begin: Begin, root: Path, messages: int) -> Worked:
    """Run in a child: send 100 B one by one, each message made just before, with tag, key and sharding key."""
    body = bytes(100)
    with Producer(root) as producer:
        producer.create_topic(TOPIC, _QUEUES)
        first, *_ = [producer.send(Message(TOPIC, body, tags=TAG, keys=(key,)), key) for key in KEYS]
        begin()
        used_s, begun_ns = time.process_time(), time.monotonic_ns()
        for key in islice(cycle(KEYS), messages):
            producer.send(Message(TOPIC, body, tags=TAG, keys=(key,)), key)
        used_s, ended_ns = time.process_time() - used_s, time.monotonic_ns()
    record_bytes = first.commit_log_end - first.commit_log_offset
    span = Span(messages=messages, record_bytes=record_bytes, begun_ns=begun_ns, ended_ns=ended_ns)
    return Worked(span, messages, used_s)


def processes(count: int) -> str:
    """Return a case: ``1 process``, ``8 processes``."""
    return f"{count} process{'es' * (count > 1)}"
