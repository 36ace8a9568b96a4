"""Tasks: put in, and run by two worker processes, each of which runs one at a time.

No-op tasks are put in before the workers start, so that neither side takes the processors of the other; tasks of 1 ms
and those that are timed are put in while the workers run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

from benchmarks.child import Begin
from benchmarks.pace import pace
from benchmarks.peers.frameworks import jobs
from benchmarks.peers.frameworks.framework import Framework, Kind, SchedulesTasks
from benchmarks.peers.workloads.bench import Bench, Timed, WorkFailed, together, working
from benchmarks.peers.workloads.latency import add_percentiles

ENQUEUED = "put in, each answered"
NOOP = "no-op tasks, two workers"
SHORT = "tasks of 1 ms, two workers"
LATENCY = "task latency"
DELAYED = "lateness of tasks delayed by 1 s"
FIRST = "start to first task"
_MOST_TASKS = 400_000
_SHORT_TASKS_A_S = 500
_DELAY_S = 1.0
_LOOK_S = 0.002
_PATIENCE_S = 120.0


class Put(NamedTuple):
    """What a client has put in."""

    tasks: int
    seconds: float


def measure(bench: Bench, begun_ns: int) -> None:
    """Add all figures of a framework. ``begun_ns`` is when its broker was started. Raises WorkFailed."""
    assert bench.running.files is not None
    directory = bench.running.files / "tally"
    directory.mkdir(parents=True)
    tally = jobs.Tally(directory)
    with working(_worker(bench, directory)):
        together(_client(bench, "noop", 0.0, 1))
        _wait(tally, 1)
        bench.add(FIRST, "s", (time.monotonic_ns() - begun_ns) / 1e9)
    put = together(_client(bench, "noop", bench.scale.tasks_s, _MOST_TASKS))[0]
    bench.add(ENQUEUED, "/s", put.tasks / put.seconds)
    before = tally.total
    with working(_worker(bench, directory), _worker(bench, directory)):
        bench.add(NOOP, "/s", _rate(tally, before, put.tasks))
        before = tally.total
        count = int(_SHORT_TASKS_A_S * bench.scale.tasks_s)
        with working(_client(bench, "short", _PATIENCE_S, count)):
            bench.add(SHORT, "/s", _rate(tally, before, count))
        _measure_latency(bench, tally)
        if bench.peer.delays:
            _measure_delays(bench, tally)


def work(begin: Begin, framework: Framework, address: str, directory: Path) -> None:
    """Be a worker until the process is killed."""
    jobs.attach(directory)
    with framework.tasks(address) as tasks:
        begin()
        tasks.work()


def put(begin: Begin, framework: Framework, address: str, kind: Kind, seconds: float, most: int) -> Put:
    """Put in tasks for some seconds, ``most`` at most and one at least."""
    with framework.tasks(address) as tasks:
        begin()
        begun = now = time.monotonic()
        done = 0
        while not done or (now - begun < seconds and done < most):
            tasks.enqueue(kind, done)
            done += 1
            now = time.monotonic()
    return Put(done, now - begun)


def put_paced(begin: Begin, framework: Framework, address: str, count: int, rate: int) -> None:
    """Put in tasks at an even pace, each with the time at which it was due."""
    with framework.tasks(address) as tasks:
        begin()
        pace(lambda due_ns: tasks.enqueue("stamp", due_ns), count, rate)


def put_later(begin: Begin, framework: Framework, address: str, count: int, rate: int) -> None:
    """Put in tasks at an even pace, each with the time at which it is to run."""
    with framework.tasks(address) as opened:
        tasks = cast("SchedulesTasks", opened)
        begin()
        pace(lambda _: tasks.enqueue_later("stamp", time.monotonic_ns() + int(_DELAY_S * 1e9), _DELAY_S), count, rate)


def _measure_latency(bench: Bench, tally: jobs.Tally) -> None:
    rate, seconds = bench.scale.task_rate, bench.scale.task_latency_s
    late = _timed(bench, tally, put_paced, int(rate * seconds), rate)
    add_percentiles(bench, f"{LATENCY} at {rate}/s", late)


def _measure_delays(bench: Bench, tally: jobs.Tally) -> None:
    late = sorted(_timed(bench, tally, put_later, bench.scale.delayed, bench.scale.task_rate))
    bench.add(f"{DELAYED}, median", "ms", late[len(late) // 2] / 1e6)
    bench.add(f"{DELAYED}, 99 %", "ms", late[len(late) * 99 // 100] / 1e6)


def _timed(
    bench: Bench,
    tally: jobs.Tally,
    function: Callable[[Begin, Framework, str, int, int], None],
    count: int,
    rate: int,
) -> list[int]:
    """Let a client put in tasks with stamps; return the times that the workers kept of them."""
    before, kept = tally.total, len(tally.times())
    together(bench.child(function, bench.peer, bench.running.address, count, rate))
    _wait(tally, before + count)
    return tally.times()[kept:].tolist()


def _worker(bench: Bench, directory: Path) -> Timed[None]:
    return bench.child(work, bench.peer, bench.running.address, directory)


def _client(bench: Bench, kind: Kind, seconds: float, most: int) -> Timed[Put]:
    return bench.child(put, bench.peer, bench.running.address, kind, seconds, most)


def _rate(tally: jobs.Tally, before: int, tasks: int) -> float:
    """Wait until so many tasks have run; return how many a second, from the first progress seen to the last."""
    looks = [(time.monotonic(), 0)]

    def look() -> int:
        done = tally.total - before
        if done != looks[-1][1]:
            looks.append((time.monotonic(), done))
        return done

    _until(lambda: look() >= tasks, tally)
    under_way = looks[1:] if len(looks) > 2 else looks
    (begun, first), (ended, last) = under_way[0], under_way[-1]
    return (last - first) / (ended - begun)


def _wait(tally: jobs.Tally, total: int) -> None:
    _until(lambda: tally.total >= total, tally)


def _until(reached: Callable[[], bool], tally: jobs.Tally) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise WorkFailed(f"{tally.total} tasks had run after {_PATIENCE_S:.0f} s, and not all")
        time.sleep(_LOOK_S)
