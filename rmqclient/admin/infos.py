"""Infos: what administration tells of topics, of the queues and the members of groups, and of changes.

Those of a group are made of one summary (:class:`rmqclient.store.observe.summary.Group`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmqclient.names import RETRY_PREFIX, group_and_member
from rmqclient.store.observe.observation import GroupQueue
from rmqclient.store.observe.summary import Group, state_of_queues


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue of a topic."""

    queue_id: int
    min_offset: int
    max_offset: int
    broker_name: str = ""
    """Empty for a store."""
    is_written: bool = True
    """Whether new messages go there."""
    is_read: bool = True
    """Whether consumers get messages from there."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic."""

    topic: str
    queues: tuple[QueueInfo, ...]
    messages: int
    """From the oldest to the newest; in a compact topic those that were compacted count, too."""
    cleanup_policy: str = "delete"


@dataclass(frozen=True, slots=True)
class CleanInfo:
    """What a removal of old files did."""

    removed_files: int
    """Of the commit log; those of consume queues went with them."""
    removed_bytes: int
    min_offset: int
    """Commit log offset at which the log begins now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """How far a group has come with one queue."""

    group: str
    topic: str
    broker_name: str = ""
    """Empty for a store."""
    queue_id: int
    committed_offset: int
    max_offset: int
    lag: int
    """Messages at or above the committed offset that are still there; see :mod:`rmqclient.store.observe.summary`."""
    acknowledged_ahead: int
    """How many of these are finished already, out of order."""
    owner: str | None
    """Client id of the member that has the queue; None when its process has ended, and when its lease has."""
    epoch: int
    state: str
    """In the words of :mod:`rmqclient.store.observe.states`, such as ``flow control: span``."""
    member: str | None
    """Of a broadcast group: whose offsets these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """What one member of a group has of one topic on one broker; without a client id, the queues without an owner."""

    group: str
    topic: str
    broker_name: str = ""
    """Empty for a store, and for a spare."""
    client_id: str | None
    pid: int | None
    heartbeat_age_ms: float | None
    subscription: str | None
    queue_ids: tuple[int, ...]
    """Empty for a spare."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The members of a group that ask for the same messages of a topic."""

    topic: str
    subscription: str | None
    """Tags, filters and the like; None when no member runs."""
    members: tuple[str, ...]
    """Client ids, sorted."""
    queues: int
    """How many queues the group has consumed from, with a member or without."""
    lag: int
    """Messages of all these queues that are not finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekInfo:
    """Where a group was moved in one queue."""

    group: str
    topic: str
    broker_name: str = ""
    """Empty for a store."""
    queue_id: int
    from_offset: int | None
    """None for a group that never had the queue."""
    to_offset: int
    member: str | None
    """Of a broadcast group: whose offset this is."""


def lags_of(queues: Iterable[GroupQueue], waiting: int = 0) -> list[QueueLag]:
    """Return how far a group is in these queues, sorted; ``waiting`` of its failed messages wait for their retry."""
    found = [_lag(each, waiting) for each in queues]
    return sorted(found, key=lambda each: (each.topic, each.broker_name, each.queue_id, each.member or ""))


def _lag(each: GroupQueue, waiting: int) -> QueueLag:
    group, member = group_and_member(each.group)
    return QueueLag(
        group=group,
        topic=each.queue.topic,
        broker_name=each.queue.broker_name,
        queue_id=each.queue.queue_id,
        committed_offset=each.committed_offset,
        max_offset=each.max_offset,
        lag=each.lag,
        acknowledged_ahead=each.acknowledged_ahead,
        owner=each.owner.client_id if each.owner else None,
        epoch=each.epoch,
        state=state_of_queues([each], waiting=waiting if each.queue.topic == RETRY_PREFIX + group else 0),
        member=member,
    )


def assignment_of(group: Group) -> list[MemberAssignment]:
    """Return which member has which queues, by topic and client id; queues without an owner first.

    The queues are read one after the other: while queues move, one may be free. Members of a broadcast group are left
    out: each has all queues.
    """
    members = {(each.client_id, each.topic): each for each in group.consumers if each.group == group.group}
    owned: dict[tuple[str | None, str, str], list[int]] = {}
    for each in group.queues:
        if each.group == group.group:
            topic, queue_id, broker_name = each.queue
            client_id = each.owner.client_id if each.owner and (each.owner.client_id, topic) in members else None
            owned.setdefault((client_id, topic, broker_name), []).append(queue_id)
    busy = {(client_id, topic) for client_id, topic, _ in owned}
    owned |= {(*spare, ""): [] for spare in members.keys() - busy}
    found = []
    for (client_id, topic, broker_name), queue_ids in owned.items():
        member = None if client_id is None else members[client_id, topic]
        found.append(
            MemberAssignment(
                group=group.group,
                topic=topic,
                broker_name=broker_name,
                client_id=client_id,
                pid=member and member.pid,
                heartbeat_age_ms=member and member.heartbeat_age_ms,
                subscription=member and member.subscription,
                queue_ids=tuple(sorted(queue_ids)),
            )
        )
    return sorted(found, key=lambda each: (each.topic, each.client_id or "", each.broker_name))


def subscriptions_of(group: Group) -> list[Subscription]:
    """Return what a group subscribes to, by topic, also topics that nobody consumes just now.

    Members that disagree on a topic are in several rows.
    """
    members: dict[tuple[str, str | None], list[str]] = {(each.queue.topic, None): [] for each in group.queues}
    for member in group.consumers:
        if member.group == group.group:
            members.pop((member.topic, None), None)
            members.setdefault((member.topic, member.subscription), []).append(member.client_id)
    return [
        Subscription(
            topic=topic,
            subscription=text,
            members=tuple(sorted(clients)),
            queues=sum(each.queue.topic == topic for each in group.queues),
            lag=sum(each.lag for each in group.queues if each.queue.topic == topic),
        )
        for (topic, text), clients in sorted(members.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    ]
