"""Pipeline: Spark reads the flights while they are replayed and workers count them, and joins them with the weather.

``python -m examples.flights.weather``, or ``make demo-spark``. The queries are in
:mod:`examples.flights.weather.queries`. When they have read all messages, the hours are joined with the weather and the
names of the airports. The same table is computed from the archive alone, and with pandas from the CSV files alone; all
three must be equal.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from examples.flights import stage
from examples.flights.app import QUEUES, TOPIC
from examples.flights.dataset import FLIGHTS
from examples.flights.demo import OUTPUT, Files, shortest
from examples.flights.outcome import report
from examples.flights.progress import Display, display
from examples.flights.stage import DemoFailed, Processes
from examples.flights.weather.chart import draw
from examples.flights.weather.delays import DRY, WET, WeatherDelays, collected, computed, differences, total
from examples.flights.weather.queries import HOURLY, by_weather, follow, hourly, is_following, rows_read, table
from rmqclient.admin import Admin
from rmqclient.errors import SparkUnavailable
from rmqclient.spark import session
from rmqclient.store import MessageStore, open_store

FEWEST_FLIGHTS = 10_000
"""Eleven days of flights: fewer would have too little rain to draw."""

_LOOK_INTERVAL_S = 0.2


class PipelineFiles(Files):
    """The files in the output directory."""

    def __init__(self, output: Path) -> None:
        super().__init__(output)
        self.spark_log = self.output / "spark.log"
        self.archive = self.output / "archive"
        self.checkpoints = self.output / "checkpoints"

    def wipe(self) -> None:
        """As in :class:`Files`."""
        super().wipe()
        for directory in (self.archive, self.checkpoints):
            shutil.rmtree(directory, ignore_errors=True)
        self.spark_log.unlink(missing_ok=True)


@click.command()
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT / "spark", show_default=True)
@click.option("--flights", "total", type=click.IntRange(FEWEST_FLIGHTS, FLIGHTS), default=FLIGHTS, show_default=True)
@click.option("--processes", type=click.IntRange(min=1), default=2, show_default=True)
def main(output: Path, total: int, processes: int) -> None:
    """Read the flights of 2013 with Spark while workers count them, and check the result. Exit code 1 if wrong."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the processes started here are stopped
    console = Console()
    files = PipelineFiles(output)
    begin = time.monotonic()
    try:
        files.wipe()
        with errors_to(files.spark_log):
            spark = session(app_name="flights")
        perform(console, spark, files, total, processes)
        is_right = conclude(console, spark, files, total)
        console.print(f"{time.monotonic() - begin:.1f} s in all", highlight=False)
    except SparkUnavailable as error:
        console.print(f"skipped: {error}", soft_wrap=True, highlight=False)
        return
    except DemoFailed as error:
        console.print(f"failed: {error}", style="bold red", soft_wrap=True)
        console.print(f"see {files.spark_log}, {files.workers_log} and {files.replay_log}", soft_wrap=True)
        is_right = False
    sys.exit(0 if is_right else 1)


@contextmanager
def errors_to(path: Path) -> Iterator[None]:
    """Redirect standard error to a file. Java, started inside this context, keeps writing to the file afterwards."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with path.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def perform(console: Console, spark: SparkSession, files: PipelineFiles, total: int, processes: int) -> None:
    """Replay the flights while workers count and Spark reads, until both have all messages. Raises DemoFailed."""
    with (
        open_store(files.store, housekeeping=False) as store,
        display(console, total) as shown,
        stage.workers_running(files.store, files.results, files.workers_log, processes=processes) as supervisor,
    ):
        watched = Processes(supervisor=supervisor)
        Admin(store).create_topic(TOPIC, QUEUES)
        stage.wait_for_workers(store, watched, processes)
        queries = follow(spark, files.store, archive=files.archive, checkpoints=files.checkpoints)
        _wait_until_following(watched, queries)
        shown.say(
            f"{processes} workers are ready, and {len(queries)} queries of Spark {spark.version} follow the topic"
        )
        with stage.replay_running(files.store, files.replay_log, total) as replay:
            _show_until(store, shown, watched.including(replay=replay), queries, total)
        for query in queries.values():
            query.stop()


def _wait_until_following(watched: Processes, queries: dict[str, StreamingQuery]) -> None:
    """Wait until each query has looked at the topic once: on a busy machine Spark may give up if it takes long."""
    while not all(is_following(query) for query in queries.values()):
        watched.look(None)


def _show_until(
    store: MessageStore, shown: Display, watched: Processes, queries: dict[str, StreamingQuery], goal: int
) -> None:
    """Show the progress of groups and queries, until every group and every query has reached the goal."""
    while True:
        counts = stage.counts(store)
        read = {name: rows_read(query) for name, query in queries.items()}
        counts = replace(counts, acknowledged=counts.acknowledged | read)
        shown.show(counts)
        if counts.slowest >= goal:
            return
        watched.look(counts)
        time.sleep(_LOOK_INTERVAL_S)


def conclude(console: Console, spark: SparkSession, files: PipelineFiles, total: int) -> bool:
    """Print the results and whether they are right."""
    tables = table(spark, "weather"), table(spark, "airports")
    archive = spark.read.parquet(str(files.archive)).cache()
    found = {
        "stream": collected(by_weather(spark.table(HOURLY), *tables)),
        "archive": collected(by_weather(hourly(archive), *tables)),
    }
    console.print(weather_table(found["stream"]))
    expected = computed(total)
    problems = faults(found, expected)
    rows, messages = archive.count(), archive.select("queue_id", "offset").distinct().count()
    if (rows, messages) != (total, total):
        problems.append(f"archive: {rows} rows of {messages} messages instead of {total}")
    for problem in problems:
        console.print(f"wrong: {problem}", style="bold red", soft_wrap=True)
    if not problems:
        said = (
            f"{total} of {total} flights: all {3 * len(expected)} sums by airport, hour and weather are equal, "
            "whether Spark makes them of the stream or of the archive, or pandas of the CSV files"
        )
        console.print(said, style="bold green", highlight=False, soft_wrap=True)
    console.print(f"archive: {shortest(files.archive)}, {_extent(files.archive)}", highlight=False, soft_wrap=True)
    console.print(f"chart: {shortest(draw(found['stream'], files.chart))}", highlight=False, soft_wrap=True)
    return not problems


def faults(found: dict[str, WeatherDelays], expected: WeatherDelays) -> list[str]:
    """Describe the differences of each wrong result, with an example."""
    said = []
    for source, delays in found.items():
        if which := differences(delays, expected):
            said.append(f"{source}: {len(which)} of {len(expected)} differ from those of pandas, such as {which[0]}")
    return said


def _extent(archive: Path) -> str:
    """Describe the content of a directory of Parquet files."""
    files = list(archive.rglob("*.parquet"))
    size = sum(file.stat().st_size for file in files)
    return f"{len(files)} files in {len({file.parent for file in files})} directories, {size / 2**20:.1f} MiB"


def weather_table(delays: WeatherDelays) -> Table:
    """Return flights, mean delay and cancellations by airport and weather."""
    shown = report.plain_table("Flights by airport and weather, and how many minutes late they left")
    shown.add_column("Airport", no_wrap=True)
    for weather in (DRY, WET):
        shown.add_column(weather, justify="right")
        shown.add_column("late", justify="right", style="bold", no_wrap=True)
        shown.add_column("cancelled", justify="right")
    for airport in sorted({airport for airport, _, _ in delays}):
        cells = [total(delays, airport=airport, weather=weather) for weather in (DRY, WET)]
        row = [text for cell in cells for text in (f"{cell.flights:,}", f"{cell.mean:.1f}", f"{cell.cancelled:.1%}")]
        shown.add_row(airport, *row)
    return shown


if __name__ == "__main__":
    main()
