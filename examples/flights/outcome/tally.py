"""Tally: delays and minutes in the air, read from the results of the handlers or computed plainly from the dataset."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from examples.flights.app import GROUPS
from examples.flights.dataset import Flight
from examples.flights.results import select

Key = TypeVar("Key", bound=Hashable)

_DELAYS = """
SELECT origin, carrier, hour, COUNT(*), COUNT(delay_minutes), TOTAL(delay_minutes)
FROM delays GROUP BY origin, carrier, hour
"""
_AIR_TIME = "SELECT tail_number, COUNT(*), TOTAL(air_minutes) FROM minutes GROUP BY tail_number"


@dataclass(slots=True)
class Delays:
    """How late some flights left."""

    flights: int = 0
    departed: int = 0
    minutes: int = 0

    @property
    def mean(self) -> float:
        """Minutes, over the flights that departed; NaN if no flight did."""
        return self.minutes / self.departed if self.departed else float("nan")

    @property
    def cancelled(self) -> float:
        """Share of the flights that never left, 0 to 1; 0 without flights."""
        return 1 - self.departed / self.flights if self.flights else 0.0

    def add(self, flights: int, departed: int, minutes: int) -> None:
        """Add more flights."""
        self.flights += flights
        self.departed += departed
        self.minutes += minutes


@dataclass(slots=True)
class AirTime:
    """How long an aircraft flew."""

    flights: int = 0
    minutes: int = 0

    def add(self, flights: int, minutes: int) -> None:
        """Add more flights."""
        self.flights += flights
        self.minutes += minutes


@dataclass(slots=True)
class Tally:
    """All counts. Two tallies of the same flights are equal."""

    delays: defaultdict[tuple[str, str, int], Delays] = field(default_factory=lambda: defaultdict(Delays))
    """Delays by airport, carrier and hour of the scheduled departure."""

    air_time: defaultdict[str | None, AirTime] = field(default_factory=lambda: defaultdict(AirTime))
    """Time in the air by tail number; None for flights without one."""

    names: dict[str, Counter[str]] = field(default_factory=lambda: {group: Counter() for group in GROUPS})
    """How often each flight was counted, by group."""

    def delays_by(self, key: Callable[[str, str, int], Key]) -> dict[Key, Delays]:
        """Return the delays added up by ``key``, a function of airport, carrier and hour."""
        found: defaultdict[Key, Delays] = defaultdict(Delays)
        for (origin, carrier, hour), delays in self.delays.items():
            found[key(origin, carrier, hour)].add(delays.flights, delays.departed, delays.minutes)
        return dict(found)


def computed(flown: Iterable[Flight]) -> Tally:
    """Count the flights directly, without any message."""
    tally = Tally()
    names: Counter[str] = Counter()
    for flight in flown:
        names[flight.name] += 1
        delays = tally.delays[flight.origin, flight.carrier, flight.hour]
        delays.add(1, int(flight.departure_delay_minutes is not None), flight.departure_delay_minutes or 0)
        tally.air_time[flight.tail_number].add(1, flight.air_minutes or 0)
    tally.names = {group: names.copy() for group in GROUPS}
    return tally


def stored(directory: Path) -> Tally:
    """Return the handlers' counts. Raises sqlite3.Error."""
    tally = Tally()
    for origin, carrier, hour, flights, departed, minutes in select(directory, "delays", _DELAYS):
        tally.delays[origin, carrier, hour].add(flights, departed, int(minutes))
    for tail_number, flights, minutes in select(directory, "minutes", _AIR_TIME):
        tally.air_time[tail_number].add(flights, int(minutes))
    for group in GROUPS:
        tally.names[group].update(name for (name,) in select(directory, group, f"SELECT name FROM {group}"))
    return tally
