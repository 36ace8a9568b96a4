"""Infos: what administration tells of topics, groups and members."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a group has come with one queue."""

    group: str
    topic: str
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
    broker_name: str = ""
    """Empty for a store."""


@dataclass(frozen=True, slots=True)
class SeekInfo:
    """Where a group was moved in one queue."""

    group: str
    topic: str
    queue_id: int
    from_offset: int | None
    """None for a group that never had the queue."""
    to_offset: int
    member: str | None
    """Of a broadcast group: whose offset this is."""
    broker_name: str = ""
    """Empty for a store."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What one member of a group has of one topic on one broker; without a client id, the queues without an owner."""

    group: str
    topic: str
    client_id: str | None
    pid: int | None
    heartbeat_age_ms: float | None
    subscription: str | None
    queue_ids: tuple[int, ...]
    """Empty for a spare."""
    broker_name: str = ""
    """Empty for a store, and for a spare."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One consumer group."""

    group: str
    topics: tuple[str, ...]
    """Without the group's own retry topic, whose messages count in the lag."""
    members: int
    """Client ids: usually one a process."""
    lag: int
    state: str = ""
    """That of its worst queue, in the words of :mod:`rmqclient.store.observe.states`."""
    waiting: int | None = None
    """Failed messages whose next attempt is not due yet; None on a cluster, where nobody tells."""
    spare: int = 0
    """Members that have no queue of a topic that they consume."""


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
