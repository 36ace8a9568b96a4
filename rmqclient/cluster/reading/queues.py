"""Queues: reads a cluster's queues; checks first that they exist."""

from __future__ import annotations

from rmqclient.backend.protocols import Span
from rmqclient.backend.pull_result import PullResult
from rmqclient.backend.updates import MessageUpdates
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.reading.arrival_bell import ArrivalBell
from rmqclient.cluster.reading.reader import EVERY_TAG, Reader
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageQueue
from rmqclient.store.errors import MessageExpired, UnknownTopic

_READ_AT_ONCE = 32


class Queues(Reader):
    """The queues of one cluster. Safe for threads. Methods raise UnknownTopic, and as a call."""

    def __init__(self, client: ClusterClient) -> None:
        super().__init__(client)
        self.ends: dict[MessageQueue, int] = {}
        """The max offset of each queue in a broker's last answer."""

    def span(self, queue: MessageQueue) -> Span:
        """Return the range of offsets that a queue has."""
        self.check(queue)
        span = super().span(queue)
        self.ends[queue] = span.max_offset
        return span

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored then or later, or else the max offset."""
        return self.first_since(queue, range(*self.span(queue)), timestamp_ms)

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its queue offset. Raises MessageExpired if the queue has no message there."""
        result = self.read(queue, queue_offset, 1, EVERY_TAG)
        if result.messages and result.messages[0].queue_offset == queue_offset:
            return result.messages[0]
        raise MessageExpired(
            f"{queue} has no message at {queue_offset}: it has {result.min_offset} to {result.max_offset}, its end"
        )

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return messages as a :class:`Reader` does."""
        self.check(queue)
        result = super().read(queue, offset, limit, wanted)
        self.ends[queue] = result.max_offset
        return result

    def bell(self) -> ArrivalBell:
        """Return a bell that rings when messages come to armed queues."""
        return ArrivalBell(self._client, self, self.ends)

    def update_reader(self) -> MessageUpdates:
        """Return a reader of keys and values for one table."""
        return MessageUpdates(
            lambda queue, offset: self.read(queue, offset, _READ_AT_ONCE, EVERY_TAG),
            lambda message: message.store_timestamp << 64 | message.commit_log_offset,
            reads_in_order=False,
        )

    def check(self, queue: MessageQueue) -> None:
        """Raise UnknownTopic for a missing queue, for which brokers would answer 0."""
        if queue not in self._client.routes.read_queues(queue.topic):
            self._client.routes.forget(queue.topic)  # it may have been made since the last route
            if queue not in (known := self._client.routes.read_queues(queue.topic)):
                names = ", ".join(sorted({each.broker_name for each in known})) or "none"
                raise UnknownTopic(
                    f"topic {queue.topic!r} has no readable queue {queue.queue_id} on broker {queue.broker_name!r}; "
                    f"brokers with queues of it: {names}"
                )
