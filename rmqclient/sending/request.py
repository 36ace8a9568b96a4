"""Request: a message whose sender waits for the reply.

Each requester has one thread. The thread follows the queue of the reply topic that its client id hashes to. It begins
where the queue ended when the oldest request that still waits was sent. It sleeps by a bell that the sender of a reply
rings. While no reply is awaited, replies to other requesters do not wake it.

==================================  =================================================================================
event                               effect
==================================  =================================================================================
a reply comes                       the request ends with it; a second reply is dropped
the time is over                    RequestTimeout [RequestTimeoutException]; a later reply is dropped
the handler raises, or is killed    the message is retried like any other; a retry within the time can still reply
the requester dies                  its replies stay in the reply topic until retention removes them
==================================  =================================================================================
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from rmqclient.backend import Backend
from rmqclient.backend.bells import ArrivalBell
from rmqclient.backend.pull_result import PullStatus
from rmqclient.duration import Duration, to_seconds
from rmqclient.errors import RequestTimeout
from rmqclient.filters.tag import TagFilter
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.sending.reply import reply_queue
from rmqclient.store import MessageQueue, default_client_id
from rmqclient.store.errors import StoreClosed
from rmqclient.store.inspect.broker_conf import REPLY_SUFFIX

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 0.5
"""A replier that is killed after it has published and before it rings leaves the sleeper asleep. It looks again after
this time."""
_IDLE_S = 3_600.0
_LOOKED_AT_ONCE = 1_024
"""Messages of one read."""


class RequestFuture(Future[ReceivedMessage]):
    """The reply to come: a future of :mod:`concurrent.futures` that can also be awaited.

    Its callbacks run in the thread that receives the replies, so they should be quick.
    """

    def __await__(self) -> Generator[Any, None, ReceivedMessage]:
        """Wait for it in an event loop."""
        import asyncio  # noqa: PLC0415 - takes long to import, and few need it

        return asyncio.wrap_future(self).__await__()


class _Awaited:
    """A request whose reply has not come."""

    __slots__ = ("began", "deadline", "future", "message_id", "seconds", "topic")

    def __init__(self, topic: str, seconds: float) -> None:
        self.topic = topic
        self.seconds = seconds
        self.began = time.monotonic()
        self.deadline = math.inf
        """On the monotonic clock; infinity until the request is sent."""
        self.message_id = ""
        self.future = RequestFuture()

    def end(self, outcome: ReceivedMessage | Exception) -> None:
        """Give the future its result or its exception, unless it was cancelled."""
        try:
            if not self.future.set_running_or_notify_cancel():
                return
            if isinstance(outcome, Exception):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)
        except BaseException:  # noqa: BLE001 - SystemExit of a callback: without this thread all others would wait on
            _log.exception("a callback of request %s failed", self.message_id)

    def late(self) -> RequestTimeout:
        return RequestTimeout(
            f"request {self.message_id} was stored in topic {self.topic!r}, and no reply came in {self.seconds:g} s; "
            "its handler may still be at work, or not have begun"
        )


class Requester:
    """Sends requests and receives their replies; safe for threads. The first request starts the thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.client_id = default_client_id()
        self._bell: ArrivalBell | None = None
        """The bell that the thread sleeps by; None before the thread is started."""
        self._wanted = TagFilter(frozenset({self.client_id}))
        self._changing = threading.Lock()
        self._awaited: dict[str, _Awaited] = {}
        self._due = math.inf
        """Earliest deadline of a request, on the monotonic clock."""
        self._wakes_at = math.inf
        """When the thread looks again even if no bell rings, on the monotonic clock."""
        self._queue: MessageQueue | None = None
        self._position = 0
        """Queue offset below which this requester has read every reply."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="rmq-replies", daemon=True)

    def request(
        self,
        send: Callable[[Message, str | None], SendResult],
        message: Message,
        sharding_key: str | None,
        timeout: Duration,
    ) -> RequestFuture:
        """Send a request by ``send`` and return the reply to come. Raises as ``send``, ValueError for the timeout."""
        seconds = _seconds(timeout)
        queue = self._queue or self._start()
        correlation_id = str(uuid.uuid4())
        awaited = _Awaited(message.topic, seconds)
        self._expect(correlation_id, awaited)
        try:
            sent = send(self._asking(message, correlation_id, seconds, queue), sharding_key)
        except BaseException:
            with self._changing:
                self._awaited.pop(correlation_id, None)
            raise
        self._time(awaited, sent.message_id)
        return awaited.future

    def close(self) -> None:
        """End the thread. Requests that still wait fail with StoreClosed. Closing twice does nothing."""
        with self._changing:
            self._closed = True
            left, self._awaited = list(self._awaited.values()), {}
        for awaited in left:
            awaited.end(StoreClosed(f"request {awaited.message_id}: its producer was closed before the reply came"))
        if self._bell is not None and self._thread is not threading.current_thread():
            self._bell.ring()
            self._thread.join()

    def _start(self) -> MessageQueue:
        self._backend.check_usable()
        queue = reply_queue(self._backend, self.client_id)
        with self._changing:
            if self._closed:
                raise StoreClosed("this producer was closed")
            if self._queue is None:
                self._bell, self._queue = self._backend.bell(), queue
                self._thread.start()
        return queue

    def _asking(self, message: Message, correlation_id: str, seconds: float, queue: MessageQueue) -> Message:
        envelope = {
            "CORRELATION_ID": correlation_id,
            "REPLY_TO_CLIENT": self.client_id,
            "TTL": str(max(1, round(seconds * 1000))),
            "CLUSTER": queue.topic.removesuffix(REPLY_SUFFIX),
        }
        properties = {**(message.properties or {}), **envelope}
        return Message(
            message.topic, message.body, tags=message.tags, keys=message.keys, properties=properties, flag=message.flag
        )

    def _expect(self, correlation_id: str, awaited: _Awaited) -> None:
        """Count a request among those that wait, before it is sent."""
        assert self._queue is not None
        with self._changing:
            if self._closed:
                raise StoreClosed("this producer was closed")
            if not self._awaited:  # the replies in the queue now are for requests that have ended
                self._position = max(self._position, self._backend.span(self._queue).max_offset)
            self._awaited[correlation_id] = awaited

    def _time(self, awaited: _Awaited, message_id: str) -> None:
        """Give a request that was sent its deadline. Its time runs from when the request was begun."""
        with self._changing:
            awaited.message_id = message_id
            awaited.deadline = awaited.began + awaited.seconds
            self._due = min(self._due, awaited.deadline)
            is_to_wake = awaited.deadline < self._wakes_at
        if is_to_wake and self._bell is not None:
            self._bell.ring()

    def _run(self) -> None:
        assert self._queue is not None
        assert self._bell is not None
        queue, bell = self._queue, self._bell
        while not self._closed:
            heard = bell.heard()
            pause_s = _IDLE_S
            if self._is_awaiting():
                bell.arm(queue)  # before the look: a sender from now on wakes this thread
                pause_s = self._step(queue)
            bell.wait(heard, pause_s)

    def _step(self, queue: MessageQueue) -> float:
        """Receive replies and end late requests; return for how many seconds the thread may sleep."""
        try:
            self._look(queue)
            return self._expire()
        except Exception as error:  # noqa: BLE001 - without this thread all would wait on
            _log.error("replies to %s cannot be received: %s: %s", self.client_id, type(error).__name__, error)
            self._fail_all(error)
            return 0.0

    def _is_awaiting(self) -> bool:
        with self._changing:
            if not self._awaited:
                self._wakes_at = math.inf
            return bool(self._awaited)

    def _look(self, queue: MessageQueue) -> None:
        """Receive the replies that have come."""
        found = None
        while found is None or found.status is not PullStatus.NO_NEW_MESSAGE:
            found = self._backend.read(queue, self._position, _LOOKED_AT_ONCE, self._wanted)
            for reply in found.messages:
                self._receive(reply)
            with self._changing:
                self._position = max(self._position, found.next_offset)

    def _receive(self, reply: ReceivedMessage) -> None:
        correlation_id = reply.some_properties((b"CORRELATION_ID",)).get("CORRELATION_ID", "")
        with self._changing:
            awaited = self._awaited.pop(correlation_id, None)
        if awaited is not None:
            awaited.end(reply)

    def _expire(self) -> float:
        """End the requests whose time is over; return the seconds until the next deadline."""
        now = time.monotonic()
        late: list[_Awaited] = []
        with self._changing:
            if now >= self._due:
                late = [awaited for awaited in self._awaited.values() if awaited.deadline <= now]
                self._awaited = {name: each for name, each in self._awaited.items() if each.deadline > now}
                self._due = min((each.deadline for each in self._awaited.values()), default=math.inf)
            self._wakes_at = min(self._due, now + _LONGEST_WAIT_S)
            pause_s = self._wakes_at - now
        for awaited in sorted(late, key=lambda each: each.deadline):  # a thread that was late finds several at once
            awaited.end(awaited.late())
        return pause_s

    def _fail_all(self, error: Exception) -> None:
        with self._changing:
            left, self._awaited = list(self._awaited.values()), {}
        for awaited in left:
            awaited.end(error)


def _seconds(timeout: Duration) -> float:
    seconds = to_seconds("timeout", timeout)
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"timeout={timeout!r}: give a timedelta or seconds, above 0")
    return seconds
