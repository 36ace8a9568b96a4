"""Compare: the benchmarks of this checkout and another one, in turns.

::

    python -m benchmarks.compare ../before append consume latency --turns 9

The other checkout needs an environment of its own (``make install`` there). Each turn runs every benchmark once in both
checkouts, and the checkout that goes first changes with each turn. A ratio is taken within a turn, this checkout to the
other one, so that a disturbance of the machine affects both. Figures of a peer, which our changes cannot move, show how
much the machine itself varies.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.__main__ import BENCHMARKS
from benchmarks.machine import REPOSITORY
from benchmarks.measure import Figure

Key = tuple[str, str, str]
"""Benchmark, figure, case."""

_CHECKOUT = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("other", type=_CHECKOUT)
@click.argument("names", nargs=-1, type=click.Choice([*BENCHMARKS]), metavar="[NAME]...", required=True)
@click.option("--turns", type=click.IntRange(1), default=5, show_default=True, help="How often each is run in both.")
@click.option("--figure", "wanted", default="", help="Show only figures whose name contains this text.")
def main(other: Path, names: tuple[str, ...], *, turns: int, wanted: str) -> None:
    """Run the benchmarks NAME in this checkout and in OTHER, in turns, and show the ratios."""
    ratios: dict[Key, list[float]] = {}
    for checkout in (REPOSITORY, other):
        _python(checkout)
    for turn in range(turns):
        mine, theirs = _one_turn((REPOSITORY, other.resolve()), names, reverse=bool(turn % 2))
        for key in mine.keys() & theirs.keys():
            if mine[key].unit != "x" and theirs[key].median and wanted in key[1]:
                ratios.setdefault(key, []).append(mine[key].median / theirs[key].median)
    Console().print(_table(ratios))


def _one_turn(checkouts: tuple[Path, Path], names: Sequence[str], *, reverse: bool) -> list[dict[Key, Figure]]:
    """Run the benchmarks once in both checkouts; return the figures of each, in the order of ``checkouts``."""
    order = [1, 0] if reverse else [0, 1]
    found: dict[int, dict[Key, Figure]] = {0: {}, 1: {}}
    for name in names:
        for which in order:
            found[which] |= _figures(checkouts[which], name)
    return [found[0], found[1]]


def _figures(checkout: Path, name: str) -> dict[Key, Figure]:
    """Run the quick form of one benchmark in the environment of a checkout."""
    with tempfile.TemporaryDirectory(prefix="rmq-compare-") as results:
        command = [str(_python(checkout)), "-m", "benchmarks", name, "--quick", "--results", results]
        subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
        figures = report.read(Path(results) / "quick" / f"{name}.json").figures
    return {(name, figure.name, figure.case): figure for figure in figures}


def _python(checkout: Path) -> Path:
    """Return the interpreter of a checkout. Raises ClickException if it has no environment."""
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        raise click.ClickException(f"{checkout} has no environment: run `make install` there")
    return python


def _table(ratios: dict[Key, list[float]]) -> Table:
    table = Table("benchmark", "figure", "case", "this to other, median", "lowest", "highest", "turns")
    for (name, figure, case), values in sorted(ratios.items()):
        numbers = (statistics.median(values), min(values), max(values))
        table.add_row(name, figure, case, *(f"{number:.3f}" for number in numbers), str(len(values)))
    return table


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.compare")
