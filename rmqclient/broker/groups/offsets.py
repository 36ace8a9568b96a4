"""Offsets: offsets of groups, and start offsets of new ones. Requests 14, 15, 43 and 45.

For a group without an offset RocketMQ's broker answers 0 if the queue's first message is still in memory, so that
CONSUME_FROM_LAST_OFFSET begins at the oldest message of a young queue; otherwise it answers 22, and the client decides
[ConsumerManageProcessor.queryConsumerOffset]. Here a new group of push consumers begins where its settings say, as
local groups do (:mod:`rmqclient.consuming.start_position`):

==========================  =======================================================================================
first offset                the oldest message of each queue
last offset                 the end of every queue as it was when the group's first member sent its first heartbeat
a time                      22: the client looks up the offset
a queue of a retry topic,   its oldest message
one that came later, or
of a topic that the member
had to wait for
==========================  =======================================================================================

Any other client gets RocketMQ's answer; a queue counts as young while it still has its first message.

A broadcast consumer stores its own offsets and begins at the end, which it asks for (30) a moment after its heartbeat.
Until it has pulled, the answer is the end at that heartbeat, so it misses nothing that was sent after its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rmqclient.broker.address import Address
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.heartbeats import check_group
from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.groups.fences import Fences
from rmqclient.broker.groups.lease import named
from rmqclient.broker.groups.leases import Leases
from rmqclient.broker.groups.seats import Seats
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.request import Peer, Request
from rmqclient.broker.routes import ASKED_BY_HANDLER, NOTHING, Route, of_topic_and_group
from rmqclient.broker.stored_names import stored_group
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.waiting.schedule import DELAY_LEVELS

Ends = dict[MessageQueue, int]


class StartOffsets:
    """Remembers the end of each queue when a new group came. For the thread of the event loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._ends: dict[str, dict[str, Ends]] = {}

    def note(self, consumer: Consumer, awaits: Callable[[str], bool]) -> None:
        """Note the ends of the queues that a new group is about to consume.

        ``awaits(topic)`` is true for a topic that was made after the consumer came: it gets all of its messages.
        """
        ends = self._ends.setdefault(consumer.group, {})
        for topic in consumer.subscriptions:
            if topic in self._store.topics and (topic not in ends or consumer.is_broadcast):
                queues = self._store.topics.queues(topic)
                end_of = self._store.topics.min_offset if awaits(topic) else self._store.topics.max_offset
                now = {queue: end_of(queue) for queue in queues}
                ends.setdefault(topic, now)
                if consumer.is_broadcast:
                    consumer.start_offsets = {**now, **consumer.start_offsets}

    def forget(self, group: str) -> None:
        """Forget a group that has no remote members left."""
        self._ends.pop(group, None)

    def offset(self, group: str, queue: MessageQueue, consumer: Consumer | None) -> int | None:
        """Return the offset, or start offset, of a group in a queue; None if the client decides.

        ``consumer`` is the member that asks. A queue that does not exist has offset 0.
        """
        topics = self._store.topics
        try:
            slot = self._store.groups.find(stored_group(group), topics.slot(queue))
            oldest = topics.min_offset(queue)
        except LookupError:
            return 0
        if slot is not None:
            return slot.committed_offset
        if consumer is None or not consumer.shares_queues:
            return oldest if oldest == 0 else None
        if consumer.consume_from is bodies.ConsumeFrom.CONSUME_FROM_FIRST_OFFSET or queue.topic.startswith(
            RETRY_PREFIX
        ):
            return oldest
        if consumer.consume_from is bodies.ConsumeFrom.CONSUME_FROM_TIMESTAMP:
            return None
        return self._ends.get(group, {}).get(queue.topic, {}).get(queue, oldest)


_OWNED = ": a local member has the queue"


class Commits:
    """Sets offsets of groups for clients. For the thread of the event loop."""

    def __init__(
        self,
        store: MessageStore,
        seats: Seats,
        clients: Clients,
        leases: Leases,
        fences: Fences,
        settings: GroupSettings,
        counters: Counters,
    ) -> None:
        self._store = store
        self._seats = seats
        self._clients = clients
        self._leases = leases
        self._fences = fences
        self._settings = settings
        self._counters = counters

    def commit(self, peer: Peer, group: str, queue: MessageQueue, offset: int) -> str:
        """Set a group's offset in a queue. Returns the refusal, for a member that has lost the queue; else ``""``.

        A client that is not a member, such as an administrator's, may commit for a remote member. If the queue has no
        owner, a member may only move forwards. Raises UnknownTopic, TableFull, StoreBusy.
        """
        why = self._refused(self._clients.consumers.find(group, peer), peer.remote, group, queue, offset)
        if not why:
            return ""
        text = f"{offset} of {named(queue)}{why}"
        self._counters.refuse(Refusal.COMMIT, f"group {group}: a commit is refused: {text}")
        return f"group {group!r}: offset {text}"

    def _refused(self, consumer: Consumer | None, client: Address, group: str, queue: MessageQueue, offset: int) -> str:
        """Set an offset, or return why not. ``consumer`` is the member that commits."""
        end = self._store.topics.max_offset(queue)
        if not 0 <= offset <= end:
            return f" is outside of {self._store.topics.min_offset(queue)} to {end}"
        lease = self._leases.find(group, queue)
        if lease is not None and lease.grant is not None:
            if consumer is not None and lease.consumer is not consumer:
                return f": {lease.consumer.client_id} has it"
            slot = self._leases.slot(group, queue)
            if slot is None or slot.commit(offset, lease.grant.epoch, self._store.config.lock_timeout_ms):
                lease.committed_at = lease.consumer.seen_at = self._store.state.awake.ran_s()
                return ""
            return f": {lease.consumer.client_id} has lost the queue"
        if self._leases.is_moved(group, queue, consumer, offset):
            return ": the group was moved to another place"
        self._settings.auto_create(group, client)
        found = self._seats.slots.find_or_add(group, queue, offset, client)
        if found is None:
            return f": the clients of {client.host} take too many places"
        return self._refused_without_lease(consumer, found, offset)

    def _refused_without_lease(self, consumer: Consumer | None, slot: GroupQueueSlot, offset: int) -> str:
        if self._seats.has_owner(slot):
            return _OWNED
        if slot.fence_left_ns:
            why = self._fences.commit(consumer, slot, offset)
            return why and f": {why}"
        with slot.locked(self._store.config.lock_timeout_ms):
            is_back = offset < slot.committed_offset
            if slot.load("owner") and self._seats.has_owner(slot):
                return _OWNED
            if is_back and consumer is not None and consumer.shares_queues:
                return f" is below {slot.committed_offset}"
            if offset != slot.committed_offset:
                slot.seek(offset)
        return ""


_NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class OffsetsRoom:
    """Answers requests about the offsets of groups."""

    def __init__(self, store: MessageStore, clients: Clients, commits: Commits, start_offsets: StartOffsets) -> None:
        self._store = store
        self._clients = clients
        self._commits = commits
        self._start_offsets = start_offsets

    def routes(self) -> Iterable[Route]:
        """Declare the requests about offsets. Those of delay levels belong to the server, to no topic or group."""
        yield Route(RequestCode.QUERY_CONSUMER_OFFSET, self._query, needs=of_topic_and_group(), writes=False)
        yield Route(RequestCode.UPDATE_CONSUMER_OFFSET, self._update, needs=of_topic_and_group(), writes=True)
        yield Route(
            RequestCode.GET_ALL_CONSUMER_OFFSET, self._all_offsets, needs=ASKED_BY_HANDLER, writes=False, slow=True
        )
        yield Route(RequestCode.GET_ALL_DELAY_OFFSET, self._delay_offsets, needs=NOTHING, writes=False, slow=True)

    def _query(self, request: Request) -> Frame:
        group, queue = _subject(request)
        offset = self._start_offsets.offset(group, queue, self._clients.consumers.find(group, request.peer))
        if offset is None and request.fields.get("setZeroIfNotFound"):
            offset = 0
        if offset is None:
            return request.failure(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND)
        return request.success(offset=offset)

    def _update(self, request: Request) -> Frame:
        """Set an offset. Refuses a member that has lost the queue, because the new owner commits its own."""
        group, queue = _subject(request)
        try:
            refusal = self._commits.commit(request.peer, group, queue, request.fields["commitOffset"])
        except LookupError as error:
            return request.failure(ResponseCode.TOPIC_NOT_EXIST, str(error))
        return request.failure(ResponseCode.SYSTEM_ERROR, refusal) if refusal else request.success()

    def _all_offsets(self, request: Request) -> Frame:
        """Answer the offsets of all groups that the client may read."""
        table: dict[str, dict[int, int]] = {}
        for slot in self._store.groups:
            if request.reads_group(slot.group):
                queue = self._store.topics.queue(slot.queue_slot)
                table.setdefault(f"{queue.topic}@{slot.group}", {})[queue.queue_id] = slot.committed_offset
        return request.success(bodies.OffsetTable(table).encode(as_fastjson=True))

    def _delay_offsets(self, request: Request) -> Frame:
        offsets = {level: self._store.schedule.next_offset(level) for level in DELAY_LEVELS}
        known = {level: offset for level, offset in offsets.items() if offset}
        return request.success(bodies.DelayOffsets(known).encode(as_fastjson=True))


def _subject(request: Request) -> tuple[str, MessageQueue]:
    fields = request.fields
    return check_group(fields["consumerGroup"]), MessageQueue(fields["topic"], fields["queueId"])
