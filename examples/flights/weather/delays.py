"""Delays by airport, hour of the day and weather: found by the pipeline, and computed with pandas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from examples.flights.dataset import data_directory
from examples.flights.outcome.tally import Delays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DRY, WET, UNKNOWN = "dry", "rain or snow", "not known"
"""The weather of an hour at an airport, by its precipitation; not known if the file lacks the hour."""

WeatherDelays: TypeAlias = dict[tuple[str, int, str], Delays]
"""Name of the airport, hour of the scheduled departure in New York (0 to 23), and weather."""


def collected(found: DataFrame) -> WeatherDelays:
    """Return the rows of a table: ``airport, hour, weather, flights, departed, minutes``."""
    return {
        (row.airport, row.hour, row.weather): Delays(row.flights, row.departed, row.minutes) for row in found.collect()
    }


def computed(limit: int | None = None) -> WeatherDelays:
    """Compute the delays of the first ``limit`` flights, or of all, from the CSV files alone.

    The hour is the column ``hour`` of the file. The pipeline never reads it, but computes the hour from the time in
    UTC.
    """
    files = data_directory()
    flights = pd.read_csv(files / "flights.csv.zip", usecols=["origin", "hour", "time_hour", "dep_delay"], nrows=limit)
    weather = pd.read_csv(files / "weather.csv", usecols=["origin", "time_hour", "precip"])
    airports = pd.read_csv(files / "airports.csv", usecols=["faa", "name"])
    joined = flights.merge(weather, how="left", on=["origin", "time_hour"])
    joined = joined.merge(airports, left_on="origin", right_on="faa")
    joined["weather"] = joined["precip"].map(_weather)
    cells = joined.groupby(["name", "hour", "weather"])["dep_delay"].agg(["size", "count", "sum"])
    return {
        (airport, int(hour), weather): Delays(int(flights), int(departed), int(minutes))
        for (airport, hour, weather), (flights, departed, minutes) in zip(
            cells.index, cells.itertuples(index=False), strict=True
        )
    }


def differences(found: WeatherDelays, expected: WeatherDelays) -> list[str]:
    """Describe the cells in which the two differ, in order."""
    return [
        f"{', '.join(map(str, cell))}: {found.get(cell)} instead of {expected.get(cell)}"
        for cell in sorted(found.keys() | expected.keys())
        if found.get(cell) != expected.get(cell)
    ]


def total(delays: WeatherDelays, *, airport: str | None = None, weather: str | None = None) -> Delays:
    """Return the delays added up over all hours, and over all airports or weathers unless one is named."""
    added = Delays()
    for (at, _, under), cell in delays.items():
        if airport in {None, at} and weather in {None, under}:
            added.add(cell.flights, cell.departed, cell.minutes)
    return added


def _weather(precipitation: float) -> str:
    if math.isnan(precipitation):
        return UNKNOWN
    return WET if precipitation > 0 else DRY
