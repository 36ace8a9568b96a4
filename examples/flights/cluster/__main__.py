"""The demonstration: the application of the directory, unchanged, on two name servers and two masters.

``python -m examples.flights.cluster``, or ``make demo-cluster``. While one process replays the year and two workers
count, a worker is killed with ``kill -9``, and so is a broker, which is started again a moment later. In the end what
the handlers have stored is compared with a plain computation, and with what Spark reads of the same topic.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from examples.flights import stage
from examples.flights.app import QUEUES, TOPIC
from examples.flights.cluster.stage import Counting, kill_worker, wait_for_workers
from examples.flights.dataset import FLIGHTS, flights
from examples.flights.demo import FEWEST_FLIGHTS, OUTPUT, Files, shortest
from examples.flights.outcome import report
from examples.flights.outcome.chart import draw
from examples.flights.outcome.tally import Tally, computed, stored
from examples.flights.progress import Display, display
from examples.flights.stage import DemoFailed, Processes
from rmqclient.admin import Admin
from rmqclient.errors import SparkUnavailable
from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, RocketMQFailed, why_not

WORKERS = 2
_AWAY_S = 3.0
"""How long the killed broker stays away."""


class ClusterFiles(Files):
    """The files in the output directory."""

    def __init__(self, output: Path) -> None:
        super().__init__(output)
        self.cluster = self.output / "cluster"
        self.spark_log = self.output / "spark.log"

    def wipe(self) -> None:
        """Remove the files of an earlier demonstration; its cluster ended with it."""
        super().wipe()
        shutil.rmtree(self.cluster, ignore_errors=True)


@click.command()
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT / "cluster")
@click.option("--flights", "total", type=click.IntRange(FEWEST_FLIGHTS, FLIGHTS), default=FLIGHTS, show_default=True)
@click.option("--release", type=click.Choice([BROKER_4_9_7, BROKER_5_3_3]), default=BROKER_5_3_3, show_default=True)
def main(output: Path, total: int, release: str) -> None:
    """Count the flights of 2013 on a cluster, kill a worker and a broker on the way, and check the result."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the processes started here are stopped
    console = Console()
    files = ClusterFiles(output)
    begin = time.monotonic()
    if why := why_not(release):
        console.print(f"skipped: {why}", soft_wrap=True, highlight=False)
        return
    try:
        files.wipe()
        with started_cluster(release, files.cluster, name_servers=2, masters=2) as cluster:
            console.print(f"{cluster.url}: two name servers and two masters of RocketMQ, {release}", soft_wrap=True)
            perform(console, cluster, files, total)
            is_right = conclude(console, cluster, files, total)
        console.print(f"{time.monotonic() - begin:.1f} s in all", highlight=False)
    except (DemoFailed, RocketMQFailed) as error:
        console.print(f"failed: {error}", style="bold red", soft_wrap=True)
        console.print(f"see {files.workers_log}, {files.replay_log} and {files.cluster}", soft_wrap=True)
        is_right = False
    sys.exit(0 if is_right else 1)


def perform(console: Console, cluster: Cluster, files: ClusterFiles, total: int) -> None:
    """Replay the flights while the workers count; kill a worker after a third, and a broker after two. [DemoFailed]"""
    with (
        Admin(cluster.url) as admin,
        display(console, total) as shown,
    ):
        admin.create_topic(TOPIC, QUEUES)
        counting = Counting(admin)
        running = stage.workers_running(cluster.url, files.results, files.workers_log, processes=WORKERS)
        with running as supervisor:
            watched = Processes(supervisor=supervisor)
            pids = wait_for_workers(files.workers_log, watched, WORKERS)
            shown.say(f"{WORKERS} workers are ready: processes {', '.join(map(str, pids))}")
            with stage.replay_running(cluster.url, files.replay_log, total) as replay:
                watched.including(replay=replay)
                _show_until(counting, shown, watched, total // 3)
                victim, seconds = kill_worker(files.workers_log, watched)
                shown.say(f"kill -9 {victim}, a worker; after {seconds:.1f} s another one was ready in its place")
                _show_until(counting, shown, watched, 2 * total // 3)
                _kill_broker(cluster, counting, shown, watched)
                _show_until(counting, shown, watched, total)
                if replay.wait(stage.STALL_LIMIT_S):
                    raise DemoFailed(f"the replay ended with exit code {replay.returncode}")
                _show_until(counting, shown, watched, counting.look().sent)
        if supervisor.returncode != 0:
            raise DemoFailed(f"the workers stopped with exit code {supervisor.returncode}")
        counting.check()


def _show_until(counting: Counting, shown: Display, watched: Processes, goal: int) -> None:
    """Show the progress until every group has committed so many messages."""
    while True:
        counts = counting.look()
        shown.show(counts)
        if counts.slowest >= goal:
            return
        watched.look(counts)
        time.sleep(0.2)


def _kill_broker(cluster: Cluster, counting: Counting, shown: Display, watched: Processes) -> None:
    node = cluster.broker("broker-a")
    begin = time.monotonic()
    node.server.kill()
    shown.say(f"kill -9 of {node.name} at {node.address}")
    while time.monotonic() - begin < _AWAY_S:
        shown.show(counting.look())
        watched.look(time.monotonic())
    cluster.restart(node.server)
    shown.say(f"after {time.monotonic() - begin:.1f} s {node.name} is back, and both name servers know it")


def conclude(console: Console, cluster: Cluster, files: ClusterFiles, total: int) -> bool:
    """Print the results and whether they are right."""
    found, expected = stored(files.results), computed(flights(total))
    console.print(report.delay_table(found), report.aircraft_table(found))
    again = report.redeliveries(files.results)
    console.print(f"deliveries that found their flight already counted: {again}", highlight=False)
    problem = _compare_spark(console, cluster, files, expected)
    verdict = report.check(found, expected)
    if problem:
        console.print(f"wrong: {problem}", style="bold red", soft_wrap=True)
    report.show(console, verdict)
    console.print(f"chart: {shortest(draw(found, files.chart))}", highlight=False, soft_wrap=True)
    return not verdict.problems and not problem


def _compare_spark(console: Console, cluster: Cluster, files: ClusterFiles, expected: Tally) -> str:
    """Let Spark read the topic; return what is wrong with it, or nothing."""
    flown = sum(delays.flights for delays in expected.delays.values())
    minutes = sum(delays.minutes for delays in expected.delays.values())
    try:
        from examples.flights.cluster.spark import read  # noqa: PLC0415 - Spark may not be installed

        found = read(cluster.url, files.spark_log)
    except (SparkUnavailable, ImportError) as error:
        console.print(f"Spark did not read the topic: {error}", soft_wrap=True, highlight=False)
        return ""
    said = f"{found.messages} messages of {found.flights} flights, {found.minutes} minutes of delay"
    console.print(f"Spark {found.version} read {said} from the brokers", soft_wrap=True, highlight=False)
    return "" if (found.flights, found.minutes) == (flown, minutes) else f"Spark read {said}, not {flown} and {minutes}"


if __name__ == "__main__":
    main()
