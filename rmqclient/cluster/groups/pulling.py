"""Pulling: long polls that prefetch the messages of one queue.

A request waits at the broker up to 15 s for a message. Its answer has up to 32 messages, and the next request follows
at once unless too many are prefetched. No thread waits: answers are handled on the I/O thread.

=================================  ===========================================================================
answer                             then
=================================  ===========================================================================
0 FOUND                            pass on the messages
19, 20 no new or matching message  continue at ``nextBeginOffset``
21 PULL_OFFSET_MOVED               the offset is outside the queue, or was reset: call ``moved``
25 SUBSCRIPTION_NOT_LATEST, ...    send a heartbeat, and retry a little later
any other, and no answer           retry after 0.1 s, then after longer pauses, up to 3 s
=================================  ===========================================================================

Each request has the tags, so a broker without the heartbeat filters correctly. It does not have an SQL expression: a
broker would parse it each time, and filter nothing if it cannot. [PullMessageService, PullAPIWrapper]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.prefetch import BATCH, Prefetch
from rmqclient.cluster.groups.subscriptions import TAG
from rmqclient.cluster.groups.timer_thread import TimerThread
from rmqclient.errors import QueueError, StoreClosed
from rmqclient.message import ReceivedMessage
from rmqclient.remoting.bodies import Subscription
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import error_of
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log
from rmqclient.store.wire import decode_records

_SUSPEND_MS: Final = 15_000
_TIMEOUT_S: Final = 30.0
_MAY_WAIT: Final = 2
_HAS_SUBSCRIPTION: Final = 4
_SHORTEST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 3.0
_NEEDS_HEARTBEAT: Final = frozenset(
    (
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    )
)

_log = Log(__name__)


class Pulling:
    """The long polls of one queue. Safe for threads.

    ``moved`` gets the next offset, on the I/O thread, if the requested one does not exist, or after a reset.
    """

    def __init__(
        self,
        client: ClusterClient,
        timers: TimerThread,
        group: str,
        queue: MessageQueue,
        subscription: Subscription,
        messages: Prefetch,
        moved: Callable[[int], None],
    ) -> None:
        self.offset = messages.next_offset
        """Queue offset that the next request asks for."""
        self.answered_at = time.monotonic()
        """Monotonic seconds of the broker's last answer."""
        self._client = client
        self._timers = timers
        self._group = group
        self._queue = queue
        self._subscription = subscription
        self._messages = messages
        self._moved = moved
        self._address = client.brokers.read_address(queue.broker_name)
        self._lock = threading.Lock()
        self._is_asking = False
        self._stopped = False
        self._asked_at = 0.0
        self._pause_s = 0.0
        self._complaint = ""

    def go_on(self) -> None:
        """Send a request, unless one is under way or too many messages are prefetched."""
        with self._lock:
            if self._is_asking or self._stopped or not self._messages.has_room:
                return
            self._is_asking = True
        self._ask()

    def stop(self) -> None:
        """Stop; a later answer is dropped."""
        self._stopped = True

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        self._client.submit(self._address, self._request(), self._answered, _TIMEOUT_S)

    def _ask_again(self) -> None:
        """Send the next request, to the current master. Not on the I/O thread."""
        try:
            self._address = self._client.brokers.read_address(self._queue.broker_name)
        except QueueError as error:
            self._later(error)
        else:
            self._ask()

    def _request(self) -> Frame:
        has_tags = self._subscription.expression_type == TAG
        return request(
            RequestCode.PULL_MESSAGE,
            consumerGroup=self._group,
            topic=self._client.url.wrap(self._queue.topic),
            queueId=self._queue.queue_id,
            queueOffset=self.offset,
            maxMsgNums=BATCH,
            sysFlag=_MAY_WAIT | (_HAS_SUBSCRIPTION if has_tags else 0),
            commitOffset=0,
            suspendTimeoutMillis=_SUSPEND_MS,
            subscription=self._subscription.expression if has_tags else None,
            subVersion=self._subscription.version,
            expressionType=self._subscription.expression_type,
        )

    def _answered(self, answer: Frame | QueueError) -> None:
        if self._stopped:
            return
        try:
            if isinstance(answer, QueueError):
                self._later(answer)
            elif answer.code in (
                ResponseCode.SUCCESS,
                ResponseCode.PULL_NOT_FOUND,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
            ):
                self._take(answer)
            elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
                self._move(answer)
            else:
                self._later(error_of(answer, self._address))
        except QueueError as error:
            self._later(error)

    def _take(self, answer: Frame) -> None:
        fields = response_fields(RequestCode.PULL_MESSAGE, answer)
        messages: list[ReceivedMessage] = []
        if answer.code == ResponseCode.SUCCESS:
            messages = decode_records(answer.body, self._queue, delivered=True)
        before, self.offset = self.offset, fields["nextBeginOffset"]
        self._answered_well()
        self._messages.add(messages, self.offset, fields["maxOffset"])
        self._follow(fields["suggestWhichBrokerId"])  # last, because it fails if the routes have just lost the broker
        if self.offset == before and time.monotonic() - self._asked_at < _SHORTEST_PAUSE_S:
            self._timers.after(_SHORTEST_PAUSE_S, self._end_of_pause)  # the broker does not hold requests
        else:
            self._end_of_pause()

    def _move(self, answer: Frame) -> None:
        fields = response_fields(RequestCode.PULL_MESSAGE, answer)
        self.offset = fields["nextBeginOffset"]
        self._answered_well()
        self._moved(self.offset)
        self._timers.after(_SHORTEST_PAUSE_S, self._end_of_pause)

    def _answered_well(self) -> None:
        self.answered_at = time.monotonic()
        self._pause_s, self._complaint = 0.0, ""

    def _follow(self, broker_id: int) -> None:
        """Use the suggested broker for the next request: a slave while the master reads from disk."""
        self._address = self._client.brokers.read_address(self._queue.broker_name, broker_id)

    def _end_of_pause(self) -> None:
        with self._lock:
            self._is_asking = False
        self.go_on()

    def _later(self, error: QueueError) -> None:
        """Retry after a pause. Logs the first of several equal errors."""
        if isinstance(error, StoreClosed):
            self.stop()
        if self._stopped:
            return
        self._pause_s = min(max(2 * self._pause_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        if type(error).__name__ != self._complaint:
            self._complaint = type(error).__name__
            _log.warning("group %s: pulling from %s: %s; it is tried again", self._group, self._queue, error)
        if getattr(error, "code", None) in _NEEDS_HEARTBEAT:
            self._timers.after(0.0, self._client.heartbeats.beat)
        self._timers.after(self._pause_s, self._ask_again)
