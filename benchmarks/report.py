"""Report: a result as JSON, as tables on a terminal, and as a section of a Markdown page."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.machine import REPOSITORY, Machine, commit, this_machine
from benchmarks.measure import Benchmark, Figure, P, Samples, Size, Target, Unit

RESULTS = REPOSITORY / "benchmarks" / "results"
PAGE = REPOSITORY / "docs" / "results" / "benchmarks.md"

_HEAD = """\
# Benchmarks

Written by `python -m benchmarks render` from `benchmarks/results/`, which `python -m benchmarks` measures. A cell is
the median of all turns, with the lowest and the highest in brackets. Each thing is measured in turns with what it is
compared with, and a ratio is taken within a turn: ratios travel to other machines, absolute figures do not.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one run of one benchmark."""

    benchmark: str
    title: str
    size: Size
    date: str
    """Time of the end, UTC."""
    commit: str
    """Commit, with a ``+`` if tracked files differed from it."""
    machine: Machine
    parameters: dict[str, Any]
    notes: list[str]
    figures: list[Figure]

    @property
    def origin(self) -> str:
        """Machine, commit and time of the run as text."""
        quick = "" if self.size is Size.FULL else f", a {self.size.value} run"
        return f"{self.machine}; commit {self.commit}, {self.date}{quick}"


def measured(benchmark: Benchmark[P], size: Size, directory: Path) -> Report:
    """Run a benchmark in ``directory``."""
    samples = Samples()
    parameters = benchmark.parameters[size]
    benchmark.run(parameters, directory, samples)
    return Report(
        benchmark=benchmark.name,
        title=benchmark.title,
        size=size,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        commit=commit(),
        machine=this_machine(directory),
        parameters=msgspec.json.decode(msgspec.json.encode(parameters)),
        notes=samples.notes,
        figures=samples.figures,
    )


def write(report: Report, results: Path) -> Path:
    """Write ``<benchmark>.json``; return its path."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{report.benchmark}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path


def read(path: Path) -> Report:
    """Read a result from :func:`write`. Raises msgspec.ValidationError for anything else."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def show(report: Report, console: Console) -> None:
    """Print the tables."""
    console.print(f"\n[bold]{report.title}[/bold]  {report.origin}")
    for header, rows in (_all_figures(report), _targets(report)):
        if rows:
            console.print(_rich_table(header, rows))
    for note in report.notes:
        console.print(note, style="dim")


def page(reports: Iterable[Report]) -> str:
    """Return the Markdown page."""
    return "\n".join([_HEAD, *map(_section, reports)])


def _section(report: Report) -> str:
    tables = [markdown_table(header, rows) for header, rows in (_all_figures(report), _targets(report)) if rows]
    notes = "\n".join(f"- {note}" for note in report.notes)
    return "\n\n".join([f"## {report.title}", f"{report.origin}.", *tables, notes]) + "\n"


def _all_figures(report: Report) -> tuple[list[str], list[list[str]]]:
    """One row for each name, one column for each case."""
    cases = list(dict.fromkeys(figure.case for figure in report.figures))
    rows: dict[str, dict[str, str]] = {}
    for figure in report.figures:
        rows.setdefault(figure.name, {})[figure.case] = _cell(figure)
    return ["", *cases], [[name, *(cells.get(case, "") for case in cases)] for name, cells in rows.items()]


def _targets(report: Report) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            _label(figure),
            shown_target(target, figure.unit),
            shown(figure.median, figure.unit),
            _verdict(figure, target),
        ]
        for figure in report.figures
        if (target := figure.target) is not None
    ]
    return ["", "target", "measured", ""], rows


def _label(figure: Figure) -> str:
    return f"{figure.name}, {figure.case}" if figure.case else figure.name


def _verdict(figure: Figure, target: Target) -> str:
    return "met" if target.is_met_by(figure.median) else "missed"


def _cell(figure: Figure) -> str:
    median = shown(figure.median, figure.unit)
    if len(figure.values) == 1:
        return median
    factor, _ = _prefix(figure.median, figure.unit)
    return f"{median} ({_three_digits(figure.low / factor)} to {_three_digits(figure.high / factor)})"


def shown_target(target: Target, unit: Unit) -> str:
    """The limit and its side: ``≥ 5.00 M/s``."""
    return f"{'≥' if target.at_least else '≤'} {shown(target.limit, unit)}"


def shown(value: float, unit: Unit) -> str:
    """Three digits, with a prefix for rates: ``1.25 M/s``."""
    factor, prefix = _prefix(value, unit)
    return f"{_three_digits(value / factor)} {prefix}{unit}"


def _prefix(value: float, unit: Unit) -> tuple[float, str]:
    if unit == "/s":
        for factor, prefix in ((1e6, "M"), (1e3, "k")):
            if value >= factor:
                return factor, prefix
    return 1.0, ""


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table whose columns but the first are numbers."""
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rich_table(header: list[str], rows: list[list[str]]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
