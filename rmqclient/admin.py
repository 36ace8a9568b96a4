"""Administration: what the command line shows and does, without a producer or consumer of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqclient.group import MemberTable
from rmqclient.message import ReceivedMessage
from rmqclient.names import check_group, check_topic
from rmqclient.producer import check_queue_count
from store import MessageQueue, MessageStore, StoreConfig, boottime, layout
from store import open_store as _open_store
from store.broker_conf import broker_conf as _broker_conf
from store.errors import MessageExpired
from store.group_table import GroupQueueSlot
from store.query import END_OF_TIME
from store.shared_state import arrival_lane_at, queue_slot_at


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
    """Open a store; as :func:`store.open_store`."""
    return _open_store(root, config, create=create, housekeeping=housekeeping)


def broker_conf(root: Path) -> str:
    """Return the ``broker.conf`` with which RocketMQ opens a store; as :func:`store.broker_conf.broker_conf`."""
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
    return TopicInfo(topic, queues, sum(queue.max_offset - queue.min_offset for queue in queues))


def create_topic(store: MessageStore, topic: str, queue_count: int) -> TopicInfo:
    """Make a topic, or return the one there is. Raises InvalidName, ValueError, TableFull."""
    store.topics.create(check_topic(topic), check_queue_count(queue_count))
    return topic_info(store, topic)


def clean(store: MessageStore, reserved_hours: int | None = None) -> CleanInfo:
    """Remove every commit log file that is older than the reserved time, now and by the clock as it stands.

    ``reserved_hours`` takes the place of the store's setting. The newest file always stays. Raises ValueError.
    """
    removed = 0
    while passed := store.retention.clean(requested=True, reserved_hours=reserved_hours):
        removed += len(passed)
    return CleanInfo(removed, removed * store.config.commit_log_file_bytes, store.state.min_offset)


def groups(store: MessageStore) -> list[GroupInfo]:
    """Return every group that has consumed or consumes, sorted by name."""
    members = MemberTable(store).all()
    names = sorted({*store.groups.groups(), *(member.group for member in members)})
    return [_group_info(store, name, sum(member.group == name for member in members)) for name in names]


def lag(store: MessageStore, group: str) -> list[QueueLag]:
    """Return the queues of a group, sorted by topic and queue id; empty for a group that never consumed."""
    check_group(group)
    clients = {(member.slot, member.incarnation): member.client_id for member in MemberTable(store).all()}
    slots = [slot for slot in store.groups if slot.group == group]
    return sorted((_queue_lag(store, slot, clients) for slot in slots), key=lambda found: (found.topic, found.queue_id))


def assignment(store: MessageStore, group: str) -> list[MemberAssignment]:
    """Return who has which queues of a group, by topic and client id, first what nobody has. Empty for no such group.

    A member without a queue is a spare. Seen one queue after the other: while queues move, one may be free.
    """
    check_group(group)
    members = {
        (member.slot, member.incarnation): member for member in MemberTable(store).all() if member.group == group
    }
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
    lane = boottime() % layout.ARRIVAL_LANES
    while True:
        seen = store.state.words.load32(arrival_lane_at(lane))
        for queue in positions:
            at = queue_slot_at(store.topics.slot(queue)) + layout.QUEUE_SLOT.at["waiting_lanes"]
            store.state.words.set_bits(at, 1 << lane)
        fresh = [message for queue in positions for message in _from(store, queue, positions)]
        yield from sorted(fresh, key=lambda message: message.commit_log_offset)
        if not fresh:
            if not follow:
                return
            store.state.words.wait(arrival_lane_at(lane), seen, poll_ms)


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
            yield store.message_at(queue, offset)


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
    return QueueLag(
        group=slot.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        committed_offset=committed,
        max_offset=max_offset,
        lag=max_offset - first,
        acknowledged_ahead=slot.acknowledged_bits().bit_count(),
        owner=clients.get((slot.load("owner") - 1, slot.load("owner_incarnation"))),
        epoch=slot.load("epoch"),
    )
