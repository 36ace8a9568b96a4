"""Once: sends by key, of new and of stored messages, beside plain sends; by 1 to 4 processes into one store."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

from benchmarks.child import Begin, Child, together
from benchmarks.measure import Benchmark, Samples, Size, Span, in_bytes, rate, scratch
from benchmarks.traffic import TAG, TOPIC
from rmqclient import Message, Producer

Kind = Literal["plain sends", "sends by key, each a new one", "sends of a key that is there"]

PLAIN: Kind = "plain sends"
NEW: Kind = "sends by key, each a new one"
THERE: Kind = "sends of a key that is there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of processes, length of a run, number of turns."""

    repetitions: int
    duration_s: float
    processes: tuple[int, ...] = (1, 2, 4)
    body_bytes: int = 300


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    samples.note(f"Bodies of {in_bytes(parameters.body_bytes)}, {parameters.duration_s} s for each figure.")
    for _ in range(parameters.repetitions):
        for processes in parameters.processes:
            for kind in (PLAIN, NEW, THERE):
                with scratch(directory) as root:
                    samples.add(kind, _case(processes), "/s", rate(*_sent(parameters, root, kind, processes)))
    for processes in parameters.processes:
        case = _case(processes)
        for kind in (NEW, THERE):
            samples.add_ratio(f"{kind}, to plain ones", case, (kind, case), (PLAIN, case))


def send(begin: Begin, root: Path, kind: Kind, body_bytes: int, duration_s: float) -> Span:
    """Send one by one for some seconds; each process has its own keys."""
    message = Message(TOPIC, bytes(body_bytes), tags=TAG)
    prefix = f"{os.getpid()}-"
    sent = 0
    with Producer(root) as producer:
        first = producer.send_once(message, prefix)
        begin()
        begun_ns = time.monotonic_ns()
        end_ns = begun_ns + int(duration_s * 1e9)
        for sent in count():
            if time.monotonic_ns() >= end_ns:
                break
            if kind == PLAIN:
                producer.send(message)
            else:
                producer.send_once(message, prefix if kind == THERE else f"{prefix}{sent}")
        ended_ns = time.monotonic_ns()
    record_bytes = first.commit_log_end - first.commit_log_offset
    return Span(messages=sent, record_bytes=record_bytes, begun_ns=begun_ns, ended_ns=ended_ns)


def _sent(parameters: Parameters, root: Path, kind: Kind, processes: int) -> list[Span]:
    size, duration_s = parameters.body_bytes, parameters.duration_s
    return together(*(Child(send, root, kind, size, duration_s) for _ in range(processes)))


def _case(processes: int) -> str:
    return f"{processes} process{'es' * (processes > 1)}"


BENCHMARK = Benchmark(
    name="once",
    title="Sending by key",
    parameters={
        Size.FULL: Parameters(repetitions=5, duration_s=2.0),
        Size.QUICK: Parameters(repetitions=1, duration_s=1.0),
        Size.SMALLEST: Parameters(repetitions=1, duration_s=0.02, processes=(1,)),
    },
    run=run,
)
