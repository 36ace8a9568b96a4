"""Queries: Spark over the flights in the store.

Two of them follow the topic. Neither is a member of a group, neither asks anybody: they read the files of the store.

=======  ===========================================================================================================
archive  writes every flight to Parquet, in a directory for each airport and month
hourly   adds up departures and delays by airport and hour, in event time: the hour in which a flight was to leave, not
         in which it was read. A year has few hours, so all are kept, and no flight ever comes too late
=======  ===========================================================================================================
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody does
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.app import TOPIC
from examples.flights.dataset import data_directory
from examples.flights.stage import DemoFailed
from examples.flights.weather.delays import DRY, UNKNOWN, WET

FLIGHT = """
    carrier string, number int, tail_number string, origin string, destination string, scheduled timestamp,
    departure_time int, departure_delay_minutes int, air_minutes int, distance_miles int
"""
"""The fields that are read from the JSON of a body. A timestamp is a moment; the hour in New York follows from it."""

TIME_ZONE = "America/New_York"
HOURLY = "hourly"
"""Name of the query, and of the table in memory that it keeps."""

_TRIGGER = {"processingTime": "1 second"}
_LARGEST_BATCH = 60_000


def flights_of(messages: DataFrame) -> DataFrame:
    """Return a row for each message: its queue and offset, and the flight in its body."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")
    return messages.select(F.col("partition").alias("queue_id"), "offset", flight).select(
        "queue_id", "offset", "flight.*"
    )


def hourly(flights: DataFrame) -> DataFrame:
    """Return flights, departures and minutes of delay by airport and hour of the scheduled departure."""
    hours = flights.groupBy("origin", F.window("scheduled", "1 hour")).agg(
        F.count("*").alias("flights"),
        F.count("departure_delay_minutes").alias("departed"),
        F.coalesce(F.sum("departure_delay_minutes"), F.lit(0)).alias("minutes"),
    )
    return hours.withColumn("time_hour", F.col("window.start")).drop("window")


def by_weather(hours: DataFrame, weather: DataFrame, airports: DataFrame) -> DataFrame:
    """Return flights, departures and minutes of delay by name of the airport, hour of the day and weather."""
    precipitation = F.col("precip")
    under = F.when(precipitation > 0, WET).when(precipitation == 0, DRY).otherwise(UNKNOWN)
    joined = hours.join(F.broadcast(weather), ["origin", "time_hour"], "left").join(
        F.broadcast(airports), F.col("origin") == F.col("faa")
    )
    return joined.groupBy(
        F.col("name").alias("airport"),
        F.hour(F.from_utc_timestamp("time_hour", TIME_ZONE)).alias("hour"),
        under.alias("weather"),
    ).agg(*(F.sum(name).alias(name) for name in ("flights", "departed", "minutes")))


def table(spark: SparkSession, name: str) -> DataFrame:
    """Return a table of the dataset."""
    path = str(data_directory() / f"{name}.csv")
    return spark.read.csv(path, header=True, inferSchema=True, nullValue="NA")


def follow(spark: SparkSession, store: Path, *, archive: Path, checkpoints: Path) -> dict[str, StreamingQuery]:
    """Start both queries at the first message of the topic. Returns the running queries by name."""
    messages = (
        spark.readStream.format("rmq")
        .schema("partition int, offset long, value binary")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _LARGEST_BATCH)
        .load(str(store))
    )
    flights = flights_of(messages)
    archiving = (
        flights.withColumn("month", F.date_format(F.from_utc_timestamp("scheduled", TIME_ZONE), "yyyy-MM"))
        .repartition("origin", "month")  # so that a batch adds one file to each directory
        .writeStream.queryName("archive")
        .format("parquet")
        .partitionBy("origin", "month")
        .option("checkpointLocation", str(checkpoints / "archive"))
        .trigger(**_TRIGGER)
        .start(str(archive))
    )
    adding = hourly(flights).writeStream.queryName(HOURLY).format("memory").outputMode("complete")
    return {"archive": archiving, HOURLY: adding.trigger(**_TRIGGER).start()}


def is_following(query: StreamingQuery) -> bool:
    """Return whether a query has looked at the topic once. Raises DemoFailed if the query has failed."""
    if (error := query.exception()) is not None:
        raise DemoFailed(f"the query {query.name} ended: {error}")
    return query.lastProgress is not None


def rows_read(query: StreamingQuery) -> int:
    """Return the number of messages that a query has finished. Raises DemoFailed if the query has failed."""
    progress = query.lastProgress if is_following(query) else None
    end = progress.sources[0].endOffset if progress else None
    offsets = json.loads(end) if end else {}
    return sum(sum(queues.values()) for topic, queues in offsets.items() if topic != "@store")  # which store it is
