"""The checks of what a store remembers beside its messages: the history and the marks.

Neither is needed to deliver a message, and both are read without a lock. What a kill or a power cut leaves is no
problem: a record or a line that was never finished, and bytes that were never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rmqclient.store import layout
from rmqclient.store.history.rings import Head, HistoryFile, Placed
from rmqclient.store.inspect.found import Found, Problem
from rmqclient.store.marks import MARKS_FILE, OLD_MARKS_FILE, bad_lines


def check_history(found: Found) -> Iterator[Problem]:
    """18: a head of the history, and the records that it counts."""
    path = found.reader.root / layout.HISTORY_FILE
    if not path.exists() or path.stat().st_size == 0:
        return
    with HistoryFile(found.reader.root) as history:
        head = history.head()
        if head is None:
            yield Problem(18, path, 0, "neither head can be read: the history is begun anew")
            return
        for level in range(len(layout.HISTORY_RINGS)):
            yield from (Problem(18, path, position, reason) for position, reason in _damaged(history, head, level))


def check_marks(found: Found) -> Iterator[Problem]:
    """19: the lines of the marks."""
    for name in (OLD_MARKS_FILE, MARKS_FILE):
        path = found.reader.root / name
        yield from (Problem(19, path, position, "this line is no mark") for position in bad_lines(path))


def _damaged(history: HistoryFile, head: Head, level: int) -> Iterator[tuple[int, str]]:
    """Yield where counted records of a ring are missing and other bytes than zeros stand in their place."""
    placed = history.placed(head, level)
    places = [*placed, Placed(head.rings[level].number, head.rings[level].at, head.rings[level].at)]
    if [each.begin for each in places] == sorted(each.begin for each in places):  # else older ones were overwritten
        places.insert(0, Placed(0, 0, 0))
    for before, after in pairwise(places):
        missing = range(before.number + 1, after.number)
        if missing and history.has_bytes(level, before.end, after.begin):
            which = f"record {missing[0]}" if len(missing) == 1 else f"records {missing[0]} to {missing[-1]}"
            yield history.position(level, before.end), f"{which} of ring {level + 1} cannot be read"
