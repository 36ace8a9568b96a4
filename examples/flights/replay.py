"""Replay: sends every flight as a message, in the order of the schedule.

``python -m examples.flights.replay [--store DIR_OR_URL] [--flights N]``
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import click

from examples.flights.app import QUEUES, TOPIC, app
from examples.flights.dataset import FLIGHTS, Flight, flights
from rmqclient import Message, Producer
from rmqclient.errors import QueueError

_PATIENCE_S = 60.0
"""Longer than a broker needs to start again."""
_PAUSE_S = 0.2


def message_for(flight: Flight) -> Message:
    """Return the message of a flight: JSON, tag ``departed`` or ``cancelled``, key such as ``UA1545``."""
    return Message(TOPIC, flight, tags="cancelled" if flight.cancelled else "departed", keys=[flight.code])


def replay(store: Path | str, flown: Iterable[Flight]) -> int:
    """Send a message for each flight, and return their number. The flights of an aircraft go to one queue, in order.

    Raises what :meth:`rmqclient.Producer.send` raises.
    """
    sent = 0
    with Producer(store, group="replay") as producer:
        producer.create_topic(TOPIC, QUEUES)
        for flight in flown:
            _send(producer, flight)
            sent += 1
    return sent


def _send(producer: Producer, flight: Flight) -> None:
    """Send a flight, and send it again while a broker of a cluster is away. The handlers know it by its name."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            producer.send(message_for(flight), sharding_key=flight.tail_number or flight.code)
        except QueueError as error:
            if not error.retryable or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


@click.command()
@click.option("--store", help="Directory or URL, instead of RMQ_STORE or the default.")
@click.option("--flights", "limit", type=click.IntRange(1, FLIGHTS), default=FLIGHTS, show_default=True)
def main(store: str | None, limit: int) -> None:
    """Send the flights of 2013 to the store."""
    begin = time.monotonic()
    sent = replay(store or app.root, flights(limit))
    seconds = time.monotonic() - begin
    click.echo(f"sent {sent:,} flights in {seconds:.1f} s, {sent / seconds:,.0f} per second")


if __name__ == "__main__":
    main()
