"""Report: the results, and their check.

``python -m examples.flights.outcome.report [--results DIR] [--flights N]``
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from examples.flights.app import GROUPS, results_directory
from examples.flights.dataset import AIRPORTS, FLIGHTS, aircraft, airlines, flights
from examples.flights.outcome.tally import Delays, Tally, computed, stored
from examples.flights.results import select

TOP_AIRCRAFT = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the results compare with a plain computation over the dataset."""

    flights: int
    once: int
    """Flights that every group has counted exactly once."""

    problems: tuple[str, ...]

    @property
    def line(self) -> str:
        """The verdict in one line."""
        return f"{self.once} of {self.flights} flights, each counted once per group"


def check(found: Tally, expected: Tally) -> Verdict:
    """Compare the results with the plain computation."""
    names = set(expected.names[GROUPS[0]])
    once, problems = set(names), []
    for group in GROUPS:
        counted = found.names[group]
        once &= {name for name, times in counted.items() if times == 1}
        problems += _miscounted(group, counted, names)
    if found.delays != expected.delays:
        problems.append("delays by airport, carrier and hour differ from those computed plainly")
    if found.air_time != expected.air_time:
        problems.append("minutes by aircraft differ from those computed plainly")
    return Verdict(len(names), len(once), tuple(problems))


def counted_by_worker(results: Path) -> dict[int, dict[str, int]]:
    """Return the number of flights that each worker process counted, by process id and group."""
    found: dict[int, dict[str, int]] = {}
    for group in GROUPS:
        for worker, count in select(results, group, f"SELECT worker, COUNT(*) FROM {group} GROUP BY worker"):
            counts = found.setdefault(worker, dict.fromkeys(GROUPS, 0))
            counts[group] += count
    return found


def redeliveries(results: Path) -> int:
    """Return the number of deliveries, over all groups, whose flight was counted already."""
    query = "SELECT TOTAL(deliveries - 1) FROM {}"
    return sum(int(again) for group in GROUPS for (again,) in select(results, group, query.format(group)))


def delay_table(tally: Tally) -> Table:
    """Return flights and mean delay by carrier and airport, the carrier with most flights first."""
    table = plain_table("Flights by carrier and airport, and how many minutes late they left")
    table.add_column("Carrier", no_wrap=True)
    for airport in AIRPORTS.values():
        table.add_column(airport, justify="right")
        table.add_column("late", justify="right", style="bold", no_wrap=True)
    table.add_column("cancelled", justify="right")
    names = airlines()
    by_carrier = tally.delays_by(lambda _origin, carrier, _hour: carrier)
    cells = tally.delays_by(lambda origin, carrier, _hour: (origin, carrier))
    for carrier, all_of_it in sorted(by_carrier.items(), key=lambda item: -item[1].flights):
        row = [cell for origin in AIRPORTS for cell in _delay_cells(cells.get((origin, carrier)))]
        table.add_row(_short(names.get(carrier, carrier)), *row, f"{all_of_it.cancelled:.1%}")
    return table


def aircraft_table(tally: Tally) -> Table:
    """Return the aircraft with the most minutes in the air."""
    table = plain_table(f"The {TOP_AIRCRAFT} aircraft longest in the air")
    for name in ("Aircraft", "Built", "Flights", "Minutes"):
        table.add_column(name, justify="right" if name in {"Flights", "Minutes"} else "left")
    built = aircraft()
    known = [(air_time, tail_number) for tail_number, air_time in tally.air_time.items() if tail_number is not None]
    for air_time, tail_number in sorted(known, key=lambda item: (-item[0].minutes, item[1]))[:TOP_AIRCRAFT]:
        table.add_row(tail_number, built.get(tail_number, ""), f"{air_time.flights:,}", f"{air_time.minutes:,}")
    return table


def plain_table(title: str) -> Table:
    """Return an empty table in the style of this report."""
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, collapse_padding=True)


@click.command()
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="Instead of FLIGHTS_RESULTS.")
@click.option("--flights", "limit", type=click.IntRange(1, FLIGHTS), default=FLIGHTS, show_default=True)
def main(results: Path | None, limit: int) -> None:
    """Show the handlers' counts, and check them. The exit code is 1 if they are wrong or incomplete."""
    console = Console()
    found = stored(results or results_directory())
    console.print(delay_table(found), aircraft_table(found))
    verdict = check(found, computed(flights(limit)))
    show(console, verdict)
    sys.exit(1 if verdict.problems else 0)


def show(console: Console, verdict: Verdict) -> None:
    """Print a verdict."""
    for problem in verdict.problems:
        console.print(f"wrong: {problem}", style="bold red")
    console.print(verdict.line, style="bold red" if verdict.problems else "bold green", highlight=False)


def _miscounted(group: str, counted: Counter[str], names: set[str]) -> list[str]:
    """Describe the flights that a group counted more or less than once, each kind with an example."""
    kinds = {
        "not counted": names - counted.keys(),
        "counted more than once": {name for name, times in counted.items() if times > 1},
        "counted but never sent": counted.keys() - names,
    }
    return [f"{group}: flights {kind}: {len(which):,}, such as {min(which)}" for kind, which in kinds.items() if which]


def _delay_cells(delays: Delays | None) -> tuple[str, str]:
    if delays is None:
        return "", ""
    return f"{delays.flights:,}", f"{delays.mean:.1f}" if delays.departed else ""


def _short(name: str) -> str:
    for ending in (" Inc.", " Co.", " Corporation", " Airlines"):
        name = name.removesuffix(ending)
    return name


if __name__ == "__main__":
    main()
