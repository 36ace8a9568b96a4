"""Request: a message whose sender waits for the reply.

Each requester has one thread, which sleeps by a bell until replies come (:mod:`rmqclient.backend.replies`). Replies
that came before the oldest request that still waits was sent are left out. While no reply is awaited, replies to other
requesters do not wake it.

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
import uuid
from collections.abc import Callable, Mapping

from rmqclient.backend import Backend
from rmqclient.backend.futures import AwaitableFuture
from rmqclient.duration import Duration, to_seconds
from rmqclient.errors import RequestTimeout
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.store import clock
from rmqclient.store.errors import StoreClosed

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 0.5
"""A replier that is killed after it has published and before it rings leaves the sleeper asleep. It looks again after
this time."""
_IDLE_S = 3_600.0


class RequestFuture(AwaitableFuture[ReceivedMessage]):
    """The reply to come: a future of :mod:`concurrent.futures` that can also be awaited.

    Its callbacks run in the thread that receives the replies, so they should be quick.
    """


class _Awaited:
    """A request whose reply has not come."""

    __slots__ = ("began", "deadline", "future", "message_id", "seconds", "topic")

    def __init__(self, topic: str, seconds: float) -> None:
        self.topic = topic
        self.seconds = seconds
        self.began = clock.elapsed()
        self.deadline = math.inf
        """By the clock's ``elapsed``; infinity until the request is sent."""
        self.message_id = ""
        self.future = RequestFuture()

    def end(self, outcome: ReceivedMessage | Exception) -> None:
        """Give the future its result or its exception, unless it was cancelled."""
        self.future.end(outcome)

    def late(self) -> RequestTimeout:
        return RequestTimeout(
            f"request {self.message_id} was stored in topic {self.topic!r}, and no reply came in {self.seconds:g} s; "
            "its handler may still be at work, or not have begun"
        )


class Requester:
    """Sends requests and receives their replies; safe for threads. The first request starts the thread."""

    def __init__(self, backend: Backend) -> None:
        self._replies = backend.replies()
        self._envelope: Mapping[str, str] | None = None
        """What every request says so that its reply comes here; None before the thread is started."""
        self._changing = threading.Lock()
        self._awaited: dict[str, _Awaited] = {}
        self._due = math.inf
        """Earliest deadline of a request, by the clock's ``elapsed``."""
        self._wakes_at = math.inf
        """When the thread looks again even if no bell rings, by the clock's ``elapsed``."""
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
        envelope = self._envelope or self._start()
        correlation_id = str(uuid.uuid4())
        awaited = _Awaited(message.topic, seconds)
        self._expect(correlation_id, awaited)
        try:
            sent = send(self._asking(message, correlation_id, seconds, envelope), sharding_key)
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
        if self._envelope is not None and self._thread is not threading.current_thread():
            self._replies.bell.ring()
            self._thread.join()
        self._replies.close()

    def _start(self) -> Mapping[str, str]:
        envelope = self._replies.open()
        with self._changing:
            if self._closed:
                raise StoreClosed("this producer was closed")
            if self._envelope is None:
                self._envelope = envelope
                self._thread.start()
        return envelope

    def _asking(self, message: Message, correlation_id: str, seconds: float, envelope: Mapping[str, str]) -> Message:
        asking = {
            "CORRELATION_ID": correlation_id,
            "REPLY_TO_CLIENT": self._replies.client_id,
            "TTL": str(max(1, round(seconds * 1000))),
            **envelope,
        }
        properties = {**(message.properties or {}), **asking}
        return Message(
            message.topic, message.body, tags=message.tags, keys=message.keys, properties=properties, flag=message.flag
        )

    def _expect(self, correlation_id: str, awaited: _Awaited) -> None:
        """Count a request among those that wait, before it is sent."""
        with self._changing:
            if self._closed:
                raise StoreClosed("this producer was closed")
            if not self._awaited:  # the replies that have come are for requests that have ended
                self._replies.skip()
            self._awaited[correlation_id] = awaited

    def _time(self, awaited: _Awaited, message_id: str) -> None:
        """Give a request that was sent its deadline. Its time runs from when the request was begun."""
        with self._changing:
            awaited.message_id = message_id
            awaited.deadline = awaited.began + awaited.seconds
            self._due = min(self._due, awaited.deadline)
            is_to_wake = awaited.deadline < self._wakes_at
        if is_to_wake:
            self._replies.bell.ring()

    def _run(self) -> None:
        bell = self._replies.bell
        while not self._closed:
            heard = bell.heard()
            pause_s = self._step() if self._is_awaiting() else _IDLE_S
            bell.wait(heard, pause_s)

    def _step(self) -> float:
        """Receive replies and end late requests; return for how many seconds the thread may sleep."""
        try:
            self._replies.listen()  # before the look: a reply from now on wakes this thread
            self._look()
            return self._expire()
        except Exception as error:  # noqa: BLE001 - without this thread all would wait on
            _log.error("replies cannot be received: %s: %s", type(error).__name__, error)
            self._fail_all(error)
            return 0.0

    def _is_awaiting(self) -> bool:
        with self._changing:
            if not self._awaited:
                self._wakes_at = math.inf
            return bool(self._awaited)

    def _look(self) -> None:
        """Receive the replies that have come."""
        while replies := self._replies.take():
            for reply in replies:
                self._receive(reply)

    def _receive(self, reply: ReceivedMessage) -> None:
        correlation_id = reply.some_properties((b"CORRELATION_ID",)).get("CORRELATION_ID", "")
        with self._changing:
            awaited = self._awaited.pop(correlation_id, None)
        if awaited is not None:
            awaited.end(reply)

    def _expire(self) -> float:
        """End the requests whose time is over; return the seconds until the next deadline."""
        now = clock.elapsed()
        late: list[_Awaited] = []
        with self._changing:
            if now >= self._due:
                late = [awaited for awaited in self._awaited.values() if awaited.deadline <= now]
                self._awaited = {name: each for name, each in self._awaited.items() if each.deadline > now}
                self._due = min((each.deadline for each in self._awaited.values()), default=math.inf)
            self._wakes_at = min(self._due, now + _LONGEST_WAIT_S)
            pause_s = clock.real_s(self._wakes_at - now)
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
