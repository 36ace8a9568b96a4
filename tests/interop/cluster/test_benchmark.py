"""The benchmarks beside RocketMQ's own clients and brokers run. How fast anything was does not matter here."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cluster import BENCHMARK, JAVA, OURS, SINGLE
from benchmarks.measure import Samples, Size
from benchmarks.serving import brokers
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
