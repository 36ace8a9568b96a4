"""Offsets: what is asked and told about how far groups are. Requests 14, 15, 43 and 45."""

from __future__ import annotations

from collections.abc import Iterable

from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.heartbeats import check_group
from rmqclient.broker.groups.begins import Begins
from rmqclient.broker.groups.leases import Leases
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ASKED_BY_HANDLER, NOTHING, Route, of_topic_and_group
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.waiting.schedule import DELAY_LEVELS

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
