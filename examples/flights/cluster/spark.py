"""Spark: what a batch read of the topic finds, beside what the handlers have counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - as everybody does

from examples.flights.app import TOPIC
from examples.flights.weather.__main__ import errors_to
from examples.flights.weather.queries import flights_of
from rmqclient.spark import session


@dataclass(frozen=True, slots=True)
class Read:
    """What Spark has read."""

    version: str
    messages: int
    """At least one for each flight: a broker that dies in a send may leave two."""
    flights: int
    minutes: int
    """Of delay, over all flights."""


def read(url: str, log: Path) -> Read:
    """Read the whole topic from the brokers. What Spark says goes to ``log``. Raises SparkUnavailable."""
    with errors_to(log):
        spark = session(app_name="flights on a cluster")
    try:
        messages = flights_of(spark.read.format("rmq").option("subscribe", TOPIC).load(url)).cache()
        flights = messages.dropDuplicates(["carrier", "number", "scheduled"])
        found = flights.agg(F.count("*"), F.sum("departure_delay_minutes")).collect()[0]
        return Read(spark.version, messages.count(), found[0], found[1] or 0)
    finally:
        spark.stop()
