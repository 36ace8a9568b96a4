"""Duration: how long something takes or waits, as a ``timedelta`` or a number of seconds.

Every argument of the API that is a duration takes both. Only settings, such as those of
:class:`rmqclient.ConsumerConfig`, count milliseconds, and have ``_ms`` in their names.
"""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Duration: TypeAlias = timedelta | float
"""A ``timedelta``, or seconds as an ``int`` or a ``float``."""

_LEAST_YEAR, _LAST_YEAR = 2, 9998
"""Years that lie inside of the calendar in every zone."""

LONGEST_DELAY = timedelta(days=3_653)
"""Ten years: a longer delay of a message is a mistake in its unit."""


_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def duration_in(text: str) -> float:
    """Return what a person wrote in seconds: ``30``, ``500ms``, ``10s``, ``5m``, ``2h``, ``3d``. Raises ValueError."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write 30s, 500ms, 5m, 2h or 3d")
    return float(match[1]) * _UNITS[match[2]]


def moment_in(text: str) -> int:
    """Return the time that a person wrote, in ms since 1970: ``2h`` and ``2h ago`` are two hours ago.

    ``14:05`` is when the clock of this host last showed that. Other text is ISO 8601, of this host's zone if it names
    none. Raises ValueError, also for a time outside the calendar, and for a number without a unit: it may be meant as
    an offset, a number of messages, or seconds since 1970.
    """
    try:
        age = text.removesuffix("ago").rstrip()
        if _TEXT.fullmatch(age) and not age[-1].isdigit():
            at_s = time.time() - duration_in(age)
        else:
            at_s = (_last(text) if _CLOCK.fullmatch(text) else datetime.fromisoformat(text)).timestamp()
        if not _LEAST_YEAR <= datetime.fromtimestamp(at_s, UTC).year <= _LAST_YEAR:
            raise ValueError("no zone has this time")
        return round(at_s * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{text!r} is not a time: write 2h or 90s for so long ago, 14:05, or 2026-01-31T12:00"
        ) from error


def _last(text: str) -> datetime:
    """Return when the clock of this host last showed a time of day."""
    shown = datetime.strptime(text, "%H:%M:%S" if text.count(":") > 1 else "%H:%M").time()  # noqa: DTZ007 - local
    now = datetime.fromtimestamp(time.time())  # noqa: DTZ006 - the clock on the wall
    at = datetime.combine(now, shown)
    return at if at <= now else at - timedelta(days=1)


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
