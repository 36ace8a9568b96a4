"""The benchmarks beside RocketMQ's own clients and brokers run. How fast anything was does not matter here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster import BENCHMARK, JAVA, OURS, SINGLE
from benchmarks.measure import Benchmark, Samples, Size
from benchmarks.serving import brokers, go_program, peers
from benchmarks.serving.servers import SERVE


def test_the_smallest_run_measures_everybody(tmp_path: Path, report: list[str]) -> None:
    samples = Samples()
    BENCHMARK.run(BENCHMARK.parameters[Size.SMALLEST], tmp_path, samples)
    assert {OURS, JAVA, "ours to Java's"} <= {figure.name for figure in samples.figures}
    assert (OURS, SINGLE) in {(figure.name, figure.case) for figure in samples.figures}
    assert list(tmp_path.iterdir()) == []
    report.extend(f"benchmark of the cluster: {note}" for note in samples.notes[1:])


def test_the_smallest_run_measures_the_server(tmp_path: Path) -> None:
    samples = Samples()
    brokers.BENCHMARK.run(brokers.BENCHMARK.parameters[Size.SMALLEST], tmp_path, samples)
    found = {(figure.name, figure.case) for figure in samples.figures}
    assert {(SERVE, case) for case in (brokers.START, brokers.SINGLE, brokers.CONSUMED, brokers.P99)} <= found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("benchmark", [go_program.BENCHMARK, peers.BENCHMARK], ids=lambda each: str(each.name))
def test_the_smallest_run_measures_the_server_by_other_clients(benchmark: Benchmark[Any], tmp_path: Path) -> None:
    samples = Samples()
    benchmark.run(benchmark.parameters[Size.SMALLEST], tmp_path, samples)
    missing = any(note.startswith("Not measured") for note in samples.notes)
    assert missing or SERVE in {figure.name for figure in samples.figures}
    assert list(tmp_path.iterdir()) == []
