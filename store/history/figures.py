"""Figures: what each group did in a period, read from the history without a lock.

::

    for each in figures_of("./store", since_ms=now_ms - 3_600_000, until_ms=now_ms):
        print(each.group, each.handled_per_s, each.waited_s(0.95))

A period is put together from the records that ended in it, each message once: those of 15 minutes, and at its begin and
its end those of a minute and of 10 seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rmqclient.store import layout
from rmqclient.store.history.rings import SPANS_MS, Head, HistoryFile, Record, Row, sum_of
from rmqclient.store.log.sizes import settings_of
from rmqclient.store.observe.observation import FOR_GOOD

_BOUNDS_S = tuple(bound / 1000 for bound in layout.HANDLING_BOUNDS_MS)
_COARSEST = len(SPANS_MS) - 1
_FINE_MS = (3_600_000, 86_400_000)
"""Longest periods of which points are 10 seconds, and a minute."""


class Figures(NamedTuple):
    """One group in one period."""

    group: str
    seconds: float
    """How much of the period the history knows."""
    row: Row
    """What it did; ``lag`` and ``oldest_s`` are the most in the period."""
    lag: int
    """Messages not finished at the end of the period."""

    @property
    def published_per_s(self) -> float:
        """Messages a second that were stored in its topics."""
        return self.row.published / self.seconds if self.seconds else 0.0

    @property
    def handled_per_s(self) -> float:
        """Messages a second that it finished."""
        return self.row.handled / self.seconds if self.seconds else 0.0

    @property
    def finished_per_s(self) -> float:
        """Messages a second that left it for good: handled, dead lettered, skipped or lost to retention."""
        return sum(getattr(self.row, each) for each in FOR_GOOD) / self.seconds if self.seconds else 0.0

    @property
    def failed_ratio(self) -> float | None:
        """Part of the attempts that failed, 0 to 1; None without an attempt."""
        attempts = self.row.handled + self.row.failed
        return self.row.failed / attempts if attempts else None

    def waited_s(self, part: float) -> float | None:
        """Return the seconds within which this part of the messages, 0 to 1, was begun; None without any."""
        return quantile(self.row.waited, part)

    def ran_s(self, part: float) -> float | None:
        """Return the seconds within which this part of the calls, 0 to 1, ended; None without any."""
        return quantile(self.row.ran, part)

    @property
    def drained_in_s(self) -> float | None:
        """Seconds until nothing waits, at the rates of the period; None if at least as much comes in as leaves."""
        if not self.lag:
            return 0.0
        rate = self.finished_per_s - self.published_per_s
        return self.lag / rate if rate > 0 else None


class Point(NamedTuple):
    """What all groups did in a part of a period."""

    began_ms: int
    ended_ms: int
    rows: dict[str, Row]
    """By group; without those that did nothing and for which nothing waits."""


def figures_of(root: Path | str, since_ms: int, until_ms: int) -> list[Figures]:
    """Return what each group did in a period, by name; times are ms since 1970. Empty while there is no history.

    Groups that did nothing, and for which nothing waited, are not there. Raises StoreUnusable where no store is.
    """
    records, names = _read(root, since_ms, until_ms, _COARSEST)
    if not records:
        return []
    seconds = _known_s(records, since_ms, until_ms)
    last = max(records, key=_in_time).rows()
    return sorted(
        Figures(names[number], seconds, row, last.get(number, Row()).lag)
        for number, row in sum_of(records).items()
        if number in names
    )


def known_s(root: Path | str, since_ms: int, until_ms: int) -> float:
    """Return how many seconds of a period the history knows, whether a group did anything or not; 0 without a history.

    Raises StoreUnusable where no store is.
    """
    records, _ = _read(root, since_ms, until_ms, _COARSEST)
    return _known_s(records, since_ms, until_ms)


def points_of(root: Path | str, since_ms: int, until_ms: int) -> list[Point]:
    """Return a period in parts, the oldest first, for a chart; as :func:`figures_of`.

    A part is one of 10 seconds if the period is an hour at most, of a minute if it is a day, of 15 minutes if it is
    longer; the parts at the end, and at the begin, may be shorter.
    """
    return list(each_point(root, since_ms, until_ms))


def each_point(root: Path | str, since_ms: int, until_ms: int) -> Iterator[Point]:
    """Yield what :func:`points_of` returns. Each is decoded when its turn comes: those of a day are many."""
    level = sum(until_ms - since_ms > longest for longest in _FINE_MS)
    records, names = _read(root, since_ms, until_ms, level)
    for each in sorted(records, key=_in_time):
        rows = {names[number]: row for number, row in each.rows().items() if number in names}
        yield Point(each.began_ms, each.ended_ms, rows)


def quantile(classes: Sequence[int], part: float) -> float | None:
    """Return the seconds below which this part, 0 to 1, of what a histogram counts lies; None if it counts nothing.

    Inside of a class, times are taken as spread evenly. Of the last class, which has no upper bound, the answer is its
    lower one.
    """
    wanted = part * sum(classes)
    if not wanted:
        return None
    lower, below = 0.0, 0
    for count, upper in zip(classes, _BOUNDS_S, strict=False):
        if count and below + count >= wanted:
            return lower + (upper - lower) * (wanted - below) / count
        lower, below = upper, below + count
    return lower


def _read(root: Path | str, since_ms: int, until_ms: int, coarsest: int) -> tuple[list[Record], dict[int, str]]:
    """Return what covers a period, and the names of groups by their numbers."""
    try:
        with HistoryFile(root) as file:
            head = file.head()
            if head is None:
                return [], {}
            names = {known.number: name for name, known in head.groups.items()}
            return _covering(file, head, since_ms, until_ms, coarsest), names
    except FileNotFoundError:
        settings_of(Path(root))
        return [], {}


def _known_s(records: Sequence[Record], since_ms: int, until_ms: int) -> float:
    began_ms = min((each.began_ms for each in records), default=until_ms)
    ended_ms = max((each.ended_ms for each in records), default=since_ms)
    return max(0, min(ended_ms, until_ms) - max(began_ms, since_ms)) / 1000


def _in_time(record: Record) -> tuple[int, int]:
    return record.ended_ms, record.number


def _covering(file: HistoryFile, head: Head, since_ms: int, until_ms: int, coarsest: int) -> list[Record]:
    """Return records that ended in a period, of the coarsest rings that fit, none of which has a part of another."""
    found = list[Record]()
    covered = set[int]()  # numbers of this ring
    for level in range(coarsest, -1, -1):
        finer = set[int]()
        if not level or SPANS_MS[level] <= until_ms - since_ms:
            for record in file.records(head, level):
                is_in = since_ms < record.ended_ms <= until_ms and (not level or since_ms <= record.began_ms)
                if is_in and record.number not in covered:
                    found.append(record)
                if is_in or record.number in covered:
                    finer.update(range(record.first, record.last + 1))
        covered = finer
    return found
