"""Growth: what a message costs when there are more senders, more workers, more groups, or a hundred million messages.

Numbers of queues, and a log that is long by its bytes, are measured by ``scale``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.growing import groups, long_log, senders, workers
from benchmarks.growing.long_log import Logs
from benchmarks.measure import WARMED, Benchmark, Samples, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The numbers of processes, groups and messages, and the number of turns."""

    repetitions: int
    sent: int
    """By all senders."""
    handled: int
    """By all workers, when the handler does nothing."""
    waited_each: int
    """By each worker, when the handler waits."""
    handled_by_each_group: int
    logs: Logs
    processes: tuple[int, ...] = (1, 2, 4, 8)
    groups: tuple[int, ...] = (1, 10, 100)


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure every number of processes and of groups in each turn, then both logs."""
    _explain(samples)
    for _ in range(parameters.repetitions):
        senders.measure(parameters.sent, parameters.processes, directory, samples)
        workers.measure(parameters.handled, parameters.waited_each, parameters.processes, directory, samples)
        groups.measure(parameters.handled_by_each_group, parameters.groups, directory, samples)
    senders.compare(parameters.processes, samples)
    workers.compare(parameters.processes, samples)
    groups.compare(parameters.groups, samples)
    long_log.measure(parameters.logs, parameters.repetitions, directory, samples)


def _explain(samples: Samples) -> None:
    samples.note(WARMED)
    samples.note(
        "Messages have 100 B. Processes begin together; a rate is that of all of them, from the first begin to the "
        "last end. Processor time is that of all threads of these processes, the housekeeper's included."
    )
    samples.note(
        "Each worker has one thread, and each has as many of 16 queues before the clock starts. All groups run in one "
        "process, each on a thread of its own, and each handles every message of the log."
    )


BENCHMARK = Benchmark(
    name="growth",
    title="More processes, more groups, a hundred million messages",
    parameters={
        Size.FULL: Parameters(
            repetitions=3,
            sent=1_200_000,
            handled=1_200_000,
            waited_each=3_200,
            handled_by_each_group=500_000,
            logs=Logs(short=1_000_000, long=100_000_000, consumed=1_000_000, again=1_000_000, searches=100),
        ),
        Size.QUICK: Parameters(
            repetitions=1,
            sent=400_000,
            handled=400_000,
            waited_each=1_600,
            handled_by_each_group=100_000,
            logs=Logs(short=200_000, long=2_000_000, consumed=200_000, again=200_000, searches=20),
        ),
        Size.SMALLEST: Parameters(
            repetitions=1,
            sent=200,
            handled=400,
            waited_each=100,
            handled_by_each_group=100,
            logs=Logs(short=400, long=800, consumed=400, again=400, searches=2),
            processes=(1, 2),
            groups=(1, 2),
        ),
    },
    run=run,
)
