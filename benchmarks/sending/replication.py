"""Replication: how far a replica is behind, and how many sends a second wait for one, beside RocketMQ's own pair.

Each pair is two processes on this machine: ours is ``rmq serve`` with ``rmq replica follow``, RocketMQ's a master with
its slave. The same client sends to both, over the network; to our pair local producers send, too.
"""

from __future__ import annotations

import mmap
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Begin, Child, alone
from benchmarks.cluster import ours
from benchmarks.measure import Benchmark, Samples, Size, rate, scratch
from rmqclient import Message, Producer
from rmqclient.store import open_store
from rmqclient.store.wire import parse_offset_id
from tests.interop.cluster.clusters import started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, FAST_JVM, why_not
from tests.replication.pairs import Process, follow, until

LOCAL, SERVED, PEER = "ours, local producers", "ours, clients of `rmq serve`", "RocketMQ's pair"
LAG, SYNC = "async: a message is at the replica after", "sync: sends a second that a replica has in memory"
_FILE = Path("commitlog", "00000000000000000000")
_MAGIC = bytes.fromhex("DAA320A7")
_MAGIC_AT = 4
_LOOK_S = 0.0002
_PAUSE_S = 0.005
_START_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of turns, of messages and of senders."""

    repetitions: int
    lags: int
    sent: int
    senders: tuple[int, ...] = (1, 16)
    body_bytes: int = 100
    release: str | None = BROKER_4_9_7


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Start both pairs, first without and then with sends that wait, and measure each once in a turn."""
    release = parameters.release
    if release is not None and (why := why_not(release)):
        samples.note(f"{PEER} was not measured: {why}.")
        release = None
    samples.note(
        f"Bodies of {parameters.body_bytes} B. Both ends of a pair share this machine and its disk. A lag is the time "
        "from the begin of a send until its record begins in the file of the replica, looked at every 0.2 ms. "
        f"RocketMQ is {parameters.release}, ASYNC_MASTER and then SYNC_MASTER with a slave."
    )
    for wait_for, role in (("none", "ASYNC_MASTER"), ("memory", "SYNC_MASTER")):
        with ExitStack() as stack:
            home = stack.enter_context(scratch(directory))
            pairs = stack.enter_context(_ours(home, wait_for))
            if release is not None:
                pairs[PEER] = stack.enter_context(_rocketmq(release, home, role))
            for _ in range(parameters.repetitions):
                for name, (place, copy) in pairs.items():
                    if wait_for == "none":
                        _measure_lag(parameters, samples, name, place, copy)
                    else:
                        _measure_rate(parameters, samples, name, place)
    for case in map(_case, parameters.senders) if release is not None else ():
        of, to = (f"{SYNC}, {SERVED}", case), (f"{SYNC}, {PEER}", case)
        samples.add_ratio("sync, the same client: ours to RocketMQ's pair", case, of, to)


def lags(begin: Begin, place: str, copy: Path, messages: int, body_bytes: int) -> list[float]:
    """Return how many ms each message took to the replica; each is sent when the one before has come."""
    found = []
    with Producer(place) as producer, copy.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as log:
        begin()
        for _ in range(messages):
            begun = time.monotonic()
            sent = producer.send(Message(ours.SENT, bytes(body_bytes)))
            at = sent.commit_log_offset
            if sent.offset_message_id is not None:
                at = parse_offset_id(sent.offset_message_id).commit_log_offset
            while log[at + _MAGIC_AT : at + _MAGIC_AT + len(_MAGIC)] != _MAGIC:
                time.sleep(_LOOK_S)
            found.append((time.monotonic() - begun) * 1000)
            time.sleep(_PAUSE_S)
    return found


def _measure_lag(parameters: Parameters, samples: Samples, name: str, place: str, copy: Path) -> None:
    found = alone(Child(lags, place, copy, parameters.lags, parameters.body_bytes))
    cuts = statistics.quantiles(found, n=100)
    for case, value in (("median", cuts[49]), ("p99", cuts[98])):
        _add(samples, f"{LAG}, {name}", case, "ms", value)


def _measure_rate(parameters: Parameters, samples: Samples, name: str, place: str) -> None:
    for senders in parameters.senders:
        child = Child(ours.send_by_threads, place, parameters.sent * min(senders, 4), parameters.body_bytes, senders)
        _add(samples, f"{SYNC}, {name}", _case(senders), "/s", rate(alone(child)))


def _add(samples: Samples, name: str, case: str, unit: str, value: float) -> None:
    samples.add(name, case, "ms" if unit == "ms" else "/s", value)
    print(f"{name}, {case}: {value:,.3f} {unit}", file=sys.stderr)


Pairs = dict[str, tuple[str, Path]]
"""By name: where to send, and the log file of the replica."""


@contextmanager
def _ours(home: Path, wait_for: str) -> Iterator[Pairs]:
    root, copy = home / "primary", home / "replica"
    open_store(root).close()
    options = ["--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--wait-for", wait_for]
    options += [] if wait_for == "none" else ["--on-lost", "degrade"]
    with (
        Process("serve", str(root), *options) as server,
        follow(copy, server, "--ack", "memory"),
        Producer(str(root)) as producer,
    ):
        _until_copied(producer, copy / _FILE)
        if wait_for != "none":
            until(lambda: producer.send(Message(ours.SENT, b"x")).replicated, "our replica is in sync", _START_S)
        url = f"rocketmq://{server.ready['name_server']}"
        yield {LOCAL: (str(root), copy / _FILE), SERVED: (url, copy / _FILE)}


@contextmanager
def _rocketmq(release: str, home: Path, role: str) -> Iterator[tuple[str, Path]]:
    with started_cluster(release, home / "rocketmq", masters=1, slaves=1, role=role, jvm=FAST_JVM) as cluster:
        copy = cluster.broker("broker-a", 1).root / _FILE
        with Producer(cluster.url) as producer:
            _until_copied(producer, copy)
        yield cluster.url, copy


def _until_copied(producer: Producer, copy: Path) -> None:
    """Send until a replica has a message that was sent."""
    producer.create_topic(ours.SENT, ours.QUEUES)
    producer.send(Message(ours.SENT, b"first"))
    until(lambda: _begins(copy), "the replica has a message", _START_S)


def _begins(copy: Path) -> bool:
    if not copy.exists():
        return False
    with copy.open("rb") as file:
        return file.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC


def _case(senders: int) -> str:
    return "1 producer" if senders == 1 else f"{senders} producers"


BENCHMARK = Benchmark(
    name="replication",
    title="A second host",
    parameters={
        Size.FULL: Parameters(repetitions=5, lags=500, sent=5_000),
        Size.QUICK: Parameters(repetitions=1, lags=200, sent=1_000),
        Size.SMALLEST: Parameters(repetitions=1, lags=10, sent=50, senders=(1, 2), release=None),
    },
    run=run,
)
