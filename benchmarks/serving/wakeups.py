"""Wake-ups: from the send of a local producer to the answer of a pull that waits at the server.

Three processes: a producer writes into the directory, the server hears of it by its arrival lane, and a client that
does nothing else has a pull waiting. The producer puts CLOCK_MONOTONIC into the body just before it sends; the client
reads the clock when the answer has come. Compared with a question that the server answers from memory: a round trip.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import Begin, Child
from benchmarks.measure import Benchmark, Samples, Size, scratch
from benchmarks.serving.asking import Asking
from rmqclient import Message, Producer
from rmqclient.remoting.table import RequestCode, request
from rmqclient.store.wire import decode_records
from rmqclient.testing import serve

TOPIC = "bench"
_STAMP_BYTES = 8
_LONGEST_WAIT_MS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of messages, pace and number of turns."""

    repetitions: int
    messages: int
    not_counted: int
    """The first messages of a turn."""
    held: tuple[int, ...] = (1, 1_000)
    """Pulls that wait in all; only one of them is for the queue that gets messages."""
    per_second: int = 100


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    counted = parameters.messages - parameters.not_counted
    samples.note(
        f"{counted:,} messages in each turn at {parameters.per_second:,} a second, so that the pull waits before each "
        "of them. The other pulls that wait are for queues that get no message. A round trip is GET_MAX_OFFSET."
    )
    for _ in range(parameters.repetitions):
        for held in parameters.held:
            with scratch(directory) as root, serve(root / "store") as server:
                case = f"{held:,} held"
                _add(samples, "send to answer", case, _woken(parameters, server.root, server.address, held))
                _add(samples, "round trip", case, _round_trips(server.address, counted))


def send(begin: Begin, root: Path, messages: int, per_second: int) -> None:
    """Send the messages at an even pace."""
    with Producer(root) as producer:
        begin()
        due = time.monotonic()
        for _ in range(messages):
            due += 1 / per_second
            time.sleep(max(0.0, due - time.monotonic()))
            producer.send(Message(TOPIC, time.monotonic_ns().to_bytes(_STAMP_BYTES)), "one queue")


def _woken(parameters: Parameters, root: Path, address: str, held: int) -> list[float]:
    with Producer(root) as producer:
        queue = producer.send(Message(TOPIC, bytes(_STAMP_BYTES)), "one queue").queue.queue_id
    with Asking(address) as asking, Asking(address) as others:
        for number in range(held - 1):
            others.send(_pull((queue + 1 + number % 3) % 4, 0))
        sender = Child(send, root, parameters.messages, parameters.per_second)
        sender.wait_until_ready()
        sender.begin()
        offset = 1
        found: list[float] = []
        while len(found) < parameters.messages:
            answer = asking.ask(_pull(queue, offset))
            now = time.monotonic_ns()
            found += [(now - int.from_bytes(message.body)) / 1000 for message in decode_records(answer.body)]
            offset = int(answer.fields["nextBeginOffset"])
        sender.result()
    return found[parameters.not_counted :]


def _round_trips(address: str, count: int) -> list[float]:
    found = []
    with Asking(address) as asking:
        for _ in range(count):
            begun = time.monotonic_ns()
            asking.ask(request(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0))
            found.append((time.monotonic_ns() - begun) / 1000)
    return found


def _pull(queue_id: int, offset: int) -> Any:
    return request(
        RequestCode.PULL_MESSAGE,
        consumerGroup="readers",
        topic=TOPIC,
        queueId=queue_id,
        queueOffset=offset,
        maxMsgNums=32,
        sysFlag=6,
        commitOffset=0,
        suspendTimeoutMillis=_LONGEST_WAIT_MS,
        subscription="*",
        subVersion=0,
    )


def _add(samples: Samples, name: str, case: str, microseconds: Sequence[float]) -> None:
    ordered = sorted(microseconds)
    samples.add(f"{name}, median", case, "µs", statistics.median(ordered))
    samples.add(f"{name}, p99", case, "µs", ordered[len(ordered) * 99 // 100])


BENCHMARK = Benchmark(
    name="serve-wakeups",
    title="Held pulls of the server",
    parameters={
        Size.FULL: Parameters(repetitions=5, messages=1_100, not_counted=100),
        Size.QUICK: Parameters(repetitions=1, messages=600, not_counted=100),
        Size.SMALLEST: Parameters(repetitions=1, messages=12, not_counted=2, held=(5,)),
    },
    run=run,
)
