"""RocketMQ: a name server and one master, with its Java client, which is a program of ``tests/interop``.

Its latency is not measured here: the program times the answers to sends, not the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import in_bytes
from benchmarks.peers.peer import Level, Promise, Running, WithProgram
from benchmarks.peers.workloads import commits, consuming, sending
from benchmarks.peers.workloads.bench import Bench, WorkFailed
from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.rocketmq import FAST_JVM, Java, RocketMQFailed, why_not

_SENT_A_S = 10_000
_BATCHED_A_S = 100_000
_COMMITTED_A_S = 5_000
"""What the program sends for each second of ours: it counts messages, not time."""
_BATCH_BYTES = 3 << 20
"""A broker refuses a batch of 4 MiB."""
_THREADS = 20


PROMISE = Promise(Level.HOST, "each 500 ms (ASYNC_FLUSH)")


@contextmanager
def one_master(release: str, home: Path, settings: str = "") -> Iterator[tuple[Cluster, tuple[int, ...]]]:
    """Start a name server and one master of a release; give them, and the ids of their processes.

    ``settings`` are lines of its ``broker.conf``.
    """
    with started_cluster(release, home, masters=1, settings=settings, jvm=FAST_JVM) as cluster:
        servers = [*cluster.name_servers, *(node.server for node in cluster.brokers)]
        yield cluster, tuple(server.process.pid for server in servers if server.process is not None)


class RocketMQ(WithProgram):
    """One release."""

    ways = "Java client 4.9.7; many: batches of 100; consumes: a push consumer with 20 threads"
    settings = ""
    """Lines of its ``broker.conf``."""

    def __init__(self, release: str) -> None:
        version = release.removeprefix("broker-")
        self.name = f"rocketmq-{version}"
        self.title = f"RocketMQ {version}, Java client"
        self.promise = PROMISE
        self.release = release

    def missing(self) -> str:
        """Return what RocketMQ lacks."""
        return why_not(self.release)

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start a name server and one master."""
        with one_master(self.release, home, self.settings) as (cluster, pids):
            yield Running(cluster.addresses[0], pids, cluster.brokers[0].root)

    def works(self, bench: Bench) -> dict[str, Callable[[], None]]:
        """Return what the program can measure."""
        return {sending.SINGLE: lambda: self._measure(bench)}

    def versions(self) -> dict[str, str]:
        """Return the release."""
        return {"server": self.release.removeprefix("broker-")}

    def _measure(self, bench: Bench) -> None:
        java = Java(self.release, bench.running.files or Path(), FAST_JVM)
        for size in bench.scale.sizes:
            self._measure_size(bench, java, size)

    def _measure_size(self, bench: Bench, java: Java, size: int) -> None:
        case, address, topic = in_bytes(size), bench.running.address, sending.topic_of(size)

        def add(name: str, *arguments: object) -> int:
            line = _asked(java, *arguments)
            bench.add(f"{name}, {case}", "/s", _rate(line))
            messages: int = line["messages"]
            return messages

        sent = int(bench.scale.send_s * _SENT_A_S)
        batched = int(bench.scale.send_s * _BATCHED_A_S * min(1.0, 1024 / size))
        together = min(100, _BATCH_BYTES // size)
        add(sending.SINGLE, "load-send", address, f"single-{topic}", 1, sent, size)
        stored = add(sending.MANY, "load-batches", address, topic, together, batched // together * together, size)
        add(consuming.CONSUMED, "load-consume", address, "java", topic, stored, _THREADS)


class FlushedRocketMQ(RocketMQ):
    """One release that flushes before it answers; only its commits are measured."""

    ways = "Java client 4.9.7; commits: sixteen threads of one process"
    settings = "flushDiskType=SYNC_FLUSH\n"

    def __init__(self, release: str) -> None:
        super().__init__(release)
        self.name += "-sync"
        self.title = self.title.replace(",", " with SYNC_FLUSH,")
        self.promise = Promise(Level.DISK, "before each answer, shared by those who wait (SYNC_FLUSH)")

    def works(self, bench: Bench) -> dict[str, Callable[[], None]]:
        """Return what the program can measure."""
        return {commits.COMMITTED: lambda: self._measure_commits(bench)}

    def _measure_commits(self, bench: Bench) -> None:
        java = Java(self.release, bench.running.files or Path(), FAST_JVM)
        messages = int(bench.scale.commit_s * _COMMITTED_A_S)
        sent = ("load-send", bench.running.address, "committed", commits.SENDERS, messages, commits.BODY_BYTES)
        bench.add(commits.COMMITTED, "/s", _rate(_asked(java, *sent)))


def _asked(java: Java, *arguments: object) -> dict[str, Any]:
    """Run the program; return its line. Raises WorkFailed."""
    try:
        (line,) = java.run(*arguments)
    except RocketMQFailed as error:
        raise WorkFailed(str(error)[-300:]) from error
    return line


def _rate(line: dict[str, Any]) -> float:
    messages, took_ns = line["messages"], line["ended_ns"] - line["begun_ns"]
    return float(messages / took_ns * 1e9)
