"""Demo: the whole example from an empty directory, with a check at the end.

A supervisor with two workers counts while another process replays the year. Halfway one worker is killed on purpose.
When both groups have acknowledged everything, what they stored is compared with a plain computation over the dataset.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from examples.flights import stage
from examples.flights.app import GROUPS, QUEUES, TOPIC
from examples.flights.dataset import FLIGHTS, flights
from examples.flights.outcome import report
from examples.flights.outcome.chart import draw
from examples.flights.outcome.tally import computed, stored
from examples.flights.progress import Display, display
from examples.flights.stage import DemoFailed, Processes, Takeover
from rmqclient.admin import Admin
from rmqclient.errors import QueueError
from rmqclient.metrics import Sampler
from rmqclient.store import MessageStore, open_store

OUTPUT = Path("demo-output")
FEWEST_FLIGHTS = 1_000
"""About 28 hours of flights: fewer would not give a line to draw."""


class Files:
    """The files in the output directory."""

    def __init__(self, output: Path) -> None:
        self.output = output.absolute()
        self.store = self.output / "store"
        self.results = self.output / "results"
        self.workers_log = self.output / "workers.log"
        self.replay_log = self.output / "replay.log"
        self.chart = self.output / "delays.png"

    def wipe(self) -> None:
        """Remove only the files of an earlier demonstration. Raises DemoFailed if it still runs."""
        if self.store.exists() and (pids := _supervisors_of(self.store)):
            raise DemoFailed(
                f"workers use {self.store}: stop their supervisors first, with kill {' '.join(map(str, pids))}"
            )
        for directory in (self.store, self.results):
            shutil.rmtree(directory, ignore_errors=True)
        for file in (self.workers_log, self.replay_log, self.chart):
            file.unlink(missing_ok=True)
        self.output.mkdir(parents=True, exist_ok=True)


@click.command()
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT, show_default=True)
@click.option("--flights", "total", type=click.IntRange(FEWEST_FLIGHTS, FLIGHTS), default=FLIGHTS, show_default=True)
@click.option("--processes", type=click.IntRange(min=2), default=2, show_default=True)
def main(output: Path, total: int, processes: int) -> None:
    """Count the flights of 2013, kill a worker on the way, and check the result. The exit code is 1 if it is wrong."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the processes started here are stopped
    console = Console()
    files = Files(output)
    try:
        begin = time.monotonic()
        takeover = perform(console, files, total, processes)
        is_right = conclude(console, files, takeover, total)
        console.print(f"{time.monotonic() - begin:.1f} s in all", highlight=False)
    except DemoFailed as error:
        console.print(f"failed: {error}", style="bold red", soft_wrap=True)
        console.print(f"see {files.workers_log} and {files.replay_log}", soft_wrap=True)
        is_right = False
    sys.exit(0 if is_right else 1)


def perform(console: Console, files: Files, total: int, processes: int) -> Takeover:
    """Replay the flights while the workers count, and kill one of them halfway.

    Returns when both groups have acknowledged all messages and the workers have stopped. Raises DemoFailed.
    """
    files.wipe()
    with (
        open_store(files.store, housekeeping=False) as store,
        display(console, total) as shown,
        stage.workers_running(files.store, files.results, files.workers_log, processes=processes) as supervisor,
    ):
        watched = Processes(supervisor=supervisor)
        Admin(store).create_topic(TOPIC, QUEUES)
        stage.wait_for_workers(store, watched, processes)
        shown.say(f"{processes} workers are ready: processes {_listed(stage.ready_workers(store))}")
        with stage.replay_running(files.store, files.replay_log, total) as replay:
            watched.including(replay=replay)
            _show_until(store, shown, watched, total // 2)
            takeover = _kill_a_worker(store, shown, watched)
            _show_until(store, shown, watched, total)
        if left := stage.lag(store):
            raise DemoFailed(f"all messages are acknowledged, but the lag is {left}")
    if supervisor.returncode != 0:
        raise DemoFailed(f"the workers stopped with exit code {supervisor.returncode}")
    return takeover


def conclude(console: Console, files: Files, takeover: Takeover, total: int) -> bool:
    """Print the results and whether they are right."""
    found = stored(files.results)
    console.print(report.delay_table(found), report.aircraft_table(found), _worker_table(files.results, takeover))
    again = report.redeliveries(files.results)
    console.print(f"redeliveries that found their flight already counted: {again}", highlight=False)
    verdict = report.check(found, computed(flights(total)))
    report.show(console, verdict)
    console.print(f"chart: {shortest(draw(found, files.chart))}", highlight=False, soft_wrap=True)
    return not verdict.problems


def shortest(path: Path) -> Path:
    """Return the path relative to the working directory if it lies below, and the whole path otherwise."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _supervisors_of(store: Path) -> set[int]:
    """Return the processes whose workers use a store; empty if it cannot be opened, because no worker uses it then."""
    try:
        with Sampler(store) as sampler:
            return {status.supervisor_pid for status in sampler.sample().workers}
    except (QueueError, OSError):
        return set()


def _show_until(store: MessageStore, shown: Display, watched: Processes, goal: int) -> None:
    while True:
        counts = stage.counts(store)
        shown.show(counts)
        if counts.slowest >= goal:
            return
        watched.look(counts)


def _kill_a_worker(store: MessageStore, shown: Display, watched: Processes) -> Takeover:
    victim = stage.choose_victim(store)
    queues = " and ".join(f"{_listed(victim.queues(group))} of {group}" for group in GROUPS)
    shown.say(f"kill -9 {victim.pid}, the worker of queues {queues}")
    takeover = stage.kill(store, victim, watched)
    shown.say(f"after {takeover.seconds:.2f} s all of these were taken over, by {_listed(takeover.heirs)}")
    return takeover


def _worker_table(results: Path, takeover: Takeover) -> Table:
    """Describe how many flights each worker process has counted."""
    table = report.plain_table("Counts by worker process")
    table.add_column("Worker process")
    for group in GROUPS:
        table.add_column(group, justify="right")
    for worker, counts in sorted(report.counted_by_worker(results).items()):
        table.add_row(_named(worker, takeover), *(f"{counts[group]:,}" for group in GROUPS))
    return table


def _named(worker: int, takeover: Takeover) -> str:
    if worker == takeover.victim.pid:
        return f"{worker}, killed on purpose"
    return f"{worker}, took over" if worker in takeover.heirs else f"{worker}, started in its place"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
