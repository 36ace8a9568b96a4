"""The application: two groups, each of which gets every flight.

==========  ====================================================
delays      departure delays by airport and carrier
minutes     minutes in the air by aircraft
==========  ====================================================

``rmq run examples.flights.app:app --processes 2`` runs it. The store is the directory in ``RMQ_STORE``, or
``demo-output/store``; ``--store`` names another one, or the URL of a cluster. The results go to the directory in
``FLIGHTS_RESULTS``, or to ``results`` beside the store.

The two handlers share nothing, so each has a thread of its own in every worker process. One thread each is enough:
while SQLite writes for one, Python runs for the other.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import msgspec

from examples.flights.dataset import Flight
from examples.flights.results import Results
from rmqclient import App, ReceivedMessage
from rmqclient.store import java_hash

TOPIC = "flights"
QUEUES = 4
GROUPS = ("delays", "minutes")
DEFAULT_STORE = "demo-output/store"

app = App(os.environ.get("RMQ_STORE", DEFAULT_STORE))

_decode = msgspec.json.Decoder(Flight).decode


@app.handler(TOPIC, group="delays", threads=1)
def count_delay(message: ReceivedMessage) -> None:
    """Count how late the flight left."""
    flight = _decode(message.body)
    results("delays").count(
        home(message),
        flight.name,
        flight.origin,
        flight.carrier,
        flight.hour,
        flight.departure_delay_minutes,
    )


@app.handler(TOPIC, group="minutes", threads=1)
def count_minutes(message: ReceivedMessage) -> None:
    """Count the minutes that the aircraft was in the air."""
    flight = _decode(message.body)
    results("minutes").count(home(message), flight.name, flight.tail_number, flight.air_minutes)


def home(message: ReceivedMessage) -> int:
    """Return the number of a message's database, which its sharding key chooses as it chooses the queue.

    However the message comes again, from a retry topic or as a second copy in another queue, it has the same number.
    """
    return abs(java_hash(message.sharding_key or "")) % QUEUES


def results_directory() -> Path:
    """Return the directory of the results."""
    directory = os.environ.get("FLIGHTS_RESULTS")
    return Path(directory) if directory else Path(app.root).parent / "results"


@cache
def results(group: str) -> Results:
    """Return the databases of the handler of a group, the same for all calls in this process."""
    return Results(results_directory(), group)
