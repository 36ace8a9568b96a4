"""Brokers: ``rmq serve`` beside RocketMQ's own brokers, with RocketMQ's Java client, in turns.

Each server is started anew in each turn. What a server costs is counted in its own processor time, so the client, which
shares the machine with it, does not blur that figure.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import ours
from benchmarks.measure import Benchmark, Samples, Size, Span, Target, Unit, at_least, at_most, rate, scratch
from benchmarks.serving.servers import SERVE, Running, processor_name, running
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, FAST_JVM, Java, why_not

BROKERS = (BROKER_4_9_7, BROKER_5_3_3)
START, MEMORY, USED_MEMORY = "start", "memory after the start", "memory after the work"
SINGLE, SENDERS, BATCHES, CONSUMED = "send one by one", "64 senders", "batches of 100", "consume, listener does nothing"
MEDIAN, P99 = "latency at 1,000/s, median", "latency at 1,000/s, 99th percentile"
_RATIO = "rmq serve to broker"

TARGETS: dict[str, Target] = {
    START: at_most(1 / 20),
    MEMORY: at_most(1 / 5),
    SINGLE: at_least(1.0),
    SENDERS: at_least(1.0),
    BATCHES: at_least(1.0),
    CONSUMED: at_least(1.0),
    P99: at_most(1 / 2),
}
PROCESSOR_TARGETS: dict[str, Target] = {SINGLE: at_most(1 / 3), SENDERS: at_most(1 / 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of messages and of turns."""

    repetitions: int
    sent: int
    batched: int
    consumed: int
    latency_s: int
    body_bytes: int = 100
    senders: int = 64
    batch: int = 100
    threads: int = 20
    brokers: tuple[str, ...] = BROKERS


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure every server once in each turn."""
    if why := why_not(*parameters.brokers):
        samples.note(f"Not measured: {why}.")
        return
    samples.note(
        f"RocketMQ's Java client 4.9.7 does all of the work, in a process of its own, on the machine of the server. "
        f"Bodies have {parameters.body_bytes} B. It does a fifth of each work before that is measured. Every server "
        "begins each turn with an empty store. RocketMQ's servers have a heap of 256 MiB to 1 GiB, far below their "
        "default of 8 GiB. Memory is what no file backs. The latency is that of one sender, since each send was due."
    )
    for turn in range(parameters.repetitions):
        for server in (SERVE, *parameters.brokers):
            with scratch(directory) as home, running(server, home) as found:
                _measure(parameters, server, found, Java(BROKER_4_9_7, home, FAST_JVM), turn, samples)
    for broker in parameters.brokers:
        for case, target in TARGETS.items():
            samples.add_ratio(f"{_RATIO} {broker}", case, (SERVE, case), (broker, case), target)
        for case, processor_target in PROCESSOR_TARGETS.items():
            name = processor_name(case)
            samples.add_ratio(f"{_RATIO} {broker}", name, (SERVE, name), (broker, name), processor_target)


def _measure(parameters: Parameters, server: str, found: Running, java: Java, turn: int, samples: Samples) -> None:
    size = parameters.body_bytes

    def add(case: str, unit: Unit, value: float) -> None:
        samples.add(server, case, unit, value)
        print(f"{server}, {case}: {value:,.2f} {unit}", file=sys.stderr)

    def work(case: str, command: str, *arguments: object) -> None:
        before = found.processor_s
        (line,) = java.run(command, found.address, *arguments)
        used_s = found.processor_s - before
        span = Span(messages=line["messages"], record_bytes=0, begun_ns=line["begun_ns"], ended_ns=line["ended_ns"])
        add(case, "/s", rate(span))
        add(processor_name(case), "µs", used_s / (line["messages"] * _WITH_WARM_UP) * 1e6)

    add(START, "s", found.started_s)
    add(MEMORY, "MiB", found.memory_mib)
    work(SINGLE, "load-send", ours.SENT, 1, parameters.sent, size)
    work(SENDERS, "load-send", ours.SENT, parameters.senders, parameters.sent, size)
    work(BATCHES, "load-batches", ours.STORED, parameters.batch, parameters.batched, size)
    work(CONSUMED, "load-consume", f"java-{turn}", ours.STORED, parameters.consumed, parameters.threads)
    (line,) = java.run("load-latency", found.address, ours.SENT, 1000, parameters.latency_s, size)
    add(MEDIAN, "ms", line["median_ns"] / 1e6)
    add(P99, "ms", line["p99_ns"] / 1e6)
    add(USED_MEMORY, "MiB", found.memory_mib)


_WITH_WARM_UP = 1.2
"""The Java client does so many times the work that it counts."""


BENCHMARK = Benchmark(
    name="serve",
    title="As a server, beside RocketMQ's brokers",
    parameters={
        Size.FULL: Parameters(repetitions=3, sent=60_000, batched=400_000, consumed=400_000, latency_s=10),
        Size.QUICK: Parameters(repetitions=1, sent=20_000, batched=100_000, consumed=100_000, latency_s=5),
        Size.SMALLEST: Parameters(
            repetitions=1, sent=200, batched=1_000, consumed=1_000, latency_s=1, senders=4, threads=2, brokers=()
        ),
    },
    run=run,
)
