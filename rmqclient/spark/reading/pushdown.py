"""Filter pushdown: conditions on topic, partition, offset, timestamp or tags that save reading.

Spark hands over conditions that must all hold. Conditions on ``topic``, ``partition``, ``offset`` and ``tags`` are
applied to every row here, and Spark does not apply them again. A condition on ``timestamp`` cuts ranges short by a
binary search, and Spark applies it once more. The store timestamps of a queue ascend unless the clock was set back.
The search therefore leaves a margin of an hour: rows are missed only if the clock was set back by more.

Spark 4 refuses a reader with ``pushFilters`` if ``spark.sql.python.filterPushdown.enabled`` is false, which is its
default. :func:`is_asked_for` tells whether Spark makes the reader for pushdown, by the module that makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from rmqclient.filters.tag import TagFilter
from rmqclient.spark.scan.place import Place
from rmqclient.spark.scan.ranges import Ranges
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store import MessageQueue

_T = TypeVar("_T")

_MODULE = "data_source_pushdown_filters.py"
_MARGIN_MS = 3_600_000


def is_asked_for() -> bool:
    """Return whether the module of Spark that pushes filters down is among the callers."""
    frame = inspect.currentframe()  # Spark has no public way to ask; tests/spark checks that this way still works
    while frame is not None and not frame.f_code.co_filename.endswith(_MODULE):
        frame = frame.f_back
    return frame is not None


@dataclass(frozen=True)
class Pushed:
    """Conditions that all rows meet. None, or the widest range, stands for no condition."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    offsets: range = field(default=range(1 << 63))
    times: range = field(default=range(1 << 63))
    """Store timestamps in ms, approximate."""

    def apply(self, place: Place, wanted: Ranges) -> Ranges:
        """Return the parts of the ``wanted`` ranges that may hold matching messages."""
        found = {}
        for queue, offsets in wanted.items():
            if self.topics is not None and queue.topic not in self.topics:
                continue
            if self.partitions is not None and queue.queue_id not in self.partitions:
                continue
            left = self._between_times(place, queue, _common(offsets, self.offsets))
            if left:
                found[queue] = left
        return found

    def _between_times(self, place: Place, queue: MessageQueue, offsets: range) -> range:
        start, stop = offsets.start, offsets.stop
        if self.times.start > _MARGIN_MS:
            start = place.offset_by_time(queue, offsets, self.times.start - _MARGIN_MS)
        if self.times.stop < (1 << 62):
            stop = place.offset_by_time(queue, range(start, stop), self.times.stop + _MARGIN_MS)
        return range(start, stop)

    def narrow(self, options: ReadOptions) -> ReadOptions:
        """Return the options with the tags that both ask for. If they share none, no message can match."""
        if self.tags is None:
            return options
        tags = self.tags & options.tags.tags if options.tags.tags else self.tags
        return replace(options, tags=TagFilter(tags or frozenset({"\x02"})))


def push(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """Return the conditions that are pushed down, and the filters that Spark still has to apply."""
    pushed, left = Pushed(), []
    for each in filters:
        attribute = getattr(each, "attribute", None)
        narrowed = _NARROWED[attribute[0]](pushed, each) if attribute and attribute[0] in _NARROWED else None
        if narrowed is None or attribute == ("timestamp",):
            left.append(each)
        pushed = narrowed or pushed
    return pushed, left


def _values(each: Filter) -> frozenset[object] | None:
    if isinstance(each, EqualTo):
        return frozenset({each.value})
    return frozenset(each.value) if isinstance(each, In) else None


def _narrow_topics(pushed: Pushed, each: Filter) -> Pushed | None:
    values = _values(each)
    return None if values is None else replace(pushed, topics=_both(pushed.topics, _of_type(values, str)))


def _narrow_partitions(pushed: Pushed, each: Filter) -> Pushed | None:
    values = _values(each)
    return None if values is None else replace(pushed, partitions=_both(pushed.partitions, _of_type(values, int)))


def _narrow_tags(pushed: Pushed, each: Filter) -> Pushed | None:
    values = _values(each)
    return None if values is None else replace(pushed, tags=_both(pushed.tags, _of_type(values, str)))


def _narrow_offsets(pushed: Pushed, each: Filter) -> Pushed | None:
    bounds = _bounds(each, int, lambda value: value)
    return None if bounds is None else replace(pushed, offsets=_common(pushed.offsets, bounds))


def _narrow_times(pushed: Pushed, each: Filter) -> Pushed | None:
    bounds = _bounds(each, datetime, lambda value: int(value.timestamp() * 1000))
    return None if bounds is None else replace(pushed, times=_common(pushed.times, bounds))


def _bounds(each: Filter, kind: type[_T], number: Callable[[_T], int]) -> range | None:
    value = getattr(each, "value", None)
    if not isinstance(value, kind):
        return None
    at = number(value)
    if isinstance(each, EqualTo):
        return range(max(0, at), max(0, at + 1))
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return range(max(0, at + isinstance(each, GreaterThan)), 1 << 63)
    if isinstance(each, LessThan | LessThanOrEqual):
        return range(max(0, at + isinstance(each, LessThanOrEqual)))
    return None


def _both(one: frozenset[_T] | None, other: frozenset[_T]) -> frozenset[_T]:
    return other if one is None else one & other


def _of_type(values: frozenset[object], kind: type[_T]) -> frozenset[_T]:
    return frozenset(value for value in values if isinstance(value, kind))


def _common(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))


_NARROWED: dict[str, Callable[[Pushed, Filter], Pushed | None]] = {
    "topic": _narrow_topics,
    "partition": _narrow_partitions,
    "tags": _narrow_tags,
    "offset": _narrow_offsets,
    "timestamp": _narrow_times,
}
"""The columns whose conditions are pushed down."""
