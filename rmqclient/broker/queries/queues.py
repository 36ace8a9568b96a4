"""Queue queries: offsets of queues, offsets by time, and entries.

Requests 29 to 32, 308 and 321. A missing queue is not an error: it begins and ends at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ANY, SUB, Route, of_topic, of_topic_and_group
from rmqclient.broker.topics.topics import Topics
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore, java_hash
from rmqclient.store.errors import MessageExpired, StoreCorrupt

_MOST_ENTRIES: Final = 1_024
"""Entries of one answer to 321, at most."""

_NEVER: Final = 2**63 - 1


class QueueQueries:
    """The room of queries about queues."""

    def __init__(self, store: MessageStore, topics: Topics, clients: Clients) -> None:
        self._store = store
        self._topics = topics
        self._clients = clients

    def routes(self) -> Iterable[Route]:
        """Declare the queries. Begin and end are in memory, the others may read the disk."""
        yield Route(RequestCode.GET_MAX_OFFSET, self.max_offset, needs=of_topic(ANY), writes=False)
        yield Route(RequestCode.GET_MIN_OFFSET, self.min_offset, needs=of_topic(ANY), writes=False)
        for code, answer, needs in (
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.offset_by_time, of_topic(ANY)),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, self.earliest_time, of_topic(ANY)),
            (RequestCode.QUERY_CORRECTION_OFFSET, self.correction_offsets, of_topic_and_group("compareGroup")),
            (RequestCode.QUERY_CONSUME_QUEUE, self.entries, of_topic(SUB)),
        ):
            yield Route(code, answer, needs=needs, writes=False, slow=True)

    def max_offset(self, request: Request) -> Frame:
        """Answer 30: the end of the queue; for a new broadcast consumer, the end when it came."""
        end = self._span(request.fields).stop
        begin = self._clients.begin(request.peer, self._queue(request.fields))
        return request.success(offset=end if begin is None else begin)

    def min_offset(self, request: Request) -> Frame:
        """Answer 31: the offset of the oldest message."""
        return request.success(offset=self._span(request.fields).start)

    def offset_by_time(self, request: Request) -> Frame:
        """Answer 29: the first message stored at a time or later; the end of the queue if there is no such message.

        RocketMQ 4.9 answers the nearest message, which may be an earlier one, and the last one for a time after all.
        This is the lower boundary of RocketMQ 5; with ``boundaryType`` upper: the last one stored at the time or
        before.
        """
        fields = request.fields
        queue, span = self._queue(fields), self._span(fields)
        if not span:
            return request.success(offset=span.start)
        if fields.get("boundaryType", "").lower() == "upper":
            following = self._store.messages.offset_by_time(queue, min(fields["timestamp"], _NEVER - 1) + 1)
            return request.success(offset=max(following - 1, span.start))
        return request.success(offset=self._store.messages.offset_by_time(queue, fields["timestamp"]))

    def earliest_time(self, request: Request) -> Frame:
        """Answer 32: when the oldest message was stored, in ms since 1970; -1 for an empty queue."""
        queue = self._queue(request.fields)
        for offset in self._span(request.fields)[:_MOST_ENTRIES]:
            try:
                return request.success(timestamp=self._store.messages.at(queue, offset).store_timestamp)
            except (MessageExpired, StoreCorrupt):  # the next one is the oldest that can be read
                continue
        return request.success(timestamp=-1)

    def correction_offsets(self, request: Request) -> Frame:
        """Answer 308: the smallest offset of a topic's groups in each queue, without ``filterGroups``.

        Where it is beyond that of ``compareGroup``, the answer is the largest number.
        [ConsumerOffsetManager.queryMinOffsetInAllGroup]
        """
        fields = request.fields
        topic, left_out = fields["topic"], (fields.get("filterGroups") or "").split(",")
        slowest: dict[int, int] = {}
        compared: dict[int, int] = {}
        for slot in self._store.groups:
            queue = self._store.topics.queue(slot.queue_slot)
            if queue.topic == topic:
                number, offset = queue.queue_id, slot.finished_to
                if slot.group not in left_out and offset >= self._store.topics.min_offset(queue):
                    slowest[number] = min(offset, slowest.get(number, offset))
                if slot.group == fields["compareGroup"]:
                    compared[number] = offset
        found = {
            number: _NEVER if number in compared and offset > compared[number] else offset
            for number, offset in slowest.items()
        }
        return request.success(bodies.CorrectionOffsets(found).encode())

    def entries(self, request: Request) -> Frame:
        """Answer 321: entries of a consume queue, and whether their tags match a group's subscription."""
        fields = request.fields
        queue, index = self._queue(fields), fields.get("index", 0)
        known = self._span(fields)
        if index not in known:
            return request.success(remark=f"Index {index} of {queue.queue_id}@{queue.topic} is not exist!")
        entries = self._store.consume_queues[queue]
        stop = min(known.stop, index + max(0, min(fields.get("count", 0), _MOST_ENTRIES)))
        stop = min(stop, entries.first_entry_of(index) + entries.entries_per_file)
        subscription = self._clients.subscription(fields.get("consumerGroup") or "", queue.topic)
        codes = _codes(subscription)
        found = [
            bodies.QueueEntry(
                commit_log_offset=entry.commit_log_offset,
                size=entry.size,
                tags_code=entry.tags_code,
                passes=subscription is not None and (not codes or entry.tags_code in codes),
            )
            for entry in entries.entries(index, stop)
        ]
        return request.success(bodies.QueueEntries(tuple(found), known.start, known.stop, subscription).encode())

    def _queue(self, fields: Mapping[str, Any]) -> MessageQueue:
        return MessageQueue(fields.get("topic") or "", fields.get("queueId", 0))

    def _span(self, fields: Mapping[str, Any]) -> range:
        """Return the offsets of a queue; empty for a missing one."""
        queue, topics = self._queue(fields), self._store.topics
        if queue not in self._topics.queues(queue.topic):
            return range(0)
        return range(topics.min_offset(queue), topics.max_offset(queue))


def _codes(subscription: bodies.Subscription | None) -> set[int]:
    """Return the hashes of a subscription's tags; empty for all messages, and for another kind of filter."""
    if subscription is None or subscription.expression_type not in ("", "TAG") or subscription.expression in ("", "*"):
        return set()
    return {java_hash(tag.strip()) for tag in subscription.expression.split("||")}
