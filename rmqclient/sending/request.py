"""Request: a message whose sender waits for the reply.

While a reply is awaited, one thread listens: it sleeps on a bell until replies come (:mod:`rmqclient.backend.replies`).
A thread that waits for its reply listens itself while no other reply is awaited, which saves waking two threads.
Otherwise the requester's own thread listens. Replies from before the oldest waiting request are skipped.

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

import math
import uuid
from collections.abc import Callable, Mapping
from typing import TypeAlias

from rmqclient.backend import Backend
from rmqclient.backend.futures import AwaitableFuture
from rmqclient.backend.replies import Replies
from rmqclient.duration import Duration, to_seconds
from rmqclient.errors import RequestTimeout
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.store import clock
from rmqclient.store.errors import StoreClosed
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.locks import Condition
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

Send: TypeAlias = Callable[[Message, str | None], SendResult]
"""Stores a message with a sharding key."""

_LONGEST_WAIT_S = 0.5
"""Seconds of sleep, at most: a replier that is killed between publishing and ringing does not wake the listener."""


class RequestFuture(AwaitableFuture[ReceivedMessage]):
    """A future of the reply, of :mod:`concurrent.futures`, that can also be awaited.

    Its callbacks run on the thread that receives the reply, so they should be quick.
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

    def closed(self) -> StoreClosed:
        return StoreClosed(f"request {self.message_id}: its producer was closed before the reply came")


class _Unanswered:
    """The requests whose replies have not come, by correlation id. Safe for threads, which share its lock."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self.lock = threading.Lock()
        self.requests: dict[str, _Awaited] = {}
        self.closed = False
        self.due = math.inf
        """Earliest deadline of a request, by the clock's ``elapsed``."""

    def expect(self, correlation_id: str, awaited: _Awaited) -> None:
        """Add a request, before it is sent. Call it with the lock. Raises StoreClosed."""
        self.check_open()
        if not self.requests:  # replies that have come are for ended requests
            self._replies.skip()
        self.requests[correlation_id] = awaited

    def check_open(self) -> None:
        """Raise StoreClosed if the producer was closed."""
        if self.closed:
            raise StoreClosed("this producer was closed")

    def sent(self, awaited: _Awaited, message_id: str) -> None:
        """Set the deadline of a sent request. Its time counts from the call. Call it with the lock."""
        awaited.message_id = message_id
        awaited.deadline = awaited.began + awaited.seconds
        self.due = min(self.due, awaited.deadline)

    def pop(self, correlation_id: str) -> _Awaited | None:
        """Forget a request; return it unless it has ended."""
        with self.lock:
            return self.requests.pop(correlation_id, None)

    def pop_late(self, now: float) -> list[_Awaited]:
        """Forget the late requests; return them, the latest last. Call it with the lock."""
        if now < self.due:
            return []
        late = [each for each in self.requests.values() if each.deadline <= now]
        self.requests = {name: each for name, each in self.requests.items() if each.deadline > now}
        self.due = min((each.deadline for each in self.requests.values()), default=math.inf)
        return sorted(late, key=lambda each: each.deadline)

    def receive(self) -> None:
        """End the requests whose replies have come."""
        while replies := self._replies.take():
            for reply in replies:
                correlation_id = reply.some_properties((b"CORRELATION_ID",)).get("CORRELATION_ID", "")
                if (awaited := self.pop(correlation_id)) is not None:
                    awaited.end(reply)

    def fail(self, error: Exception | None = None) -> None:
        """End all requests with this error; without one, because their producer was closed."""
        with self.lock:
            left, self.requests = list(self.requests.values()), {}
        for awaited in left:
            awaited.end(error or awaited.closed())


class Requester:
    """Sends requests and receives their replies. Safe for threads. Its own thread starts on demand."""

    def __init__(self, backend: Backend) -> None:
        self._replies = backend.producers.replies()
        self._envelope: Mapping[str, str] | None = None
        """Properties by which replies come here; None before the first request."""
        self._unanswered = _Unanswered(self._replies)
        self._changing = Condition(self._unanswered.lock)
        self._wakes_at = math.inf
        """The time of the listener's next look without a ring, by the clock's ``elapsed``."""
        self._listener: threading.Thread | None = None
        self._called = threading.Event()
        """Set if the requester's own thread has to listen, or to end."""
        self._thread: GuardedThread | None = None
        """Started on demand, because it keeps a reference to this requester."""

    def request(self, send: Send, message: Message, sharding_key: str | None, timeout: Duration) -> RequestFuture:
        """Send a request by ``send``; return a future of the reply. Raises as ``send``, ValueError for the timeout."""
        awaited = self._send(send, message, sharding_key, timeout)
        self._have_listener()
        return awaited.future

    def ask(self, send: Send, message: Message, sharding_key: str | None, timeout: Duration) -> ReceivedMessage:
        """Send a request by ``send`` and wait for the reply. Raises as :meth:`request` and its future."""
        awaited = self._send(send, message, sharding_key, timeout)
        try:
            if self._listens_alone():
                self._listen(awaited)
            else:
                self._have_listener()
        finally:  # also if a signal handler raises
            self._leave()
        try:
            return awaited.future.result()
        finally:
            del awaited  # else the traceback of an error refers to itself, and keeps the files of the store mapped

    def close(self) -> None:
        """End the thread. Waiting requests fail with StoreClosed. Closing twice does nothing."""
        with self._changing:
            self._unanswered.closed = True
        self._unanswered.fail()
        if self._envelope is not None:
            self._replies.bell.ring()
            self._called.set()
            me = threading.current_thread()
            with self._changing:
                self._changing.wait_for(lambda: self._listener in (None, me))
            if self._thread is not None and self._thread is not me:
                self._thread.join()
        self._replies.close()

    def _send(self, send: Send, message: Message, sharding_key: str | None, timeout: Duration) -> _Awaited:
        seconds = _seconds(timeout)
        envelope = self._envelope or self._open()
        correlation_id = str(uuid.uuid4())
        awaited = _Awaited(message.topic, seconds)
        with self._changing:
            self._unanswered.expect(correlation_id, awaited)
        try:
            sent = send(_asking(message, correlation_id, seconds, envelope), sharding_key)
        except BaseException:
            self._unanswered.pop(correlation_id)
            raise
        self._time(awaited, sent.message_id)
        return awaited

    def _open(self) -> Mapping[str, str]:
        envelope = {"REPLY_TO_CLIENT": self._replies.client_id, **self._replies.open()}
        with self._changing:
            self._unanswered.check_open()
            self._envelope = envelope
        return envelope

    def _time(self, awaited: _Awaited, message_id: str) -> None:
        """Set the deadline of a sent request, and wake the listener if it would sleep too long for it."""
        with self._changing:
            self._unanswered.sent(awaited, message_id)
            gives_way = self._listener not in (None, self._thread)  # to the own thread
            is_to_wake = gives_way or awaited.deadline < self._wakes_at < math.inf
        if is_to_wake:
            self._replies.bell.ring()

    def _listens_alone(self) -> bool:
        """Let the calling thread listen, if no thread does and no other reply is awaited; return whether it does."""
        with self._changing:
            if self._listener is not None or len(self._unanswered.requests) != 1:
                return False
            self._listener = threading.current_thread()
        return True

    def _have_listener(self) -> None:
        """Let the requester's own thread listen, if no thread does."""
        with self._changing:
            if self._listener is None and self._unanswered.requests:
                self._call_thread()

    def _call_thread(self) -> None:
        if self._thread is None:
            thread = GuardedThread(target=self._run, name="rmq-replies")
            thread.start()
            self._thread = thread
        self._listener = self._thread
        self._called.set()

    def _run(self) -> None:
        while not self._unanswered.closed:
            self._called.wait()
            self._called.clear()
            if self._listener is self._thread:
                self._listen(None)
                self._leave()
        self._leave()  # another thread may have called it just now

    def _listen(self, own: _Awaited | None) -> None:
        """Receive replies until ``own`` has ended or others are awaited too; without ``own``, until none is awaited."""
        bell = self._replies.bell
        while not self._unanswered.closed:
            heard = bell.heard()
            pause_s = self._step()
            if self._has_listened(own):
                return
            bell.wait(heard, pause_s)

    def _has_listened(self, own: _Awaited | None) -> bool:
        with self._changing:
            if self._listener is not threading.current_thread():  # a callback has sent a request, which took the role
                return True
            if own is None:
                return not self._unanswered.requests
            return own.future.done() or len(self._unanswered.requests) > 1

    def _leave(self) -> None:
        """Stop listening, if the calling thread does. The requester's own thread takes over if a reply is awaited."""
        with self._changing:
            if self._listener is not threading.current_thread():
                return
            self._listener, self._wakes_at = None, math.inf
            self._changing.notify_all()
            if self._unanswered.requests:
                self._call_thread()

    def _step(self) -> float:
        """Receive replies and end late requests; return the seconds that the listener may sleep."""
        try:
            self._replies.listen()  # before the look, so that a later reply wakes the listener
            self._unanswered.receive()
            now = clock.elapsed()
            with self._changing:
                late = self._unanswered.pop_late(now)
                self._wakes_at = min(self._unanswered.due, now + _LONGEST_WAIT_S)
                pause_s = clock.real_s(self._wakes_at - now)
            for awaited in late:  # a late thread may find several
                awaited.end(awaited.late())
        except Exception as error:  # noqa: BLE001 - without a listener all requests would wait forever
            _log.error("replies cannot be received: %s: %s", type(error).__name__, error)
            self._unanswered.fail(error)
            return 0.0
        return pause_s


def _asking(message: Message, correlation_id: str, seconds: float, envelope: Mapping[str, str]) -> Message:
    asking = {"CORRELATION_ID": correlation_id, "TTL": str(max(1, round(seconds * 1000))), **envelope}
    properties = {**(message.properties or {}), **asking}
    return Message(
        message.topic, message.body, tags=message.tags, keys=message.keys, properties=properties, flag=message.flag
    )


def _seconds(timeout: Duration) -> float:
    seconds = to_seconds("timeout", timeout)
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"timeout={timeout!r}: give a timedelta or seconds, above 0")
    return seconds
