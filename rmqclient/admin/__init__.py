"""Administration: what the command line shows and does, without a producer or consumer of its own."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rmqclient.consuming.broadcast import group_and_member
from rmqclient.delivery.process_queue import FlowControl
from rmqclient.message import ReceivedMessage
from rmqclient.names import check_group, check_topic
from rmqclient.sending.producer import check_queue_count
from rmqclient.store import (
    HALF_TOPIC,
    MemberInfo,
    MessageQueue,
    MessageStore,
    StoreConfig,
    layout,
)
from rmqclient.store import open_store as _open_store
from rmqclient.store.errors import InvalidName, MessageExpired, OffsetOutOfRange, UnknownGroup
from rmqclient.store.inspect.broker_conf import broker_conf as _broker_conf
from rmqclient.store.log.inner_batch import opened
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.waiting.transaction import GROUP as TRANSACTION_GROUP

Position: TypeAlias = Literal["earliest", "latest"] | int | datetime.datetime
"""An end of a queue, a queue offset, or a time."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue of a topic."""

    queue_id: int
    min_offset: int
    max_offset: int


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
    """Messages at or above the committed offset that are still there."""
    acknowledged_ahead: int
    """How many of these are finished already, out of order."""
    owner: str | None
    """Client id of the member that has the queue."""
    epoch: int
    state: str
    """``running``, ``paused``, ``no owner``, or why the owner takes nothing, such as ``flow control: span``."""
    member: str | None
    """Of a broadcast group: whose offsets these are."""


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


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What one member of a group has of one topic; without a client id what nobody has."""

    group: str
    topic: str
    client_id: str | None
    pid: int | None
    heartbeat_age_ms: float | None
    subscription: str | None
    queue_ids: tuple[int, ...]
    """Empty for a spare."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One consumer group."""

    group: str
    topics: tuple[str, ...]
    members: int
    lag: int


def open_store(
    root: Path | str, config: StoreConfig | None = None, *, create: bool = True, housekeeping: bool = True
) -> MessageStore:
    """Open a store; as :func:`rmqclient.store.open_store`."""
    return _open_store(root, config, create=create, housekeeping=housekeeping)


def broker_conf(root: Path) -> str:
    """Return the ``broker.conf`` with which RocketMQ opens a store.

    As :func:`rmqclient.store.inspect.broker_conf.broker_conf`.
    """
    return _broker_conf(root)


def prefer_as_housekeeper(store: MessageStore) -> None:
    """Make this process the housekeeper, as a supervisor, for as long as it has the store open.

    Raises StoreClosed, and ValueError for a store opened without housekeeping.
    """
    store.check_usable()
    if store.housekeeper is None:
        raise ValueError(f"the store in {store.root} was opened with housekeeping=False")
    store.housekeeper.prefer()


def topics(store: MessageStore) -> list[TopicInfo]:
    """Return every topic, sorted by name."""
    return [topic_info(store, topic) for topic in store.topics.topics()]


def topic_info(store: MessageStore, topic: str) -> TopicInfo:
    """Return one topic. Raises UnknownTopic."""
    queues = tuple(
        QueueInfo(queue.queue_id, store.topics.min_offset(queue), store.topics.max_offset(queue))
        for queue in store.topics.queues(topic)
    )
    messages = sum(queue.max_offset - queue.min_offset for queue in queues)
    return TopicInfo(topic, queues, messages, "compact" if store.topics.is_compact(topic) else "delete")


def create_topic(store: MessageStore, topic: str, queue_count: int, cleanup_policy: str | None = None) -> TopicInfo:
    """Make a topic, or return the one there is. Raises InvalidName, ValueError, TableFull, ConfigMismatch."""
    store.topics.create(check_topic(topic), check_queue_count(queue_count), cleanup_policy)
    return topic_info(store, topic)


def clean(store: MessageStore, reserved_hours: int | None = None) -> CleanInfo:
    """Remove every commit log file that is older than the reserved time, now and by the clock as it stands.

    ``reserved_hours`` takes the place of the store's setting. The newest file always stays. Raises ValueError.
    """
    removed = 0
    while passed := store.retention.clean(requested=True, reserved_hours=reserved_hours):
        removed += len(passed)
    return CleanInfo(removed, removed * store.config.commit_log_file_bytes, store.state.min_offset)


def consumers(store: MessageStore) -> list[MemberInfo]:
    """Return every member that consumes; the others are transaction producers."""
    return [member for member in store.members().all() if member.topic != HALF_TOPIC]


def groups(store: MessageStore) -> list[GroupInfo]:
    """Return every group that has consumed or consumes, sorted by name; the members of a broadcast group are one."""
    members = [group_and_member(member.group)[0] for member in consumers(store)]
    names = sorted({*(group_and_member(name)[0] for name in store.groups.groups()), *members})
    return [_group_info(store, name, members.count(name)) for name in names]


def lag(store: MessageStore, group: str) -> list[QueueLag]:
    """Return the queues of a group, sorted by topic and queue id; empty for a group that never consumed.

    Of a broadcast group, each queue once for every member that it ever had.
    """
    return _lag_of(store, _slots_of(store, check_group(group)))


def seek(
    store: MessageStore,
    group: str,
    topic: str,
    to: Position,
    *,
    queue_id: int | None = None,
    dry_run: bool = False,
) -> list[SeekInfo]:
    """Move a group in all queues of a topic, or in one: to either end, to a queue offset, or to a time.

    Safe while members are at work: they lose the queues and take them again at once, and what they had in flight is
    not acknowledged into the new position. Of a broadcast group every member is moved. A group that was never seen
    begins there. With ``dry_run`` only says what would be.

    Raises InvalidName, UnknownTopic, OffsetOutOfRange for an offset that one of the queues does not have, ValueError
    for a time without a zone: nothing is moved then. StoreBusy, TableFull: some queues may be moved and others not;
    seek again. StoreFull: all are moved, and the disk does not know of it yet.
    """
    if check_group(group) == TRANSACTION_GROUP:
        raise InvalidName(f"group {group!r} says how far transactions are: moved back, it would send messages twice")
    targets = {queue: _position(store, queue, to) for queue in _queues(store, topic, queue_id)}
    names = sorted({slot.group for slot in _slots_of(store, group, targets)}) or [group]
    moved = [_seek_info(store, name, queue, target) for name in names for queue, target in targets.items()]
    if not dry_run:
        for name in names:
            for queue, target in targets.items():
                slot = store.groups.find_or_add(name, store.topics.slot(queue), target)
                with slot.locked(store.config.lock_timeout_ms):
                    slot.seek(target)
        store.state.signal_membership()
        store.persist_offsets()
    return moved


def pause(store: MessageStore, group: str, topic: str | None = None, *, queue_id: int | None = None) -> list[QueueLag]:
    """Let a group take nothing more; what is in flight goes on. Returns the queues as they are then.

    All queues that the group ever had, or those of one topic, or one of these. It holds until :func:`resume`, whoever
    ends or is killed, and is forgotten when the machine starts anew. Raises InvalidName, UnknownGroup, StoreBusy.
    """
    return _set_paused(store, group, topic, queue_id, paused=True)


def resume(store: MessageStore, group: str, topic: str | None = None, *, queue_id: int | None = None) -> list[QueueLag]:
    """Let a group take messages again, at once. Raises as :func:`pause`."""
    return _set_paused(store, group, topic, queue_id, paused=False)


def assignment(store: MessageStore, group: str) -> list[MemberAssignment]:
    """Return who has which queues of a group, by topic and client id, first what nobody has. Empty for no such group.

    A member without a queue is a spare. Seen one queue after the other: while queues move, one may be free.
    """
    check_group(group)
    members = {(member.slot, member.incarnation): member for member in consumers(store) if member.group == group}
    owned: dict[tuple[int, int], list[int]] = {key: [] for key in members}
    free: dict[str, list[int]] = {}
    for slot in store.groups:
        if slot.group == group:
            queue = store.topics.queue(slot.queue_slot)
            owner = (slot.load("owner") - 1, slot.load("owner_incarnation"))
            (owned[owner] if owner in owned else free.setdefault(queue.topic, [])).append(queue.queue_id)
    found = [MemberAssignment(group, topic, None, None, None, None, tuple(sorted(ids))) for topic, ids in free.items()]
    for key, member in members.items():
        found.append(
            MemberAssignment(
                group=group,
                topic=member.topic,
                client_id=member.client_id,
                pid=member.pid,
                heartbeat_age_ms=member.heartbeat_age_ms,
                subscription=member.subscription,
                queue_ids=tuple(sorted(owned[key])),
            )
        )
    return sorted(found, key=lambda each: (each.topic, each.client_id or ""))


def tail(
    store: MessageStore, topic: str, *, start: str | int = "latest", follow: bool = True, poll_ms: int = 500
) -> Iterator[ReceivedMessage]:
    """Yield the messages of a topic, without a group, from ``earliest``, ``latest`` or ``-100`` (of each queue).

    A number is a time in ms: what was stored then or later. With ``follow`` it waits for more for ever, woken by
    arrivals and looking every ``poll_ms`` at least. What retention removes meanwhile is stepped over. Raises
    UnknownTopic, ValueError for another ``start``.
    """
    positions = {queue: _start_offset(store, queue, start) for queue in store.topics.queues(topic)}
    bell = store.arrival_bell()
    while True:
        heard = bell.arm(*positions)
        fresh = [message for queue in positions for message in _from(store, queue, positions)]
        yield from sorted(fresh, key=lambda message: message.commit_log_offset)
        if not fresh:
            if not follow:
                return
            bell.wait(heard, poll_ms / 1000)


def find(
    store: MessageStore,
    topic: str,
    key: str,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    limit: int = 64,
) -> list[ReceivedMessage]:
    """Return the messages of a topic that have a key, or a unique key, the newest first. Raises UnknownTopic."""
    store.topics.queues(topic)
    until_ms = until_ms if until_ms is not None else END_OF_TIME
    return store.messages_by_key(topic, key, begin_ms=since_ms or 0, end_ms=until_ms, limit=limit)


def _from(store: MessageStore, queue: MessageQueue, positions: dict[MessageQueue, int]) -> Iterator[ReceivedMessage]:
    end = min(store.topics.max_offset(queue), positions[queue] + 1_000)
    for offset in range(max(positions[queue], store.topics.min_offset(queue)), end):
        positions[queue] = offset + 1
        with contextlib.suppress(MessageExpired):
            yield from opened(store.message_at(queue, offset))


def _slots_of(store: MessageStore, group: str, queues: Collection[MessageQueue] | None = None) -> list[GroupQueueSlot]:
    """Return the slots of a group, those of its broadcast members too, of all queues or of some."""
    return [
        slot
        for slot in store.groups
        if group_and_member(slot.group)[0] == group
        and (queues is None or store.topics.queue(slot.queue_slot) in queues)
    ]


def _lag_of(store: MessageStore, slots: list[GroupQueueSlot]) -> list[QueueLag]:
    clients = {(member.slot, member.incarnation): member.client_id for member in store.members().all()}
    found = [_queue_lag(store, slot, clients) for slot in slots]
    return sorted(found, key=lambda each: (each.topic, each.queue_id, each.member or ""))


def _queues(store: MessageStore, topic: str, queue_id: int | None) -> list[MessageQueue]:
    queues = store.topics.queues(topic)
    if queue_id is None:
        return queues
    store.topics.slot(MessageQueue(topic, queue_id))  # raises UnknownTopic
    return [MessageQueue(topic, queue_id)]


def _position(store: MessageStore, queue: MessageQueue, to: Position) -> int:
    low, high = store.topics.min_offset(queue), store.topics.max_offset(queue)
    if isinstance(to, datetime.datetime):
        if to.utcoffset() is None:
            raise ValueError(f"{to!r} names no time zone: write datetime(..., tzinfo=UTC), or .astimezone()")
        return store.queue_offset_by_time(queue, round(to.timestamp() * 1000))
    if isinstance(to, int):
        if not low <= to <= high:
            raise OffsetOutOfRange(
                f"offset {to}: queue {queue.queue_id} of {queue.topic!r} has {low} to {high}, where it ends; give one "
                "of these, or earliest or latest"
            )
        return to
    if to not in ("earliest", "latest"):
        raise ValueError(f"to={to!r}: give 'earliest', 'latest', a queue offset or a datetime")
    return low if to == "earliest" else high


def _seek_info(store: MessageStore, name: str, queue: MessageQueue, target: int) -> SeekInfo:
    slot = store.groups.find(name, store.topics.slot(queue))
    group, member = group_and_member(name)
    from_offset = None if slot is None else slot.committed_offset
    return SeekInfo(group, queue.topic, queue.queue_id, from_offset, target, member)


def _set_paused(
    store: MessageStore, group: str, topic: str | None, queue_id: int | None, *, paused: bool
) -> list[QueueLag]:
    check_group(group)
    slots = [slot for slot in _slots_of(store, group) if _is_meant(store, slot, topic, queue_id)]
    if not slots:
        where = "" if topic is None else f" topic {topic!r}" if queue_id is None else f" queue {queue_id} of {topic!r}"
        raise UnknownGroup(f"group {group!r} never consumed{where or ' anything'}: see `rmq group ls`")
    for slot in slots:
        with slot.locked(store.config.lock_timeout_ms):
            slot.store("paused", int(paused))
        if slot.load("owner"):
            store.state.signal_arrival((slot.load("owner") - 1) % layout.ARRIVAL_LANES)
    return _lag_of(store, slots)


def _is_meant(store: MessageStore, slot: GroupQueueSlot, topic: str | None, queue_id: int | None) -> bool:
    queue = store.topics.queue(slot.queue_slot)
    return topic in (None, queue.topic) and queue_id in (None, queue.queue_id)


def _start_offset(store: MessageStore, queue: MessageQueue, start: str | int) -> int:
    if isinstance(start, int):
        return store.queue_offset_by_time(queue, start)
    low, high = store.topics.min_offset(queue), store.topics.max_offset(queue)
    if start == "earliest":
        return low
    if start == "latest":
        return high
    if start.startswith("-") and start[1:].isdigit():
        return max(low, high - int(start[1:]))
    raise ValueError(f"start={start!r}: give earliest, latest or a number of messages from the end such as -100")


def _group_info(store: MessageStore, group: str, members: int) -> GroupInfo:
    queues = lag(store, group)
    return GroupInfo(
        group, tuple(sorted({queue.topic for queue in queues})), members, sum(queue.lag for queue in queues)
    )


def _queue_lag(store: MessageStore, slot: GroupQueueSlot, clients: dict[tuple[int, int], str]) -> QueueLag:
    queue = store.topics.queue(slot.queue_slot)
    committed = slot.committed_offset
    max_offset = store.topics.max_offset(queue)
    first = max(committed, store.topics.min_offset(queue))
    group, member = group_and_member(slot.group)
    owner = clients.get((slot.load("owner") - 1, slot.load("owner_incarnation")))
    return QueueLag(
        group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        committed_offset=committed,
        max_offset=max_offset,
        lag=max_offset - first,
        acknowledged_ahead=slot.acknowledged_bits().bit_count(),
        owner=owner,
        epoch=slot.load("epoch"),
        state=_state_of(slot, owner),
        member=member,
    )


def _state_of(slot: GroupQueueSlot, owner: str | None) -> str:
    if slot.load("paused"):
        return FlowControl.PAUSED.value
    if owner is None:
        return "no owner"
    flow_control = FlowControl.of_code(slot.load("flow_control"))
    if flow_control in (FlowControl.NONE, FlowControl.PAUSED):
        attempts = slot.load("held_attempts") & 0xFFFF_FFFF if slot.load("held_offset") else 0
        return FlowControl.RETRYING.value if attempts else "running"
    return str(flow_control.value)
