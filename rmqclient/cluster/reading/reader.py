"""Reader: pulls messages of queues without being a member of a group.

Administrators read as the group ``TOOLS_CONSUMER``, which every broker has and which has no offsets. It needs no
heartbeat, because each pull has its subscription. [MQAdminImpl, PullMessageProcessor]
"""

from __future__ import annotations

from typing import Final

from rmqclient.backend.protocols import Span
from rmqclient.backend.pull_result import PullResult, PullStatus
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import RecordsDamaged
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields
from rmqclient.store import MessageQueue
from rmqclient.store.wire import decode_records

READER_GROUP: Final = "TOOLS_CONSUMER"  # MixAll.TOOLS_CONSUMER_GROUP
EVERY_TAG: Final = TagFilter(frozenset())

_MAY_WAIT: Final = 2  # PullSysFlag
_HAS_SUBSCRIPTION: Final = 4
_NOT_FOUND: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class Reader:
    """Reads the queues of one cluster. Safe for threads. Methods raise as a call.

    ``group`` is its name on the wire. If a master is away, its slaves are asked, unless ``masters_only``.
    """

    def __init__(self, client: ClusterClient, group: str = READER_GROUP, *, masters_only: bool = False) -> None:
        self._client = client
        self._group = group
        self._address = client.brokers.address if masters_only else client.brokers.read_address

    def span(self, queue: MessageQueue) -> Span:
        """Return the range of offsets that a queue has; a broker answers 0 and 0 for a missing queue."""
        low, high = self._offset(RequestCode.GET_MIN_OFFSET, queue), self._offset(RequestCode.GET_MAX_OFFSET, queue)
        return Span(min(low, high), high)

    def read(self, queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on with a wanted tag.

        A broker returns 32 messages at most, or 8 that it has to read from disk. Raises RecordsDamaged.
        """
        asked = self.pull(queue, offset, limit, wanted.expression)
        answer = self._client.call(self._address(queue.broker_name), asked, also=_NOT_FOUND)
        return _result(queue, offset, answer, wanted)

    def first_in(self, queue: MessageQueue, offsets: range) -> ReceivedMessage | None:
        """Return the first message at one of these offsets, or None. Damaged messages are skipped."""
        offset = offsets.start
        while offset < offsets.stop:
            try:
                result = self.read(queue, offset, 1, EVERY_TAG)
            except RecordsDamaged:
                offset += 1
                continue
            if result.messages:
                return result.messages[0] if result.messages[0].queue_offset < offsets.stop else None
            if result.next_offset <= offset:
                return None
            offset = result.next_offset
        return None

    def first_since(self, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
        """Return the first of the ``known`` offsets whose message was stored then or later, or else their end.

        This is a binary search over messages: a broker's own answer may be an earlier message near that time
        (ConsumeQueue.getOffsetInQueueByTime).
        """
        low, high = known.start, known.stop
        while low < high:
            middle = (low + high) // 2
            found = self.first_in(queue, range(middle, high))
            if found is None or found.store_timestamp >= timestamp_ms:
                high = middle
            else:
                low = found.queue_offset + 1
        return low

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        limit: int,
        expression: str = "*",
        *,
        wait_ms: int = 0,
    ) -> Frame:
        """Return a request that pulls messages of a queue, by this group.

        At the end of the queue the broker holds it for up to ``wait_ms``.
        """
        return request(
            RequestCode.PULL_MESSAGE,
            consumerGroup=self._group,
            topic=self._client.url.wrap(queue.topic),
            queueId=queue.queue_id,
            queueOffset=offset,
            maxMsgNums=limit,
            sysFlag=_HAS_SUBSCRIPTION | (_MAY_WAIT if wait_ms else 0),
            commitOffset=0,
            suspendTimeoutMillis=wait_ms,
            subscription=expression,
            subVersion=0,
            expressionType="TAG",
        )

    def _offset(self, code: RequestCode, queue: MessageQueue) -> int:
        asked = request(code, topic=self._client.url.wrap(queue.topic), queueId=queue.queue_id)
        answer = self._client.call(self._address(queue.broker_name), asked)
        return int(response_fields(code, answer)["offset"])


def _result(queue: MessageQueue, offset: int, answer: Frame, wanted: TagFilter) -> PullResult:
    fields = response_fields(RequestCode.PULL_MESSAGE, answer)
    following, low, high = fields["nextBeginOffset"], fields["minOffset"], fields["maxOffset"]
    if answer.code == ResponseCode.PULL_OFFSET_MOVED:
        return PullResult(PullStatus.OFFSET_ILLEGAL, following, low, high)
    if answer.code == ResponseCode.SUCCESS:
        messages = tuple(message for message in decode_records(answer.body, queue) if wanted.matches(message.tags))
        status = PullStatus.FOUND if messages else PullStatus.NO_MATCHED_MESSAGE
        return PullResult(status, following, low, high, messages)
    if following > offset or answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        return PullResult(PullStatus.NO_MATCHED_MESSAGE, following, low, high)
    return PullResult(PullStatus.NO_NEW_MESSAGE, following, low, high)
