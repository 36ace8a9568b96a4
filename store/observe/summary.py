"""Summary: one group, as every view shows it. Nothing else computes how far a group is, or in which state.

=============  =====================================================================================================
``lag``        messages that are there and not finished up to the committed offset, its retry topic included, as
               RocketMQ's tools count (:attr:`rmqclient.store.observe.observation.GroupQueue.lag`)
``waiting``    failed messages whose delay is not over: they are in no queue of the group yet, and so not in ``lag``
``owner``      of a queue: the member that has it, whose process lives and whose lease has not ended
``members``    client ids, each once: a consumer is one member, whatever it consumes; a process may have several
``spare``      members that have no queue of a topic that they consume, retry topics aside
``state``      in the words of :mod:`rmqclient.store.observe.states`
=============  =====================================================================================================

The members of a broadcast group are one group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.observe import states
from rmqclient.store.observe.observation import Call, GroupQueue, Observation, Queue
from rmqclient.store.runtime.rows import MemberInfo, WorkerStatus

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
_BROADCAST = "|"
_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Its members are producers of transactions."""


class Group(NamedTuple):
    """One group."""

    group: str
    queues: tuple[GroupQueue, ...]
    """By topic and queue id; those of the retry topic are among them."""
    consumers: tuple[MemberInfo, ...]
    """One for each topic of each member."""
    topics: tuple[str, ...]
    """That it consumes or consumed; without the retry topic."""
    members: tuple[str, ...]
    """Client ids, sorted."""
    spare: tuple[str, ...]
    """Client ids, sorted."""
    lag: int
    waiting: int | None
    """None where nobody tells: on a cluster."""
    calls: tuple[Call, ...]
    """What its handlers run now, the longest first."""
    state: str

    @property
    def retries(self) -> int:
        """How much of the lag stands in the retry topic: failed messages whose next attempt is due."""
        return sum(each.lag for each in self.queues if each.queue.topic.startswith(RETRY_PREFIX))

    @property
    def in_flight(self) -> int:
        """Messages that members have taken and not finished."""
        return sum(each.in_flight for each in self.queues)

    @property
    def oldest_stored_ms(self) -> int | None:
        """When the oldest message of the lag was stored, in ms since 1970; None without any, and if nobody tells."""
        return min((each.oldest_stored_ms for each in self.queues if each.oldest_stored_ms is not None), default=None)

    def oldest_s(self, wall_ms: int) -> float | None:
        """Return the age of the oldest message of the lag; None as :attr:`oldest_stored_ms`."""
        return None if self.oldest_stored_ms is None else max(0, wall_ms - self.oldest_stored_ms) / 1000


def groups_of(seen: Observation, hung_after_s: float = states.HUNG_AFTER_S) -> list[Group]:
    """Return every group that has consumed or consumes, sorted by name."""
    return summaries(seen.group_queues, seen.members, seen.calls, seen.timer.retries, hung_after_s=hung_after_s)


def summaries(
    queues: Iterable[GroupQueue],
    members: Iterable[MemberInfo],
    calls: Iterable[Call] = (),
    waiting: Mapping[str, int] | None = None,
    *,
    hung_after_s: float = states.HUNG_AFTER_S,
) -> list[Group]:
    """Return the groups of these rows, sorted by name; ``waiting`` are failed messages by group, if somebody tells."""
    queues_of: dict[str, list[GroupQueue]] = {name: [] for name in waiting or ()}
    for each in queues:
        queues_of.setdefault(group_of(each.group), []).append(each)
    members_of: dict[str, list[MemberInfo]] = {}
    for member in members:
        if member.topic != _HALF_TOPIC:
            members_of.setdefault(group_of(member.group), []).append(member)
    calls_of: dict[str, list[Call]] = {}
    for call in calls:
        calls_of.setdefault(group_of(call.group), []).append(call)
    return [
        _group(
            name,
            tuple(queues_of.get(name, ())),
            tuple(members_of.get(name, ())),
            tuple(calls_of.get(name, ())),
            None if waiting is None else waiting.get(name, 0),
            hung_after_s,
        )
        for name in sorted({*queues_of, *members_of})
    ]


class Letters(NamedTuple):
    """The dead letters of one group that were neither replayed nor purged."""

    waiting: int
    first: tuple[MessageQueue, int] | None
    """Queue and queue offset of the oldest one."""


def letters_of(queues: Iterable[Queue], settled: Mapping[str, Collection[int]]) -> dict[str, Letters]:
    """Return the dead letters of each group that ever had one, as ``config.settled_letters`` knows the others."""
    found: dict[str, Letters] = {}
    for each in queues:
        if each.queue.topic.startswith(DEAD_LETTER_PREFIX):
            group, done = each.queue.topic.removeprefix(DEAD_LETTER_PREFIX), settled.get(each.queue.topic, ())
            there, before = range(each.min_offset, each.max_offset), found.get(group, Letters(0, None))
            first = next(((each.queue, offset) for offset in there if offset not in done), None)
            waiting = len(there) - sum(offset in there for offset in done)
            found[group] = Letters(before.waiting + waiting, before.first or first)
    return found


def group_of(name: str) -> str:
    """Return the group whose offsets are kept under a name: for a broadcast group, the name without the member."""
    return name.partition(_BROADCAST)[0]


def state_of(each: GroupQueue) -> str:
    """Return the state of one queue of a group."""
    return states.queue_state(*_facts(each))


def state_of_queues(queues: Collection[GroupQueue], *, members: int = 1, waiting: int = 0) -> str:
    """Return the state of a group, or of its part that these queues are, but for handlers that hang."""
    kinds = set(map(_facts, queues))  # most queues are in the same state: it is put into words once
    lag = sum(each.lag for each in queues)
    return states.group_state((states.queue_state(*each) for each in kinds), members=members, lag=lag, waiting=waiting)


def state_of_worker(worker: WorkerStatus, calls: Iterable[Call], hung_after_s: float = states.HUNG_AFTER_S) -> str:
    """Return the state of a worker, with the message that it has run longest."""
    longest = max((call for call in calls if call.pid == worker.pid), key=lambda call: call.age_s, default=None)
    age_s = None if worker.message_age_ms is None else worker.message_age_ms / 1000
    return states.worker_state(
        worker.state.name.lower(),
        message_age_s=longest.age_s if longest else age_s,
        hung_after_s=hung_after_s,
        place=place_of(longest) if longest else None,
    )


def place_of(call: Call) -> str:
    """Return the place of the message that a handler runs, as ``orders 2:7731``."""
    return states.place(call.queue.topic, call.queue.queue_id, call.queue_offset)


def _facts(each: GroupQueue) -> tuple[bool, int, bool, bool, int, int]:
    """Return what the state of a queue depends on, as ``queue_state`` takes it."""
    has_owner = each.owner is not None
    return each.lag > 0, each.out_of_reach, each.paused, has_owner, each.flow_control, each.held_attempts


def _group(
    name: str,
    queues: tuple[GroupQueue, ...],
    consumers: tuple[MemberInfo, ...],
    calls: tuple[Call, ...],
    waiting: int | None,
    hung_after_s: float,
) -> Group:
    members = tuple(sorted({member.client_id for member in consumers}))
    topics = {*(each.queue.topic for each in queues), *(member.topic for member in consumers)}
    return Group(
        group=name,
        queues=queues,
        consumers=consumers,
        topics=tuple(sorted(topic for topic in topics if not topic.startswith(RETRY_PREFIX))),
        members=members,
        spare=_spare(queues, consumers, calls),
        lag=sum(each.lag for each in queues),
        waiting=waiting,
        calls=calls,
        state=_hung(calls, hung_after_s) or state_of_queues(queues, members=len(members), waiting=waiting or 0),
    )


def _spare(
    queues: tuple[GroupQueue, ...], consumers: tuple[MemberInfo, ...], calls: tuple[Call, ...]
) -> tuple[str, ...]:
    """Return the members for which no queue is left. While queues move, or nobody tells, none is said to be spare.

    Nor is one whose handler runs: others may have its queues until it ends.
    """
    if any(each.owner is None for each in queues):
        return ()
    busy = {(each.owner.client_id, each.queue.topic) for each in queues if each.owner is not None}
    busy |= {(call.member.client_id, call.member.topic) for call in calls}
    topics = {each.queue.topic for each in queues if not each.queue.topic.startswith(RETRY_PREFIX)}
    idle = {each.client_id for each in consumers if each.topic in topics and (each.client_id, each.topic) not in busy}
    return tuple(sorted(idle))


def _hung(calls: tuple[Call, ...], hung_after_s: float) -> str:
    longest = max(calls, key=lambda call: call.age_s, default=None)
    if longest is None or longest.age_s <= hung_after_s:
        return ""
    return states.worker_state("", message_age_s=longest.age_s, hung_after_s=hung_after_s, place=place_of(longest))
