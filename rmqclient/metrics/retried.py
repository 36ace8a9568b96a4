"""Retried: the attempts that another one follows, as a counter that falls only with the store's own.

They are the failed attempts without the dead letters. A dead letter has failed before it is counted as one, so a look
between the two finds one too many.
"""

from __future__ import annotations

from rmqclient.metrics.totals import GroupTotals


class Retried:
    """Remembers what was shown of each group and topic. For one thread."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], tuple[int, int]] = {}

    def shown(self, group: str, topic: str, totals: GroupTotals) -> int:
        """Return what to show now: no less than before, unless the store has begun to count anew."""
        failed_before, shown_before = self._shown.get((group, topic), (0, 0))
        retried = max(0, totals.failed - totals.dead_lettered)
        if totals.failed >= failed_before:
            retried = max(retried, shown_before)
        self._shown[group, topic] = totals.failed, retried
        return retried
