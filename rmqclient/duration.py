"""Duration: how long something takes or waits, as a ``timedelta`` or a number of seconds.

Every argument of the API that is a duration takes both. Only settings, such as those of
:class:`rmqclient.ConsumerConfig`, count milliseconds, and have ``_ms`` in their names.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = timedelta | float
"""A ``timedelta``, or seconds as an ``int`` or a ``float``."""

LONGEST_DELAY = timedelta(days=3_653)
"""Ten years: a longer delay of a message is a mistake in its unit."""


def to_seconds(name: str, duration: object) -> float:
    """Return a duration in seconds; ``name`` is the argument that an error names. Raises TypeError for another type."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        return float(duration)
    raise TypeError(f"{name}={duration!r}: give a timedelta, or a number of seconds")


def in_seconds(name: str, duration: object, *, least: float = 0.0, most: float = math.inf) -> float:
    """Return a duration within limits in seconds.

    Raises TypeError for another type, and ValueError for a duration below ``least``, above ``most`` or not a number.
    """
    seconds = to_seconds(name, duration)
    if not least <= seconds <= most:
        limit = f"at least {least:g} s" if most == math.inf else f"from {least:g} s to {most:,.15g} s"
        raise ValueError(f"{name}={duration!r}: must be {limit}")
    return seconds
