"""Past: what groups did in a range of time, from the history of the store, as charts and tables take it."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable
from operator import add, truediv
from pathlib import Path
from typing import Any, Final

from rmqclient.metrics import Figures, Mark, Point, marks_of
from rmqclient.store.history.figures import each_point
from rmqclient.store.history.rings import CLASSES, COUNTS, Row, codes_of, histograms_of

RANGES: Final = {"10m": 600, "1h": 3_600, "24h": 86_400, "7d": 604_800}
"""Seconds, by the name in the URL."""
WORDS: Final = {"10m": "10 minutes", "1h": "hour", "24h": "24 hours", "7d": "7 days"}
"""How people say it, behind ``the last``."""
_KEPT_S = 10.0
_SPARK_POINTS = 40
_NONE = Row().waited
"""A histogram that counts nothing."""
_BY_PEOPLE = ("scale", "pause", "resume", "seek", "replay")


class Course:
    """What one group did: its numbers in columns, one number for each part of a range in which the group has a row."""

    __slots__ = ("_classes", "_columns", "_parts", "_total")

    def __init__(self) -> None:
        self._parts = array("I")
        self._columns = {name: array("Q") for name in COUNTS}
        self._classes: dict[int, bytes] = {}
        """The histograms of the parts in which they count anything."""
        self._total = list(_NONE + _NONE)

    def add(self, part: int, row: Row) -> None:
        """Add what it did in a part, which comes after those that were added."""
        self._parts.append(part)
        counts: Iterable[Any] = row[: len(COUNTS)]
        for column, number in zip(self._columns.values(), counts, strict=True):
            column.append(number)
        if row.waited != _NONE or row.ran != _NONE:
            self._classes[part] = codes_of(row)
            self._total = list(map(add, self._total, row.waited + row.ran))

    def spread(self, name: str, parts: int) -> list[int]:
        """Return the numbers of a column for so many parts, 0 for those without a row."""
        found = [0] * parts
        for part, number in zip(self._parts, self._columns[name], strict=True):
            found[part] = number
        return found

    def histograms(self, part: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return how long messages waited, and calls ran, in a part."""
        codes = self._classes.get(part)
        return (_NONE, _NONE) if codes is None else histograms_of(codes)

    def row(self) -> Row:
        """Return what it did in all parts."""
        counts = [max(self._columns[name]) if name in ("lag", "oldest_s") else sum(self._columns[name])
                  for name in COUNTS]  # fmt: skip
        return Row._make((*counts, tuple(self._total[:CLASSES]), tuple(self._total[CLASSES:])))


class Range:
    """A range of time, and what the history knows of it.

    A day of a hundred groups is 150,000 rows. So no row is kept, but columns of numbers.
    """

    def __init__(self, name: str, since_ms: int, until_ms: int, points: Iterable[Point]) -> None:
        self.name = name
        self.since_ms = since_ms
        self.until_ms = until_ms
        self._began_ms = until_ms
        self._ended_ms = array("Q")
        self._seconds = array("d")
        self._courses: dict[str, Course] = {}
        self._of_all: dict[str, list[int]] = {name: [] for name in _CHARTED}
        for part, point in enumerate(points):
            self._began_ms = min(self._began_ms, point.began_ms)
            self._ended_ms.append(point.ended_ms)
            self._seconds.append(max(point.ended_ms - point.began_ms, 1) / 1000)
            for group, row in point.rows.items():
                self._courses.setdefault(group, Course()).add(part, row)
            for column, most in _CHARTED.items():
                self._of_all[column].append(most(getattr(row, column) for row in point.rows.values()))
        self._figures = self._summed()

    def _summed(self) -> dict[str, Figures]:
        if not self._ended_ms:
            return {}
        seconds = max(0, self._ended_ms[-1] - max(self.since_ms, self._began_ms)) / 1000
        return {
            group: Figures(group, seconds, course.row(), course.spread("lag", len(self._ended_ms))[-1])
            for group, course in self._courses.items()
        }

    def figures(self) -> dict[str, Figures]:
        """Return what each group did, by name."""
        return self._figures

    def lags(self, group: str) -> list[int]:
        """Return how the lag of a group went, in some forty numbers at most, each the most of its part."""
        lags = self._column("lag", group)
        step = -(-len(lags) // _SPARK_POINTS) or 1
        return [max(lags[at : at + step]) for at in range(0, len(lags), step)]

    def paces(self) -> dict[str, float]:
        """Return how many messages a second each group has handled at its best."""
        return {
            group: max(map(truediv, course.spread("handled", len(self._seconds)), self._seconds), default=0.0)
            for group, course in self._courses.items()
        }

    def series(self, group: str = "") -> dict[str, list[Any]]:
        """Return the numbers of charts, the oldest first: of one group, or of all together.

        ``t`` are seconds since 1970; ``published``, ``handled`` and ``born`` are messages a second; ``waited`` and
        ``ran`` are the histograms of one group.
        """
        column = {name: self._of_all[name] if not group else self._column(name, group) for name in _CHARTED}
        handled = map(add, column["handled"], column["skipped"])
        found: dict[str, list[Any]] = {
            "t": [ended_ms / 1000 for ended_ms in self._ended_ms],
            "published": self._rates(column["published"], 2),
            "handled": self._rates(handled, 2),
            "born": self._rates(column["dead_lettered"], 3),
            "lag": column["lag"],
            "oldest": column["oldest_s"],
        }
        if group:
            course = self._courses.get(group, Course())
            histograms = [course.histograms(part) for part in range(len(self._ended_ms))]
            found |= {"waited": [each for each, _ in histograms], "ran": [each for _, each in histograms]}
        return found

    def _column(self, name: str, group: str) -> list[int]:
        return self._courses.get(group, Course()).spread(name, len(self._ended_ms))

    def _rates(self, counts: Iterable[int], digits: int) -> list[float]:
        return [round(count / seconds, digits) for count, seconds in zip(counts, self._seconds, strict=True)]


def _most(numbers: Iterable[int]) -> int:
    return max(numbers, default=0)


_CHARTED: Final[dict[str, Callable[[Iterable[int]], int]]] = {
    "published": sum,
    "handled": sum,
    "skipped": sum,
    "dead_lettered": sum,
    "lag": sum,
    "oldest_s": _most,
}
"""Columns of charts, and how those of all groups are put together."""


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
                known = Range(name, since_ms, until_ms, each_point(self._root(), since_ms, until_ms))
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
