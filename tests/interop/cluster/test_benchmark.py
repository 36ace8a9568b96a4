"""The benchmark beside RocketMQ's own clients runs. How fast anything was does not matter here."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cluster import BENCHMARK, JAVA, OURS, SINGLE
from benchmarks.measure import Samples, Size


def test_the_smallest_run_measures_everybody(tmp_path: Path, report: list[str]) -> None:
    samples = Samples()
    BENCHMARK.run(BENCHMARK.parameters[Size.SMALLEST], tmp_path, samples)
    assert {OURS, JAVA, "ours to Java's"} <= {figure.name for figure in samples.figures}
    assert (OURS, SINGLE) in {(figure.name, figure.case) for figure in samples.figures}
    assert list(tmp_path.iterdir()) == []
    report.extend(f"benchmark of the cluster: {note}" for note in samples.notes[1:])
