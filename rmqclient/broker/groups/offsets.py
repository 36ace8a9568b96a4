"""Offsets: how far groups are, and where a new one begins. Requests 14, 15, 43 and 45.

RocketMQ's broker answers 0 for a group without an offset when the first message of the queue is still in memory, so
CONSUME_FROM_LAST_OFFSET begins at the oldest message of young queues, and else 22, so the client decides
[ConsumerManageProcessor.queryConsumerOffset]. Here a new group of consumers that are pushed messages begins where it
asks to, as local groups do (:mod:`rmqclient.consuming.start_position`):

==========================  =======================================================================================
first offset                the oldest message of each queue
last offset                 the end of every queue as it was when the group's first member sent its first heartbeat
a time                      the client asks for it: 22
a queue of a retry topic,   its oldest message
one that came later, or
of a topic that the member
had to wait for
==========================  =======================================================================================

Any other client gets RocketMQ's answer, and a queue counts as young when it still has its first message.

A broadcast consumer keeps its offsets itself, and begins at the end, for which it asks (30) a moment after its
heartbeat. The answer is the end as it was at that heartbeat, until it has pulled: it misses nothing that was sent after
its start.
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


class Begins:
    """Remembers where the queues ended when new groups came. For the thread of the event loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._ends: dict[str, dict[str, Ends]] = {}

    def note(self, consumer: Consumer, awaits: Callable[[str], bool]) -> None:
        """Note where the queues end that a new group is about to consume.

        A topic that ``awaits`` says yes to was made after the consumer had come, so all of its messages are new to it.
        """
        ends = self._ends.setdefault(consumer.group, {})
        for topic in consumer.subscriptions:
            if topic in self._store.topics and (topic not in ends or consumer.is_broadcast):
                queues = self._store.topics.queues(topic)
                end_of = self._store.topics.min_offset if awaits(topic) else self._store.topics.max_offset
                now = {queue: end_of(queue) for queue in queues}
                ends.setdefault(topic, now)
                if consumer.is_broadcast:
                    consumer.begins = {**now, **consumer.begins}

    def forget(self, group: str) -> None:
        """Forget a group that has no remote member any more."""
        self._ends.pop(group, None)

    def offset(self, group: str, queue: MessageQueue, consumer: Consumer | None) -> int | None:
        """Return where a group goes on, or is to begin, in a queue; None when the client is to decide.

        ``consumer`` is the member that asks. A queue that does not exist is at 0.
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

    def __init__(self, store: MessageStore, clients: Clients, leases: Leases, begins: Begins) -> None:
        self._store = store
        self._clients = clients
        self._leases = leases
        self._begins = begins

    def routes(self) -> Iterable[Route]:
        """Declare the requests about offsets. The levels of delays are counters of the server, of no topic or group."""
        yield Route(RequestCode.QUERY_CONSUMER_OFFSET, self._query, needs=of_topic_and_group(), writes=False)
        yield Route(RequestCode.UPDATE_CONSUMER_OFFSET, self._update, needs=of_topic_and_group(), writes=True)
        yield Route(
            RequestCode.GET_ALL_CONSUMER_OFFSET, self._all_offsets, needs=ASKED_BY_HANDLER, writes=False, slow=True
        )
        yield Route(RequestCode.GET_ALL_DELAY_OFFSET, self._delay_offsets, needs=NOTHING, writes=False, slow=True)

    def _query(self, request: Request) -> Frame:
        group, queue = _subject(request)
        offset = self._begins.offset(group, queue, self._clients.consumer(group, request.peer))
        if offset is None and request.fields.get("setZeroIfNotFound"):
            offset = 0
        if offset is None:
            return request.failure(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND)
        return request.success(offset=offset)

    def _update(self, request: Request) -> Frame:
        """Set an offset. A commit of who has lost the queue is refused: the queue's owner has its own by now."""
        group, queue = _subject(request)
        try:
            refusal = self._leases.commit(request.peer, group, queue, request.fields["commitOffset"])
        except LookupError as error:
            return request.failure(ResponseCode.TOPIC_NOT_EXIST, str(error))
        return request.failure(ResponseCode.SYSTEM_ERROR, refusal) if refusal else request.success()

    def _all_offsets(self, request: Request) -> Frame:
        """Tell the offsets of every group that the client may read for."""
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
