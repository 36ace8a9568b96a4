"""Table: how fast a table catches up, the memory that a key takes, and the time until it has a value that was sent.

Compared with a plain loop that puts the same keys and values into a dict, the limit of Python.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Begin, Child, alone
from benchmarks.measure import WARMED, Benchmark, Samples, Size, Span, at_least, rate, scratch
from rmqclient import Message, Producer, Table
from rmqclient.store import open_store

TOPIC = "benchmark"
CAUGHT_UP = "caught up"
LOOP = "a loop over a dict"

_BATCH = 100
_PAUSE_S = 0.000_5


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of messages, of keys and of turns."""

    repetitions: int
    messages: int
    """A multiple of 100."""
    keys: int
    sends: int


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn, over one store for each number of queues."""
    samples.note(WARMED)
    samples.note(
        f"{parameters.messages:,} messages of some 15 bytes over {parameters.keys:,} keys, which come in any queue: "
        "the dearer case of several. The loop puts as many values into a dict, one by one, from lists of keys and "
        "values. Memory is what the process has for itself more than before, with all that the allocator keeps."
    )
    for queues in (1, 4):
        case = "1 queue" if queues == 1 else f"{queues} queues"
        with scratch(directory, parameters.messages * 200) as root:
            alone(Child(fill, root, queues, parameters.messages, parameters.keys))
            for _ in range(parameters.repetitions):
                span, resident = alone(Child(catch_up, root))
                samples.add(CAUGHT_UP, case, "/s", rate(span), at_least(500_000))
                samples.add("memory of the table", case, "MiB", resident / 2**20)
                samples.add("sent and waited for", case, "µs", 1e6 * alone(Child(wait, root, parameters.sends)))
                samples.add(LOOP, case, "/s", rate(alone(Child(loop, parameters.messages, parameters.keys))))


def fill(begin: Begin, root: Path, queues: int, messages: int, keys: int) -> None:
    """Send the messages."""
    chosen = random.Random(1)
    with Producer(root) as producer:
        producer.create_topic(TOPIC, queues)
        begin()
        for first in range(0, messages, _BATCH):
            producer.send_batch(
                [
                    Message(TOPIC, b'{"price":%d}' % number, keys=f"key-{chosen.randrange(keys)}")
                    for number in range(first, first + _BATCH)
                ]
            )


def catch_up(begin: Begin, root: Path) -> tuple[Span, int]:
    """Make a table of the messages; also return by how many bytes the private memory has grown."""
    with open_store(root, housekeeping=False) as store:
        messages = sum(map(store.topics.max_offset, store.topics.queues(TOPIC)))
        before = _own_bytes()
        begin()
        begun_ns = time.monotonic_ns()
        with Table(store, TOPIC):
            ended_ns = time.monotonic_ns()
            return _span(messages, begun_ns, ended_ns), _own_bytes() - before


def wait(begin: Begin, root: Path, sends: int) -> float:
    """Return the median of the seconds from the send of a value until the table has it."""
    took = []
    with open_store(root) as store, Producer(store) as producer, Table(store, TOPIC) as table:
        begin()
        for _ in range(sends):
            begun = time.perf_counter()
            table.wait_for(producer.send(Message(TOPIC, b"1", keys="key-1")))
            took.append(time.perf_counter() - begun)
            time.sleep(_PAUSE_S)  # so that the table sleeps again
    return sorted(took)[len(took) // 2]


def loop(begin: Begin, messages: int, keys: int) -> Span:
    """Put the same number of values into a dict."""
    chosen = random.Random(1)
    names = [f"key-{chosen.randrange(keys)}" for _ in range(messages)]
    bodies = [b'{"price":%d}' % number for number in range(messages)]
    values: dict[str, bytes] = {}
    begin()
    begun_ns = time.monotonic_ns()
    for name, body in zip(names, bodies, strict=True):
        values[name] = body  # noqa: PERF403 - this loop is what is measured
    return _span(messages, begun_ns, time.monotonic_ns())


def _own_bytes() -> int:
    resident, shared = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _span(messages: int, begun_ns: int, ended_ns: int) -> Span:
    return Span(messages=messages, record_bytes=15, begun_ns=begun_ns, ended_ns=ended_ns)


BENCHMARK = Benchmark(
    name="table",
    title="Tables",
    parameters={
        Size.FULL: Parameters(repetitions=5, messages=1_000_000, keys=100_000, sends=1_000),
        Size.QUICK: Parameters(repetitions=2, messages=1_000_000, keys=100_000, sends=300),
        Size.SMALLEST: Parameters(repetitions=1, messages=2_000, keys=100, sends=3),
    },
    run=run,
)
