"""Lanes: the queues of a group as lines from what is committed to the end, with what runs on them now."""

from __future__ import annotations

from typing import NamedTuple

from rmqclient.names import group_and_member
from rmqclient.store.observe.observation import GroupQueue
from rmqclient.store.observe.summary import Group, state_of

_COLOURS = 5
_SLOW_S, _STUCK_S = 10.0, 60.0


class Tick(NamedTuple):
    """A message that a handler runs now."""

    at: float
    """Where on the line, 0 to 1."""
    tone: str
    """``busy``, ``warn`` or ``bad``, by its age."""


class Lane(NamedTuple):
    """One queue."""

    queue: GroupQueue
    state: str
    member: str
    """Of a broadcast group: whose offsets these are; else empty."""
    share: float
    """Length of the line: the lag as part of the largest one of the group, 0 to 1."""
    colour: int
    """1 to 5, the same for queues of the same owner; 0 without an owner."""
    ticks: list[Tick]


def lanes_of(group: Group) -> list[Lane]:
    """Return every queue of a group, by topic and queue id."""
    most = max((each.lag for each in group.queues), default=0) or 1
    owners = sorted({each.owner.client_id for each in group.queues if each.owner})
    colours = {owner: number % _COLOURS + 1 for number, owner in enumerate(owners)}
    return [
        Lane(
            each,
            state_of(each),
            group_and_member(each.group)[1] or "",
            each.lag / most,
            colours[each.owner.client_id] if each.owner else 0,
            _ticks(group, each),
        )
        for each in group.queues
    ]


def _ticks(group: Group, each: GroupQueue) -> list[Tick]:
    ticks = []
    for call in group.calls:
        if call.queue == each.queue and call.group == each.group:
            at = min(max((call.queue_offset - each.committed_offset) / (each.lag or 1), 0.0), 1.0)
            tone = "bad" if call.age_s >= _STUCK_S else "warn" if call.age_s >= _SLOW_S else "busy"
            ticks.append(Tick(at, tone))
    return ticks
