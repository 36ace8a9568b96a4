"""The command ``python -m benchmarks``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import cluster, report, spark, targets
from benchmarks.consuming import consume, key_order, latency, rebalance, request, steps, table, tag_filter
from benchmarks.growing import growth
from benchmarks.measure import Benchmark, Size, working_directory
from benchmarks.sending import append, compression, once, replication, sync
from benchmarks.serving import brokers, connections, go_program, peers, reads, wakeups
from benchmarks.starting import dashboard, kit, scale, scrape, start, top

BENCHMARKS: dict[str, Benchmark[Any]] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (
        append,
        consume,
        compression,
        key_order,
        latency,
        request,
        sync,
        replication,
        once,
        scale,
        growth,
        start,
        scrape,
        top,
        dashboard,
        kit,
        rebalance,
        steps,
        tag_filter,
        table,
        reads,
        wakeups,
        connections,
        spark,
        cluster,
        brokers,
        go_program,
        peers,
    )
}
RENDER = "render"

_DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*BENCHMARKS, RENDER]), metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Some seconds each; the results go into a directory of their own.")
@click.option("--directory", type=_DIRECTORY, help="Work in it.  [default: a temporary one, on a disk]")
@click.option("--results", type=_DIRECTORY, default=report.RESULTS, help="Where results are.  [default: with the code]")
@click.option("--page", type=click.Path(path_type=Path), default=report.PAGE, help="What `render` writes.")
def main(names: tuple[str, ...], *, quick: bool, directory: Path | None, results: Path, page: Path) -> None:
    """Run the named benchmarks; without a name, all.

    The name "render" writes docs/results/benchmarks.md and targets.md from the results of the last full runs.
    """
    console = Console()
    if quick:
        results /= "quick"
    wanted = [name for name in names if name != RENDER] or ([] if names else list(BENCHMARKS))
    with working_directory(directory) as path:
        for name in wanted:
            measured = report.measured(BENCHMARKS[name], Size.QUICK if quick else Size.FULL, Path(path))
            report.write(measured, results)
            report.show(measured, console)
    if RENDER in names:
        render(results, page)


def render(results: Path, page: Path) -> None:
    """Write the page from the existing results, in the order of the benchmarks, and that of the targets beside it."""
    paths = [path for name in BENCHMARKS if (path := results / f"{name}.json").exists()]
    reports = {(each := report.read(path)).benchmark: each for path in paths}
    page.write_text(report.page(reports.values()), encoding="utf-8")
    page.with_name(targets.PAGE).write_text(targets.page(reports), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
