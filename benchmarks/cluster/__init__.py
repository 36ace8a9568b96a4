"""Cluster: our client and RocketMQ's own, on the same broker, in turns.

``ours`` has what our client does, in a child; RocketMQ's Java client is the small program of ``tests/interop``, and
``librocketmq`` is the C++ client under the package ``rocketmq``, in a child, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Child, alone
from benchmarks.cluster import librocketmq, ours
from benchmarks.measure import Benchmark, Samples, Size, Span, Target, at_least, rate, scratch
from benchmarks.package import installed
from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.rocketmq import BROKER_5_3_3, FAST_JVM, why_not

OURS, JAVA, CPP = "our client", "RocketMQ's Java client", "librocketmq under Python"
SINGLE, SENDERS, BATCHES, CONSUMED = "send one by one", "64 senders", "batches of 100", "consume, handler does nothing"
AWAITED = "64 sends under way, without threads"
TARGETS: dict[str, Target] = {SINGLE: at_least(0.5), BATCHES: at_least(1.0), CONSUMED: at_least(1.0)}
"""Of our client to RocketMQ's, per process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of messages and of turns."""

    repetitions: int
    sent: int
    batched: int
    consumed: int
    body_bytes: int = 100
    senders: int = 64
    batch: int = 100
    threads: int = 20
    release: str = BROKER_5_3_3


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Start a broker, and measure everything once in each turn."""
    if why := why_not(parameters.release):
        samples.note(f"Not measured: {why}.")
        return
    samples.note(
        f"One master of RocketMQ, {parameters.release}, on the same machine, whose processors all of them share. "
        f"Bodies have {parameters.body_bytes} B. Each client is a process of its own, and does some of its work before "
        f"it is measured. Both consumers have {parameters.threads} threads."
    )
    with (
        scratch(directory) as home,
        started_cluster(parameters.release, home, masters=1, jvm=FAST_JVM) as cluster,
    ):
        peer = installed(librocketmq.PACKAGE, home / "librocketmq")
        if isinstance(peer, str):
            samples.note(f"{CPP} was not measured: {peer}")
        alone(Child(ours.prepare, cluster.url, parameters.consumed, parameters.body_bytes, parameters.batch))
        for turn in range(parameters.repetitions):
            _measure(parameters, cluster, turn, samples, peer if isinstance(peer, Path) else None)
    for case, target in TARGETS.items():
        samples.add_ratio("ours to Java's", case, (OURS, case), (JAVA, case), target)
    samples.add_ratio("ours to Java's", SENDERS, (OURS, SENDERS), (JAVA, SENDERS))


def _measure(parameters: Parameters, cluster: Cluster, turn: int, samples: Samples, peer: Path | None) -> None:
    url, size = cluster.url, parameters.body_bytes

    def java(command: str, *arguments: object) -> Span:
        (line,) = cluster.run(command, *arguments)
        return Span(messages=line["messages"], record_bytes=0, begun_ns=line["begun_ns"], ended_ns=line["ended_ns"])

    measured: list[tuple[str, str, Callable[[], Span]]] = [
        (OURS, SINGLE, lambda: alone(Child(ours.send, url, parameters.sent, size))),
        (JAVA, SINGLE, lambda: java("load-send", ours.SENT, 1, parameters.sent, size)),
        (OURS, SENDERS, lambda: alone(Child(ours.send_by_threads, url, parameters.sent, size, parameters.senders))),
        (JAVA, SENDERS, lambda: java("load-send", ours.SENT, parameters.senders, parameters.sent, size)),
        (
            OURS,
            AWAITED,
            lambda: alone(Child(ours.send_without_waiting, url, parameters.sent, size, parameters.senders)),
        ),
        (OURS, BATCHES, lambda: alone(Child(ours.send_batches, url, parameters.batched, size, parameters.batch))),
        (JAVA, BATCHES, lambda: java("load-batches", ours.SENT, parameters.batch, parameters.batched, size)),
        (
            OURS,
            CONSUMED,
            lambda: alone(Child(ours.consume, url, f"ours-{turn}", parameters.consumed, parameters.threads)),
        ),
        (
            JAVA,
            CONSUMED,
            lambda: java("load-consume", f"java-{turn}", ours.STORED, parameters.consumed, parameters.threads),
        ),
    ]
    if peer is not None:
        servers = ";".join(cluster.addresses)
        measured.append((CPP, SINGLE, lambda: alone(Child(librocketmq.send, peer, servers, parameters.sent, size))))
    for name, case, measure in measured:
        samples.add(name, case, "/s", rate(measure()))
        print(f"{name}, {case}: {samples.figures[-1].values[-1]:,.0f}/s", file=sys.stderr)


BENCHMARK = Benchmark(
    name="cluster",
    title="On a RocketMQ cluster",
    parameters={
        Size.FULL: Parameters(repetitions=5, sent=40_000, batched=400_000, consumed=400_000),
        Size.QUICK: Parameters(repetitions=1, sent=10_000, batched=100_000, consumed=100_000),
        Size.SMALLEST: Parameters(repetitions=1, sent=200, batched=1_000, consumed=1_000, senders=4, threads=2),
    },
    run=run,
)
