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

from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.consumer import Consumer
from rmqclient.broker.clients.heartbeats import check_group
from rmqclient.broker.groups.leases import Leases
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ASKED_BY_HANDLER, NOTHING, Route, of_topic_and_group
from rmqclient.broker.stored_names import stored_group
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore
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


_NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class OffsetsRoom:
    """Answers requests about the offsets of groups."""

    def __init__(self, store: MessageStore, clients: Clients, leases: Leases, start_offsets: StartOffsets) -> None:
        self._store = store
        self._clients = clients
        self._leases = leases
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
        offset = self._start_offsets.offset(group, queue, self._clients.consumer(group, request.peer))
        if offset is None and request.fields.get("setZeroIfNotFound"):
            offset = 0
        if offset is None:
            return request.failure(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND)
        return request.success(offset=offset)

    def _update(self, request: Request) -> Frame:
        """Set an offset. Refuses a member that has lost the queue, because the new owner commits its own."""
        group, queue = _subject(request)
        try:
            refusal = self._leases.commit(request.peer, group, queue, request.fields["commitOffset"])
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
