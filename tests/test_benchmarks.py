"""Each benchmark runs, and what it measured can be read back and rendered. How fast it was does not matter here."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="one of the benchmarks is of Spark, which comes with make install-all")

from benchmarks import compare, report
from benchmarks.__main__ import BENCHMARKS, render
from benchmarks.measure import Size
from rmqclient.errors import SparkUnavailable
from rmqclient.spark.java import java_home

ELSEWHERE = {"cluster", "serve", "serve-go", "serve-peers"}
"""They need RocketMQ, Go, Redis or NATS: tests/interop/cluster has their smallest runs."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.spark if name == "spark" else pytest.mark.sweep)
        for name in BENCHMARKS
        if name not in ELSEWHERE
    ],
)
def test_the_smallest_run_of_a_benchmark_is_written_read_and_rendered(name: str, tmp_path: Path) -> None:
    if name == "spark":
        skip_without_java()

    # Given the result of a benchmark
    working, results, page = tmp_path / "working", tmp_path / "results", tmp_path / "benchmarks.md"
    working.mkdir()
    measured = report.measured(BENCHMARKS[name], Size.SMALLEST, working)

    # When it is written and rendered
    path = report.write(measured, results)
    render(results, page)

    # Then nothing is lost on the way, every figure is on the page, and nothing is left in the directory
    assert report.read(path) == measured
    assert measured.figures
    assert all(figure.name in page.read_text(encoding="utf-8") for figure in measured.figures)
    assert list(working.iterdir()) == []


def test_a_checkout_without_an_environment_cannot_be_compared_with(tmp_path: Path) -> None:
    result = CliRunner().invoke(compare.main, [str(tmp_path), "consume", "--turns", "1"])
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path} has no environment: run `make install` there\n"


def skip_without_java() -> None:
    try:
        java_home()
    except SparkUnavailable as error:
        pytest.skip(str(error))
