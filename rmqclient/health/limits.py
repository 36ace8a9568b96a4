"""Limits: the numbers from which something in a store is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqclient.store.observe.states import HUNG_AFTER_S


class Limits(NamedTuple):
    """When a check warns, and when it is critical. None never does."""

    group: str | None = None
    """Look at this group alone; None looks at every group."""
    lag_warn: int | None = None
    """Messages that a group has not finished: its lag, and what waits for a retry."""
    lag_crit: int | None = None
    age_warn_s: float | None = None
    """Age of the oldest message that a group has not finished."""
    age_crit_s: float | None = None
    message_age_s: float = HUNG_AFTER_S
    """A handler that has run so long hangs: critical."""
    beat_age_s: float = 30.0
    """A worker that was silent for so long: critical."""
    min_ready: int = 1
    """Workers that are ready: fewer are critical. 0 looks at no number."""
    dlq_warn: int | None = 1
    """Dead letters of a group that wait."""
    dlq_crit: int | None = None
    dlq_age_warn_s: float = 172_800.0
    """Age of the oldest dead letter: it goes with its log file, by the retention of the store."""
    disk_warn: float = 0.75
    """Part of the file system in use: from 75 % on, old files are removed at any hour."""
    disk_crit: float = 0.85
    """From 85 % on, files are removed at any age."""
    flush_warn_s: float = 10.0
    """Age of the oldest record that is not on the disk."""
    late_warn_s: float = 5.0
    """How late a delayed message is."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield the fields of each pair of which the critical number is reached before the one that warns."""
        for stem in ("lag", "age", "dlq", "disk"):
            unit = "_s" if stem == "age" else ""
            warn, crit = f"{stem}_warn{unit}", f"{stem}_crit{unit}"
            first, second = getattr(self, warn), getattr(self, crit)
            if first is not None and second is not None and second < first:
                yield warn, crit


def part_in(text: str) -> float:
    """Return a part of a whole, 0 to 1. Raises ValueError, also for what looks like per cent."""
    try:
        part = float(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: write a number from 0 to 1, such as 0.75") from error
    if not 0 <= part <= 1:
        raise ValueError(f"{text}: a part is a number from 0 to 1; 75 % is 0.75")
    return part
