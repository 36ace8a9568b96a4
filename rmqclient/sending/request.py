"""Request: a message whose sender waits for the reply.

One thread per requester follows the queue of the reply topic that its client id hashes to, from where the queue ended
when the first request of those that still wait was sent. It sleeps on an arrival lane, which the sender of a reply
wakes; as long as nothing is awaited, replies to others do not wake it.

==================================  =================================================================================
what happens                        then
==================================  =================================================================================
a reply comes                       the request has it; a second one is dropped
the time is over                    RequestTimeout [RequestTimeoutException]; a reply that comes later is dropped
the handler raises, or is killed    it is retried as any message is: a retry within the time is still a reply
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
from rmqclient.backend.protocols import ArrivalBell
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
"""A replier killed between publishing and waking leaves a sleeper, which looks again by itself after so long."""
_IDLE_S = 3_600.0
_LOOKED_AT_ONCE = 1_024
"""Entries."""


class RequestFuture(Future[ReceivedMessage]):
    """The reply to come: a future of :mod:`concurrent.futures` that ``await`` takes, too.

    Its callbacks run in the thread that receives the replies, so none should take long.
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
        """On the monotonic clock; it has none before it is sent."""
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
    """Sends requests and receives their replies; safe for threads. Nothing is started before the first request."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.client_id = default_client_id()
        self._bell: ArrivalBell | None = None
        """What the thread sleeps by, once it was started."""
        self._wanted = TagFilter(frozenset({self.client_id}))
        self._changing = threading.Lock()
        self._awaited: dict[str, _Awaited] = {}
        self._due = math.inf
        """No request is due before this, on the monotonic clock."""
        self._wakes_at = math.inf
        """When the thread looks again by itself."""
        self._queue: MessageQueue | None = None
        self._position = 0
        """Queue offset below which nothing is for this requester any more."""
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
        """End the thread; requests that still wait fail with StoreClosed. Closing twice does nothing."""
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
        """Take a request among those that wait, before it is sent."""
        assert self._queue is not None
        with self._changing:
            if self._closed:
                raise StoreClosed("this producer was closed")
            if not self._awaited:  # what stands in the queue now is for nobody who still waits
                self._position = max(self._position, self._backend.span(self._queue).max_offset)
            self._awaited[correlation_id] = awaited

    def _time(self, awaited: _Awaited, message_id: str) -> None:
        """Give a request that was sent its deadline; its time has run since it was begun."""
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
                bell.arm(queue)  # before the look: who sends from now on wakes this thread
                pause_s = self._step(queue)
            bell.wait(heard, pause_s)

    def _step(self, queue: MessageQueue) -> float:
        """Receive and give up; return for how many seconds the thread may sleep."""
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
        """Give up the requests whose time is over; return how long it is until the next one's is."""
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
