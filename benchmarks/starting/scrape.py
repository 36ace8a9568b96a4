"""Scrape: the time that Prometheus waits for the metrics of a store in which many groups have many queues."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Benchmark, Samples, Size, at_most, scratch
from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.metrics import Source, exposition
from rmqclient.store import open_store

TOPIC = "orders"
TARGETS = {"scrape": at_most(20)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Size of the store, and how often it is read."""

    groups: int
    queues: int
    scrapes: int


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Let every group lag in every queue, then read the metrics again and again."""
    samples.note(
        "Each group lags in each queue. The first scrape maps the files and reads a record of each queue; "
        "the CPU time is that of the scraping process."
    )
    case = f"{parameters.groups * parameters.queues:,} group-queues"
    with scratch(directory) as scratched, open_store(scratched / "store") as store:
        with Producer(store) as producer, Admin(store) as admin:
            producer.create_topic(TOPIC, parameters.queues)
            for number in range(parameters.groups):
                admin.seek(f"group-{number}", TOPIC, "earliest")
            for number in range(2 * parameters.queues):
                producer.send(Message(TOPIC, b"%d" % number))
        with Source(store.root) as source:
            _scrape(source, samples, "first scrape", case)
            for _ in range(parameters.scrapes):
                _scrape(source, samples, "scrape", case)


def _scrape(source: Source, samples: Samples, name: str, case: str) -> None:
    begun, begun_cpu = time.perf_counter(), time.process_time()
    exposition(source.read())
    samples.add(name, case, "ms", (time.perf_counter() - begun) * 1e3, TARGETS.get(name))
    samples.add(f"{name}, CPU", case, "ms", (time.process_time() - begun_cpu) * 1e3)


BENCHMARK = Benchmark(
    name="scrape",
    title="Reading the metrics",
    parameters={
        Size.FULL: Parameters(groups=10, queues=100, scrapes=50),
        Size.QUICK: Parameters(groups=10, queues=100, scrapes=10),
        Size.SMALLEST: Parameters(groups=2, queues=4, scrapes=1),
    },
    run=run,
)
