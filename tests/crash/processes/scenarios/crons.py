"""A child that sends the messages of a schedule, while time passes quickly."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from rmqclient import App, Producer
from rmqclient.opening import open_backend
from rmqclient.schedules.cron_sender import CronSender
from rmqclient.store import MessageStore, open_store
from tests.crash.processes.order import Note, Order
from tests.support.stores import TOPIC, body_of

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
A_MINUTE = datetime.timedelta(minutes=1)
MINUTES = 6
"""For which a schedule is looked at."""


def tick(order: Order, note: Note) -> None:
    """Send the messages of a schedule, one a minute, as time passes quickly; note each minute."""
    look_at = minutes_of(open_store(order.root, housekeeping=False))
    order.arm()
    for minute in range(MINUTES):
        look_at(minute)
        note(minute)


def minutes_of(store: MessageStore) -> Callable[[int], float]:
    """Return what looks at a schedule as it is at the so many-th minute."""
    app, clock = App(), [NOON]
    app.schedule("* * * * *", topic=TOPIC, name="minute", misfire_grace=MINUTES * A_MINUTE, coalesce=False)(
        body_of_tick
    )
    sender = CronSender(open_backend(store), Producer(store), app.crons[0], lambda: clock[0])

    def look_at(minute: int) -> float:
        clock[0] = NOON + minute * A_MINUTE
        return sender.look()

    return look_at


def body_of_tick(tick: datetime.datetime) -> bytes:
    """Return what the message of a minute holds."""
    return body_of((tick - NOON) // A_MINUTE)
