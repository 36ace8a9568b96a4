"""Standing: when a schedule sends next, and what became of its last planned time, as the log tells."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from rmqclient.backend import Backend
from rmqclient.message import ReceivedMessage
from rmqclient.schedules.cron import Cron
from rmqclient.store.log.query import END_OF_TIME


class Standing(NamedTuple):
    """How a schedule stands."""

    cron: Cron
    next: datetime.datetime | None
    """The next planned time; None if there is none any more."""
    last: datetime.datetime | None
    """The last planned time; None if there was none for years."""
    message: ReceivedMessage | None
    """The message of that time. None if its function made none, if no process ran then, or if retention removed it."""


def standing_of(backend: Backend, cron: Cron, now: datetime.datetime) -> Standing:
    """Return how a schedule stands. Raises what a search by key raises."""
    last = cron.last_tick(now)
    found: list[ReceivedMessage] = []
    if last is not None and cron.topic in backend.topics.names():
        found = backend.messages.by_key(cron.topic, cron.key(last), 0, END_OF_TIME, 1)
    return Standing(cron, cron.next_tick(now), last, found[0] if found else None)
