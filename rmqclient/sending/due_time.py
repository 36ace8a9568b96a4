"""Due time: the time at which a message sent with ``delay`` or ``deliver_at`` is delivered, in whole ms since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rmqclient.duration import LONGEST_DELAY, Duration, in_seconds
from rmqclient.store import DELAYS, clock
from rmqclient.store.numbers import whole

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def wait_of(delay_level: int | None, delay: Duration | None, deliver_at: datetime | None) -> tuple[int, int]:
    """Return the delay level, 0 for none, and when a message is due as :func:`due_ms` does, and raises."""
    return _level(delay_level), due_ms(delay_level, delay, deliver_at)


def _level(delay_level: int | None) -> int:
    """Return the delay level of a message, 0 for None. Raises TypeError, and ValueError for all but 1 to 18."""
    if delay_level is None:
        return 0
    try:
        return whole("delay_level", delay_level, 1, len(DELAYS))
    except ValueError as error:
        table = ", ".join(f"{level} {delay}" for level, delay in enumerate(DELAYS, 1))
        raise ValueError(f"{error}, which are {table}; None is no delay") from None


def due_ms(delay_level: int | None, delay: Duration | None, deliver_at: datetime | None) -> int:
    """Return when a message is due, rounded up to the ms; 0 means now, and so does a time in the past.

    Raises TypeError for another type, and ValueError for a delay that is negative or above ten years, for a
    ``deliver_at`` without a time zone, and for more than one of level, delay and time.
    """
    if (delay_level is not None) + (delay is not None) + (deliver_at is not None) > 1:
        raise ValueError(f"delay_level={delay_level}, delay={delay}, deliver_at={deliver_at}: give one of them")
    now_ns = clock.wall_ns()
    if delay is not None:
        wait_ns = _ns(delay)
        due = -(-(now_ns + wait_ns) // 1_000_000) if wait_ns else 0
    elif deliver_at is not None:
        due = -((_EPOCH - _aware(deliver_at)) // _MS)
    else:
        return 0
    if due * 1_000_000 > now_ns + _ns(LONGEST_DELAY):
        raise ValueError(f"{_given(delay, deliver_at)}: later than ten years from now ({LONGEST_DELAY.days:,} days)")
    return due if due * 1_000_000 > now_ns else 0


def _ns(delay: Duration) -> int:
    seconds = in_seconds("delay", delay)
    if isinstance(delay, timedelta):
        return delay // timedelta(microseconds=1) * 1_000  # exact, unlike a float of ten years
    return round(min(seconds, 2 * LONGEST_DELAY.total_seconds()) * 1e9)


def _aware(deliver_at: datetime) -> datetime:
    if not isinstance(deliver_at, datetime):
        raise TypeError(f"deliver_at={deliver_at!r}: a datetime")
    if deliver_at.utcoffset() is None:
        raise ValueError(
            f"deliver_at={deliver_at}: it lacks a time zone; give one, such as "
            "datetime.now(UTC), or deliver_at.astimezone() for this host's"
        )
    return deliver_at


def _given(delay: Duration | None, deliver_at: datetime | None) -> str:
    return f"delay={delay}" if delay is not None else f"deliver_at={deliver_at}"
