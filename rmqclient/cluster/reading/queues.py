"""Queues: which messages a queue has, and reading them, without being a member of a group.

Reads are pulls of the group ``TOOLS_CONSUMER``, which every broker has for administrators: it has no offsets, and needs
no heartbeat, because each pull brings its subscription. [MQAdminImpl, PullMessageProcessor]
"""

from __future__ import annotations

from typing import Final

from rmqclient.backend.protocols import Span
from rmqclient.backend.pull_result import PullResult, PullStatus
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields
from rmqclient.store import MessageQueue
from rmqclient.store.errors import MessageExpired, UnknownTopic
from rmqclient.store.wire import decode_records

READER_GROUP: Final = "TOOLS_CONSUMER"  # MixAll.TOOLS_CONSUMER_GROUP
MAY_WAIT: Final = 2
HAS_SUBSCRIPTION: Final = 4

_NOT_FOUND: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
_EVERY_TAG: Final = TagFilter(frozenset())


class Queues:
    """The queues of one cluster; safe for threads. Methods raise UnknownTopic, and the errors of a call."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.ends: dict[MessageQueue, int] = {}
        """The max offset of each queue, as a broker told it last."""

    def span(self, queue: MessageQueue) -> Span:
        """Return which messages a queue has."""
        self.check(queue)
        low, high = self._offset(RequestCode.GET_MIN_OFFSET, queue), self._offset(RequestCode.GET_MAX_OFFSET, queue)
        self.ends[queue] = high
        return Span(min(low, high), high)

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored then or later; the max offset when there is none.

        It looks at messages, by halves: a broker itself answers with a message near that time, which may be an earlier
        one (ConsumeQueue.getOffsetInQueueByTime).
        """
        low, high = self.span(queue)
        while low < high:
            middle = (low + high) // 2
            found = self._first_from(queue, middle, high)
            if found is None or found.store_timestamp >= timestamp_ms:
                high = middle
            else:
                low = found.queue_offset + 1
        return low

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its place in a queue. Raises MessageExpired when the queue has none there."""
        result = self.read(queue, queue_offset, 1, _EVERY_TAG)
        if result.messages and result.messages[0].queue_offset == queue_offset:
            return result.messages[0]
        raise MessageExpired(
            f"{queue} has no message at {queue_offset}: it has {result.min_offset} to {result.max_offset}, its end"
        )

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return messages from ``offset`` on with a wanted tag: up to ``limit``, and no more than the broker gives.

        A broker gives up to 32 messages, or 8 of those that it has to read from its disk. Raises RecordsDamaged.
        """
        self.check(queue)
        answer = self._client.call(
            self._client.routes.read_address(queue.broker_name),
            self.pull(queue, offset, limit, wanted.expression),
            also=_NOT_FOUND,
        )
        return self._result(queue, offset, answer, wanted)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        limit: int,
        expression: str = "*",
        *,
        group: str = READER_GROUP,
        wait_ms: int = 0,
    ) -> Frame:
        """Return the request for messages of a queue. The broker keeps it for up to ``wait_ms`` if there are none."""
        return request(
            RequestCode.PULL_MESSAGE,
            consumerGroup=group,
            topic=self._client.url.wrap(queue.topic),
            queueId=queue.queue_id,
            queueOffset=offset,
            maxMsgNums=limit,
            sysFlag=HAS_SUBSCRIPTION | (MAY_WAIT if wait_ms else 0),
            commitOffset=0,
            suspendTimeoutMillis=wait_ms,
            subscription=expression,
            subVersion=0,
            expressionType="TAG",
        )

    def check(self, queue: MessageQueue) -> None:
        """Raise UnknownTopic for a queue that the cluster does not have: brokers answer 0 for those."""
        if queue not in self._client.routes.read_queues(queue.topic):
            self._client.routes.forget(queue.topic)  # it may have been made since then
            if queue not in (known := self._client.routes.read_queues(queue.topic)):
                names = ", ".join(sorted({each.broker_name for each in known})) or "none"
                raise UnknownTopic(
                    f"topic {queue.topic!r} has no readable queue {queue.queue_id} on broker {queue.broker_name!r}; "
                    f"brokers with queues of it: {names}"
                )

    def _result(self, queue: MessageQueue, offset: int, answer: Frame, wanted: TagFilter) -> PullResult:
        fields = response_fields(RequestCode.PULL_MESSAGE, answer)
        following, low, high = fields["nextBeginOffset"], fields["minOffset"], fields["maxOffset"]
        self.ends[queue] = high
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            return PullResult(PullStatus.OFFSET_ILLEGAL, following, low, high)
        if answer.code == ResponseCode.SUCCESS:
            messages = tuple(message for message in decode_records(answer.body, queue) if wanted.matches(message.tags))
            status = PullStatus.FOUND if messages else PullStatus.NO_MATCHED_MESSAGE
            return PullResult(status, following, low, high, messages)
        if following > offset or answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            return PullResult(PullStatus.NO_MATCHED_MESSAGE, following, low, high)
        return PullResult(PullStatus.NO_NEW_MESSAGE, following, low, high)

    def _first_from(self, queue: MessageQueue, offset: int, end: int) -> ReceivedMessage | None:
        """Return the first message at an offset or behind it, below ``end``."""
        while offset < end:
            result = self.read(queue, offset, 1, _EVERY_TAG)
            if result.messages:
                return result.messages[0] if result.messages[0].queue_offset < end else None
            if result.next_offset <= offset:
                return None
            offset = result.next_offset
        return None

    def _offset(self, code: RequestCode, queue: MessageQueue) -> int:
        asked = request(code, topic=self._client.url.wrap(queue.topic), queueId=queue.queue_id)
        answer = self._client.call(self._client.routes.read_address(queue.broker_name), asked)
        return int(response_fields(code, answer)["offset"])
