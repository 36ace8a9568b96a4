"""Latency: from the send to the first line of the handler, in another process, at 1,000 messages a second.

The sender puts CLOCK_MONOTONIC, which is one clock for all processes, into the body just before it sends, and the
handler reads the clock first of all. Compared with the least that a message between two processes can cost here: a
FIFO, written and read at the same pace without anything around it.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from array import array
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.child import Begin, Child
from benchmarks.measure import Benchmark, Samples, Size, at_most, in_bytes, scratch
from benchmarks.pace import pace
from benchmarks.traffic import KEYS, TAG, TOPIC
from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store

HANDLER = "send to handler"
FIFO = "FIFO"
TARGETS = {(HANDLER, "median"): at_most(20), (HANDLER, "p99"): at_most(100)}

_STAMP_BYTES = 8

_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of messages, pace and number of turns."""

    repetitions: int
    messages: int
    """Messages of each turn, including those that are not counted."""
    not_counted: int
    """The first messages of a turn: files are made and both sides warm up."""
    per_second: int = 1_000
    body_bytes: tuple[int, ...] = (100, 1024)


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    counted = parameters.messages - parameters.not_counted
    samples.note(
        f"{counted:,} messages in each turn, after {parameters.not_counted:,} that are not counted. The sender sleeps "
        "until shortly before a message is due, and then looks at the clock. Median, p99 and max are of one turn."
    )
    for _ in range(parameters.repetitions):
        for body_bytes in parameters.body_bytes:
            with scratch(directory) as root:
                _add(samples, HANDLER, body_bytes, _through_the_store(parameters, root, body_bytes))
            with scratch(directory) as path:
                _add(samples, FIFO, body_bytes, _through_a_fifo(parameters, path / "fifo", body_bytes))
    for body_bytes in parameters.body_bytes:
        case = in_bytes(body_bytes)
        samples.add_ratio("median to that of a FIFO", case, (f"{HANDLER}, median", case), (f"{FIFO}, median", case))


def handle(begin: Begin, root: Path, messages: int) -> array[int]:
    """Handle the messages; return the nanoseconds that each was under way."""
    latencies = array("q")
    finished = threading.Event()
    app = App(root)

    @app.handler(TOPIC, group="readers")
    def stamp(message: ReceivedMessage) -> None:
        now = time.monotonic_ns()
        latencies.append(now - int.from_bytes(message.body[:_STAMP_BYTES]))
        if len(latencies) == messages:
            finished.set()

    with open_store(root) as store:
        Admin(store).create_topic(TOPIC, 4)
        consumer = PushConsumer(store, app.handlers)
        consumer.start()
        begin()
        if not finished.wait(_LONGEST_WAIT_S + messages / 100):
            raise TimeoutError(f"{len(latencies)} of {messages} messages came")
        consumer.close()
    return latencies


def send(begin: Begin, root: Path, messages: int, body_bytes: int, per_second: int) -> None:
    """Send the messages at an even pace."""
    padding = bytes(body_bytes - _STAMP_BYTES)
    with Producer(root) as producer:
        keys = cycle(KEYS)

        def send_one(_: int) -> None:
            key = next(keys)
            body = time.monotonic_ns().to_bytes(_STAMP_BYTES) + padding
            producer.send(Message(TOPIC, body, tags=TAG, keys=(key,)), key)

        begin()
        pace(send_one, messages, per_second)


def read(begin: Begin, fifo: Path, messages: int, body_bytes: int) -> array[int]:
    """Read the messages from a FIFO; return the nanoseconds that each was under way."""
    latencies = array("q")
    begin()
    descriptor = os.open(fifo, os.O_RDONLY)
    for _ in range(messages):
        body = os.read(descriptor, body_bytes)
        latencies.append(time.monotonic_ns() - int.from_bytes(body[:_STAMP_BYTES]))
    os.close(descriptor)
    return latencies


def write(begin: Begin, fifo: Path, messages: int, body_bytes: int, per_second: int) -> None:
    """Write the messages to a FIFO at an even pace."""
    padding = bytes(body_bytes - _STAMP_BYTES)
    begin()
    descriptor = os.open(fifo, os.O_WRONLY)
    pace(
        lambda _: os.write(descriptor, time.monotonic_ns().to_bytes(_STAMP_BYTES) + padding),
        messages,
        per_second,
    )
    os.close(descriptor)


def _through_the_store(parameters: Parameters, root: Path, body_bytes: int) -> array[int]:
    receiver = Child(handle, root, parameters.messages)
    receiver.wait_until_ready()
    sender = Child(send, root, parameters.messages, body_bytes, parameters.per_second)
    return _latencies(receiver, sender, parameters.not_counted)


def _through_a_fifo(parameters: Parameters, fifo: Path, body_bytes: int) -> array[int]:
    os.mkfifo(fifo)
    receiver = Child(read, fifo, parameters.messages, body_bytes)
    receiver.wait_until_ready()
    sender = Child(write, fifo, parameters.messages, body_bytes, parameters.per_second)
    return _latencies(receiver, sender, parameters.not_counted)


def _latencies(receiver: Child[array[int]], sender: Child[None], not_counted: int) -> array[int]:
    sender.wait_until_ready()
    receiver.begin()
    sender.begin()
    sender.result()
    return receiver.result()[not_counted:]


def _add(samples: Samples, name: str, body_bytes: int, latencies: array[int]) -> None:
    """Add median, 99th percentile and maximum of one turn."""
    ordered = sorted(latencies)
    for part, nanoseconds in (
        ("median", statistics.median(ordered)),
        ("p99", ordered[len(ordered) * 99 // 100]),
        ("max", ordered[-1]),
    ):
        samples.add(f"{name}, {part}", in_bytes(body_bytes), "µs", nanoseconds / 1000, TARGETS.get((name, part)))


BENCHMARK = Benchmark(
    name="latency",
    title="Latency",
    parameters={
        Size.FULL: Parameters(repetitions=5, messages=2_500, not_counted=500),
        Size.QUICK: Parameters(repetitions=1, messages=1_500, not_counted=500),
        Size.SMALLEST: Parameters(repetitions=1, messages=30, not_counted=10, body_bytes=(100,)),
    },
    run=run,
)
