"""Consume: messages a second that one worker process handles, with a handler that does nothing, plain or ``async``.

Each message is acknowledged singly, as in every worker. Compared with a bare loop that calls the same handler, the
upper limit, and with SQLite as a queue, 32 rows fetched and deleted in a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks import baselines, traffic
from benchmarks.child import Child, alone
from benchmarks.measure import WARMED, Benchmark, Samples, Size, at_least, at_most, in_bytes, rate, scratch

COROUTINES = "one worker, 1 thread, async, 32 at a time"
BARE = "the handler, called in a loop"
SQLITE = "SQLite, 32 fetched and deleted in a transaction"
ONE_THREAD = at_least(1e6)
SMALL = at_most(256.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of messages and of turns."""

    repetitions: int
    messages: int
    taken_from_sqlite: int
    body_bytes: tuple[int, ...] = (100, 1024)
    threads: tuple[int, ...] = (1, 4)


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    samples.note(WARMED)
    samples.note(
        "The messages were sent before by another process, with tag, key and sharding key, to 4 queues. The worker is "
        "a PushConsumer with one handler; the figure is taken from its counter between the first progress and the last "
        "look before the end."
    )
    for _ in range(parameters.repetitions):
        for body_bytes in parameters.body_bytes:
            _measure(parameters, body_bytes, directory, samples)
    for body_bytes in parameters.body_bytes:
        case = in_bytes(body_bytes)
        worker = _worker(parameters.threads[0])
        samples.add_ratio("one thread to the bare loop", case, (worker, case), (BARE, case))
        samples.add_ratio("one thread to SQLite", case, (worker, case), (SQLITE, case))


def _measure(parameters: Parameters, body_bytes: int, directory: Path, samples: Samples) -> None:
    case = in_bytes(body_bytes)
    writes = parameters.messages * (body_bytes + 256)
    for threads in parameters.threads:
        with scratch(directory, writes) as root:
            alone(Child(traffic.send_prebuilt, root, parameters.messages, body_bytes))
            span, resident = alone(Child(traffic.consume_and_weigh, root, threads))
        samples.add(_worker(threads), case, "/s", rate(span), ONE_THREAD if threads == 1 else None)
        samples.add(f"{_worker(threads)}: resident memory behind them", case, "MiB", resident / 2**20, SMALL)
    with scratch(directory, writes) as root:
        alone(Child(traffic.send_prebuilt, root, parameters.messages, body_bytes))
        samples.add(COROUTINES, case, "/s", rate(alone(Child(traffic.consume, root, handle=traffic.ignore_async))))
    samples.add(BARE, case, "/s", rate(alone(Child(traffic.call, parameters.messages))))
    with scratch(directory) as path:
        taken = parameters.taken_from_sqlite
        span = alone(Child(baselines.take, path / "peer.db", taken, body_bytes, traffic.ignore))
    samples.add(SQLITE, case, "/s", rate(span))


def _worker(threads: int) -> str:
    return f"one worker, {threads} thread{'s' * (threads > 1)}"


BENCHMARK = Benchmark(
    name="consume",
    title="Consuming",
    parameters={
        Size.FULL: Parameters(repetitions=5, messages=600_000, taken_from_sqlite=200_000),
        Size.QUICK: Parameters(repetitions=1, messages=300_000, taken_from_sqlite=50_000),
        Size.SMALLEST: Parameters(repetitions=1, messages=200, taken_from_sqlite=64, body_bytes=(100,)),
    },
    run=run,
)
