"""Groups as the pages show them: states in words, lag, and what their handlers run now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmqclient.health import findings
from rmqclient.health.words import group_state, queue_state
from rmqclient.local.glance import RETRY_PREFIX, Glance, GroupQueue, Running
from rmqclient.names import group_and_member
from rmqclient.store import MemberInfo

_OWN = frozenset(("CID_RMQ_SYS_TRANS", "rmq_sys_timer"))
"""Groups by which the store says how far its own work is."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group of a list."""

    group: str
    topics: tuple[str, ...]
    """Without the retry topic."""
    processes: int
    queues: int
    lag: int
    retries: int
    """Messages that wait in the retry topic for their next attempt, or for a member."""
    running: int
    oldest_s: float | None
    state: str


def group_lines(glance: Glance, members: Iterable[MemberInfo], now_ms: int) -> list[GroupLine]:
    """Return every group that has consumed or consumes, those that need somebody first, then by lag."""
    queues_of: dict[str, list[GroupQueue]] = {}
    for each in glance.group_queues():
        if each.group not in _OWN:
            queues_of.setdefault(group_and_member(each.group)[0], []).append(each)
    members_of: dict[str, list[MemberInfo]] = {}
    for member in members:
        members_of.setdefault(group_and_member(member.group)[0], []).append(member)
    running_of: dict[str, int] = {}
    for running in glance.running():
        group = group_and_member(running.group)[0]
        running_of[group] = running_of.get(group, 0) + 1
    names = sorted({*queues_of, *members_of})
    lines = [
        _line(glance, name, queues_of.get(name, []), members_of.get(name, []), running_of.get(name, 0), now_ms)
        for name in names
    ]
    return sorted(lines, key=lambda line: -line.lag)


def state_of(each: GroupQueue) -> str:
    """Return the state of one queue of a group, in words."""
    return queue_state(
        lag=each.lag,
        lost=each.lost,
        paused=each.paused,
        has_owner=each.has_owner,
        flow_control=each.flow_control,
        held_attempts=each.held_attempts,
    )


def oldest_s(glance: Glance, waiting: Iterable[GroupQueue], now_ms: int) -> float | None:
    """Return the age of the oldest message that is not finished, in as many queues as are read; None without any."""
    places = [(each.queue, each.committed_offset) for each in waiting if each.lag > 0]
    age_s = findings.oldest_s(glance, places, now_ms)
    return None if age_s is None else max(0.0, age_s)


def running_of(glance: Glance, group: str) -> list[Running]:
    """Return what the handlers of a group run now."""
    return [each for each in glance.running() if group_and_member(each.group)[0] == group]


def _line(
    glance: Glance, group: str, queues: list[GroupQueue], members: list[MemberInfo], running: int, now_ms: int
) -> GroupLine:
    own = [each for each in queues if not each.queue.topic.startswith(RETRY_PREFIX)]
    retries = sum(each.lag for each in queues if each.queue.topic.startswith(RETRY_PREFIX))
    lag = sum(each.lag for each in own)
    topics = {*(each.queue.topic for each in own), *(member.topic for member in members)}
    processes = len({member.pid for member in members})
    state = group_state(map(state_of, own), members=processes, lag=lag)
    shown = tuple(sorted(topic for topic in topics if not topic.startswith(RETRY_PREFIX)))
    return GroupLine(group, shown, processes, len(own), lag, retries, running, oldest_s(glance, own, now_ms), state)
