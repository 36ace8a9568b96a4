"""Totals: the numbers of a sample summed up by topic, and by group and topic; and their rates between two samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self, TypeVar

from rmqclient.names import group_and_member
from rmqclient.store.observe.observation import GroupQueue, Observation, Queue


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """One topic."""

    queues: int
    messages_in: int
    """Ever appended; a counter."""
    bytes_in: int
    """A counter."""
    messages: int
    """That are there now."""

    @classmethod
    def of(cls, queues: list[Queue]) -> Self:
        """Sum up the queues of one topic."""
        return cls(
            queues=len(queues),
            messages_in=sum(each.max_offset for each in queues),
            bytes_in=sum(each.bytes_in for each in queues),
            messages=sum(each.max_offset - each.min_offset for each in queues),
        )


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """One group on one topic, in all queues; the members of a broadcast group together.

    The fields are those of :class:`rmqclient.store.observe.observation.GroupQueue`.
    """

    queues: int
    owned: int
    """Queues that a member has."""
    paused: int
    """Queues from which the group takes nothing."""
    lag: int
    acknowledged_ahead: int
    in_flight: int
    ready: int
    oldest_stored_ms: int | None
    """The smallest of all queues."""
    next_stored_ms: int | None
    """The smallest of all queues."""
    delivered: int
    bytes_out: int
    handled: int
    failed: int
    retried: int
    dead_lettered: int
    skipped: int
    lost: int

    @classmethod
    def of(cls, rows: list[GroupQueue]) -> Self:
        """Sum up the queues of one group on one topic."""
        columns = dict(zip(GroupQueue._fields, zip(*rows, strict=True), strict=True))
        return cls(
            queues=len(rows),
            owned=len(rows) - columns["owner"].count(None),
            oldest_stored_ms=_earliest(columns["oldest_stored_ms"]),
            next_stored_ms=_earliest(columns["next_stored_ms"]),
            lag=sum(each.lag for each in rows),
            **{name: sum(columns[name]) for name in (*_GAUGES, *COUNTERS)},
        )


COUNTERS = ("delivered", "bytes_out", "handled", "failed", "retried", "dead_lettered", "skipped", "lost")
"""Counters of a group: they never fall but to 0, when the machine has started anew."""

_GAUGES = ("paused", "acknowledged_ahead", "in_flight", "ready")


def by_topic(sample: Observation) -> dict[str, TopicTotals]:
    """Return the totals of every topic, system topics included, by name."""
    found: dict[str, list[Queue]] = {}
    for each in sample.queues:
        found.setdefault(each.queue.topic, []).append(each)
    return {topic: TopicTotals.of(queues) for topic, queues in found.items()}


def by_group(sample: Observation) -> dict[tuple[str, str], GroupTotals]:
    """Return the totals of every group on every topic, its retry topic included, by group and topic."""
    found: dict[tuple[str, str], list[GroupQueue]] = {}
    for each in sample.group_queues:
        found.setdefault((group_and_member(each.group)[0], each.queue.topic), []).append(each)
    return {key: GroupTotals.of(rows) for key, rows in found.items()}


Totals = TypeVar("Totals", TopicTotals, GroupTotals)


def per_second(before: Totals | None, after: Totals, seconds: float) -> dict[str, float]:
    """Return how fast each counter has grown between two totals, by name; all 0 when no time has passed.

    A counter that was begun meanwhile, for the first time (``before`` is None) or anew, has grown by what it says.
    """
    names = _counters_of(after)
    if seconds <= 0:
        return dict.fromkeys(names, 0.0)
    return {name: _growth(getattr(before, name, 0), getattr(after, name)) / seconds for name in names}


def topic_rates(before: Observation, after: Observation) -> dict[str, dict[str, float]]:
    """Return, by topic, ``messages_in`` and ``bytes_in`` per second between two samples."""
    old, seconds = by_topic(before), after.at_s - before.at_s
    return {topic: per_second(old.get(topic), now, seconds) for topic, now in by_topic(after).items()}


def group_rates(before: Observation, after: Observation) -> dict[tuple[str, str], dict[str, float]]:
    """Return, by group and topic, every one of :data:`COUNTERS` per second between two samples."""
    old, seconds = by_group(before), after.at_s - before.at_s
    return {key: per_second(old.get(key), now, seconds) for key, now in by_group(after).items()}


def _earliest(times_ms: Iterable[int | None]) -> int | None:
    return min((each for each in times_ms if each is not None), default=None)


def _counters_of(totals: TopicTotals | GroupTotals) -> Iterable[str]:
    known = {each.name for each in fields(totals)}
    return [name for name in ("messages_in", "bytes_in", *COUNTERS) if name in known]


def _growth(before: int, after: int) -> int:
    return after - before if after >= before else after
