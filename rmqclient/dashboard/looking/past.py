"""Past: what groups did in a range of time, from the history of the store, as charts and tables take it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqclient.metrics import Figures, Mark, Point, marks_of, points_of
from rmqclient.store.history.rings import Row

RANGES: Final = {"10m": 600, "1h": 3_600, "24h": 86_400, "7d": 604_800}
"""Seconds, by the name in the URL."""
WORDS: Final = {"10m": "10 minutes", "1h": "hour", "24h": "24 hours", "7d": "7 days"}
"""How people say it, behind ``the last``."""
_KEPT_S = 10.0
_SPARK_POINTS = 40
_BY_PEOPLE = ("scale", "pause", "resume", "seek", "replay")


class Range(NamedTuple):
    """A range of time, and what the history knows of it."""

    name: str
    since_ms: int
    until_ms: int
    points: Sequence[Point]

    def figures(self) -> dict[str, Figures]:
        """Return what each group did, by name."""
        rows: dict[str, Row] = {}
        for point in self.points:
            for group, row in point.rows.items():
                rows[group] = rows.get(group, Row()) + row
        if not self.points:
            return {}
        last = self.points[-1].rows
        began_ms = max(self.since_ms, min(point.began_ms for point in self.points))
        seconds = max(0, self.points[-1].ended_ms - began_ms) / 1000
        return {group: Figures(group, seconds, row, last.get(group, Row()).lag) for group, row in rows.items()}

    def lags(self, group: str) -> list[int]:
        """Return how the lag of a group went, in some forty numbers at most, each the most of its part."""
        lags = [point.rows[group].lag if group in point.rows else 0 for point in self.points]
        step = -(-len(lags) // _SPARK_POINTS) or 1
        return [max(lags[at : at + step]) for at in range(0, len(lags), step)]

    def paces(self) -> dict[str, float]:
        """Return how many messages a second each group has handled at its best."""
        found: dict[str, float] = {}
        for point in self.points:
            seconds = max(point.ended_ms - point.began_ms, 1) / 1000
            for group, row in point.rows.items():
                found[group] = max(found.get(group, 0.0), row.handled / seconds)
        return found

    def series(self, group: str = "") -> dict[str, list[Any]]:
        """Return the numbers of charts, the oldest first: of one group, or of all together.

        ``t`` are seconds since 1970; ``published``, ``handled`` and ``born`` are messages a second; ``waited`` and
        ``ran`` are the histograms of one group.
        """
        found: dict[str, list[Any]] = {name: [] for name in ("t", "published", "handled", "born", "lag", "oldest")}
        if group:
            found |= {"waited": [], "ran": []}
        for point in self.points:
            rows = [point.rows[group]] if group in point.rows else [] if group else list(point.rows.values())
            seconds = max(point.ended_ms - point.began_ms, 1) / 1000
            found["t"].append(point.ended_ms / 1000)
            found["published"].append(round(sum(row.published for row in rows) / seconds, 2))
            found["handled"].append(round(sum(row.handled + row.skipped for row in rows) / seconds, 2))
            found["born"].append(round(sum(row.dead_lettered for row in rows) / seconds, 3))
            found["lag"].append(sum(row.lag for row in rows))
            found["oldest"].append(max((row.oldest_s for row in rows), default=0))
            if group:
                row = rows[0] if rows else Row()
                found["waited"].append(row.waited)
                found["ran"].append(row.ran)
        return found


class Past:
    """Reads the history of one store, each range once in ten seconds, which is how often it grows. Safe for threads."""

    def __init__(self, root: Callable[[], Path]) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._read: dict[str, tuple[float, Range]] = {}

    def of(self, name: str) -> Range:
        """Return the range with this name of :data:`RANGES`. Raises StoreUnusable where no store is."""
        with self._lock:
            at, known = self._read.get(name, (0.0, None))
            if known is None or time.monotonic() - at > _KEPT_S:
                until_ms = time.time_ns() // 1_000_000
                since_ms = until_ms - RANGES[name] * 1000
                known = Range(name, since_ms, until_ms, points_of(self._root(), since_ms, until_ms))
                self._read[name] = time.monotonic(), known
            return known

    def marks(self, since_ms: int, group: str = "") -> list[Mark]:
        """Return what was done since a time, the oldest first; with a group, what was done to it or to the store."""
        return [mark for mark in marks_of(self._root(), since_ms) if not group or _concerns(mark, group)]


def told(marks: Iterable[Mark]) -> list[dict[str, Any]]:
    """Return marks as a chart shows them."""
    return [{"t": each.at_ms / 1000, "text": words_of(each)} for each in marks]


def words_of(mark: Mark) -> str:
    """Return what was done, by whom and why, such as ``pause mail by ada: SMTP is down``."""
    by = f" by {mark.author}" if mark.author and mark.kind in _BY_PEOPLE else ""
    return f"{mark.kind} {mark.subject}{by}" + (f": {mark.words}" if mark.words else "")


def _concerns(mark: Mark, group: str) -> bool:
    return mark.subject == group or mark.kind in ("opened", "start", "stop", "scale", "worker", "retention")
