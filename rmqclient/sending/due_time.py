"""Due time: when a message that is sent with ``delay`` or ``deliver_at`` is delivered, in whole ms since 1970."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

LONGEST_DELAY = timedelta(days=3_653)
"""Ten years: what is later is a mistake in a unit."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def due_ms(delay_level: int, delay: timedelta | None, deliver_at: datetime | None) -> int:
    """Return when a message is due, rounded up to the ms; 0 for at once, which a time that has passed is, too.

    Raises ValueError for a negative delay, for one of more than ten years, for a ``deliver_at`` without a time zone and
    when there is more than one of level, delay and time.
    """
    if (delay_level != 0) + (delay is not None) + (deliver_at is not None) > 1:
        raise ValueError(f"delay_level={delay_level}, delay={delay}, deliver_at={deliver_at}: give one of them")
    now_ns = time.time_ns()
    if delay is not None:
        due = -(-(now_ns + _ns(delay)) // 1_000_000) if delay else 0
    elif deliver_at is not None:
        due = -((_EPOCH - _aware(deliver_at)) // _MS)
    else:
        return 0
    if due * 1_000_000 > now_ns + _ns(LONGEST_DELAY):
        raise ValueError(f"{_given(delay, deliver_at)}: later than ten years from now ({LONGEST_DELAY.days:,} days)")
    return due if due * 1_000_000 > now_ns else 0


def _ns(delay: timedelta) -> int:
    if not isinstance(delay, timedelta):
        raise TypeError(f"delay={delay!r}: a timedelta, such as timedelta(seconds=90)")
    if delay < timedelta():
        raise ValueError(f"delay={delay}: must not be negative")
    return delay // timedelta(microseconds=1) * 1_000


def _aware(deliver_at: datetime) -> datetime:
    if not isinstance(deliver_at, datetime):
        raise TypeError(f"deliver_at={deliver_at!r}: a datetime")
    if deliver_at.utcoffset() is None:
        raise ValueError(
            f"deliver_at={deliver_at}: without a time zone nobody knows when that is; give one, such as "
            "datetime.now(UTC), or deliver_at.astimezone() for this host's"
        )
    return deliver_at


def _given(delay: timedelta | None, deliver_at: datetime | None) -> str:
    return f"delay={delay}" if delay is not None else f"deliver_at={deliver_at}"
