"""Run: every chosen peer once in each turn, ours among them, each over an empty store of its own.

A turn begins with another peer than the one before. What fails is kept with its reason, and the run goes on.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import commit, this_machine
from benchmarks.measure import Samples, Size, Unit, scratch
from benchmarks.pace import wakes_late
from benchmarks.peers import environment
from benchmarks.peers.frameworks.framework import Framework
from benchmarks.peers.peer import Peer, WithProgram
from benchmarks.peers.processes import ServerFailed
from benchmarks.peers.result import Result, Row
from benchmarks.peers.workloads import backlog, commits, consuming, delayed, footprint, latency, order, sending, tasks
from benchmarks.peers.workloads.bench import Bench, Scale, WorkFailed
from tests.interop.rocketmq import RocketMQFailed

SCALES: dict[Size, Scale] = {
    Size.FULL: Scale(
        send_s=0.6,
        commit_s=2.0,
        consume_s=3.0,
        latency_s=4.0,
        backlog=20_000,
        drain_s=1.5,
        delayed=200,
        keyed=20_480,
        tasks_s=4.0,
        task_latency_s=3.0,
    ),
    Size.QUICK: Scale(
        sizes=(100, 1024),
        send_s=0.3,
        commit_s=1.0,
        consume_s=1.0,
        latency_s=2.0,
        backlog=5_000,
        drain_s=0.5,
        delayed=40,
        keyed=5_120,
        tasks_s=1.0,
        task_latency_s=1.0,
    ),
    Size.SMALLEST: Scale(
        sizes=(100, 1024),
        send_s=0.02,
        commit_s=0.05,
        consume_s=1.0,
        latency_s=0.1,
        not_counted_s=0.0,
        backlog=200,
        drain_s=0.05,
        delayed=4,
        keyed=1_024,
        tasks_s=0.05,
        task_latency_s=0.1,
    ),
}
_OF_THE_MACHINE = (50.0, 99.0, 99.9)
"""Percentiles of how late it wakes a process."""
TURNS = {Size.FULL: 2, Size.QUICK: 1, Size.SMALLEST: 1}

Measured = Peer | Framework
Say = Callable[[str], None]


@dataclass(slots=True)
class _Kept:
    """What is kept of one peer beside its figures."""

    not_measured: str = ""
    failures: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def run(chosen: Sequence[Measured], size: Size, turns: int, directory: Path, say: Say) -> Result:
    """Install what the chosen need, measure them in turns in ``directory``, and return the result."""
    load_before = os.getloadavg()[0]
    samples, kept = Samples(), {each.name: _Kept() for each in chosen}
    for each in chosen:
        kept[each.name].not_measured = reason = _why_not(each)
        say(f"{each.title}: {f'not measured: {reason}' if reason else 'ready'}")
    begun = time.monotonic()
    present = [each for each in chosen if not kept[each.name].not_measured]
    late_ns: list[int] = []
    for turn in range(turns):
        late_ns += wakes_late(SCALES[size].latency_s)
        first = turn * len(present) // max(turns, 1)
        for each in present[first:] + present[:first]:
            with scratch(directory) as home:
                _measure(each, SCALES[size], home, samples, kept[each.name], say)
    return Result(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        commit=commit(),
        machine=this_machine(directory),
        size=size,
        turns=turns,
        took_s=round(time.monotonic() - begun, 1),
        load_before=round(load_before, 2),
        rows=[_row(each, kept[each.name]) for each in chosen],
        figures=samples.figures,
        wakes_late_ms={f"{each:g} %": latency.at_percent(sorted(late_ns), each) / 1e6 for each in _OF_THE_MACHINE},
    )


def _why_not(each: Measured) -> str:
    """Install what can be installed; return what is missing then."""
    if reason := environment.install(each.packages):
        return reason
    if each.missing() and (reason := environment.unpack(each.debian)):
        return reason
    return each.missing()


def _measure(each: Measured, scale: Scale, home: Path, samples: Samples, kept: _Kept, say: Say) -> None:
    def add(case: str, unit: Unit, value: float) -> None:
        samples.add(each.name, case, unit, value)
        say(f"{each.title}, {case}: {value:,.3f} {unit}")

    begun_ns = time.monotonic_ns()
    try:
        with each.running(home) as running:
            bench = Bench(each, running, scale, add)
            measure = _of_framework if isinstance(each, Framework) else _of_queue
            for name, work in measure(bench, running.begun_ns or begun_ns).items():
                _attempt(name, work, kept, say)
            kept.versions = each.versions()
    except (ServerFailed, RocketMQFailed, OSError, subprocess.SubprocessError) as error:
        kept.failures["the server"] = str(error)
        say(f"{each.title}: {error}")


def _of_queue(bench: Bench, begun_ns: int) -> dict[str, Callable[[], None]]:
    stored: dict[int, int] = {}
    peer = bench.peer
    if isinstance(peer, WithProgram):
        return peer.works(bench)
    works: dict[str, Callable[[], None]] = {
        footprint.FIRST: lambda: footprint.measure_start(bench, begun_ns),
        sending.SINGLE: lambda: stored.update(sending.measure(bench)),
        commits.COMMITTED: lambda: commits.measure(bench),
        consuming.CONSUMED: lambda: consuming.measure(bench, stored),
        latency.LATENCY: lambda: latency.measure(bench),
        backlog.DRAINED: lambda: backlog.measure(bench),
    }
    if peer.delays:
        works[delayed.DELAYED] = lambda: delayed.measure(bench)
    if peer.orders_keys:
        works[order.ORDERED] = lambda: order.measure(bench)
    works[footprint.AFTER] = lambda: footprint.measure_end(bench)
    return works


def _of_framework(bench: Bench, begun_ns: int) -> dict[str, Callable[[], None]]:
    return {tasks.NOOP: lambda: tasks.measure(bench, begun_ns)}


def _attempt(name: str, work: Callable[[], None], kept: _Kept, say: Say) -> None:
    try:
        work()
    except WorkFailed as error:
        kept.failures[name] = str(error)
        say(f"{name} failed: {error}")


def _row(each: Measured, kept: _Kept) -> Row:
    return Row(
        name=each.name,
        title=each.title,
        ours=each.ours,
        framework=isinstance(each, Framework),
        level=each.promise.level.value,
        flush=each.promise.flush,
        ways=each.ways,
        versions=kept.versions,
        not_measured=kept.not_measured,
        failures=kept.failures,
    )


def to_stderr(line: str) -> None:
    """Say what happens."""
    print(line, file=sys.stderr, flush=True)
