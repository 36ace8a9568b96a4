"""Sync: sends a second that are on disk when they return, by 1 to 16 processes into one store.

Senders that wait at the same moment share one flush. Compared with the same processes writing the same bytes into one
file with an ``fdatasync`` each, where only the kernel can share work.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import baselines
from benchmarks.child import Begin, Child, together
from benchmarks.measure import Benchmark, Samples, Size, Span, at_least, in_bytes, rate, scratch
from benchmarks.traffic import KEYS, TAG, TOPIC
from rmqclient import Durability, Message, Producer, StoreConfig

SENT = "send with SYNC durability"
ALONE = "each its own fdatasync"
TARGETS = {8: at_least(2.5)}
"""How many times as much as one process."""

_PEER_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of processes, length of a run, number of turns."""

    repetitions: int
    duration_s: float
    processes: tuple[int, ...] = (1, 2, 4, 8, 16)
    body_bytes: int = 4096


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    samples.note(
        f"Bodies of {in_bytes(parameters.body_bytes)}, {parameters.duration_s} s for each figure. Whether a flush "
        "reaches the medium is the disk's own affair."
    )
    for _ in range(parameters.repetitions):
        for processes in parameters.processes:
            with scratch(directory) as root:
                samples.add(SENT, _case(processes), "/s", rate(*_sent(parameters, root, processes)))
            with scratch(directory) as path:
                samples.add(ALONE, _case(processes), "/s", rate(*_alone(parameters, path / "peer", processes)))
    one = _case(parameters.processes[0])
    for processes in parameters.processes:
        case = _case(processes)
        samples.add_ratio("to one process", case, (SENT, case), (SENT, one), TARGETS.get(processes))
        samples.add_ratio("to each its own fdatasync", case, (SENT, case), (ALONE, case))


def send(begin: Begin, root: Path, body_bytes: int, duration_s: float) -> Span:
    """Send durable messages one by one for some seconds."""
    body = os.urandom(body_bytes)
    sent = 0
    with Producer(root, config=StoreConfig(durability=Durability.SYNC)) as producer:
        first = producer.send(Message(TOPIC, body, tags=TAG, keys=KEYS[:1]))
        begin()
        begun_ns = time.monotonic_ns()
        end_ns = begun_ns + int(duration_s * 1e9)
        while time.monotonic_ns() < end_ns:
            producer.send(Message(TOPIC, body, tags=TAG, keys=KEYS[:1]))
            sent += 1
        ended_ns = time.monotonic_ns()
    record_bytes = first.commit_log_end - first.commit_log_offset
    return Span(messages=sent, record_bytes=record_bytes, begun_ns=begun_ns, ended_ns=ended_ns)


def _sent(parameters: Parameters, root: Path, processes: int) -> list[Span]:
    size, duration_s = parameters.body_bytes, parameters.duration_s
    return together(*(Child(send, root, size, duration_s) for _ in range(processes)))


def _alone(parameters: Parameters, path: Path, processes: int) -> list[Span]:
    size, duration_s = parameters.body_bytes, parameters.duration_s
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, _PEER_FILE_BYTES)
    return together(
        *(Child(baselines.commit_alone, path, number, processes, size, duration_s) for number in range(processes))
    )


def _case(processes: int) -> str:
    return f"{processes} process{'es' * (processes > 1)}"


BENCHMARK = Benchmark(
    name="sync",
    title="Sending with SYNC durability",
    parameters={
        Size.FULL: Parameters(repetitions=5, duration_s=1.0),
        Size.QUICK: Parameters(repetitions=1, duration_s=0.5),
        Size.SMALLEST: Parameters(repetitions=1, duration_s=0.05, processes=(1, 2)),
    },
    run=run,
)
