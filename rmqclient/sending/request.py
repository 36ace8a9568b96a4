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
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TypeAlias

from rmqclient.backend import Backend
from rmqclient.backend.futures import AwaitableFuture
from rmqclient.duration import Duration, to_seconds
from rmqclient.errors import RequestTimeout
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.store import clock
from rmqclient.store.errors import StoreClosed
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


class Requester:
    """Sends requests and receives their replies. Safe for threads. Its own thread starts on demand."""

    def __init__(self, backend: Backend) -> None:
        self._replies = backend.producers.replies()
        self._envelope: Mapping[str, str] | None = None
        """Properties by which replies come here; None before the first request."""
        self._changing = Condition(threading.Lock())
        self._awaited: dict[str, _Awaited] = {}
        self._due = math.inf
        """Earliest deadline of a request, by the clock's ``elapsed``."""
        self._wakes_at = math.inf
        """The time of the listener's next look without a ring, by the clock's ``elapsed``."""
        self._closed = False
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
            self._closed = True
            left, self._awaited = list(self._awaited.values()), {}
        for awaited in left:
            awaited.end(StoreClosed(f"request {awaited.message_id}: its producer was closed before the reply came"))
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
        self._expect(correlation_id, awaited)
        try:
            sent = send(self._asking(message, correlation_id, seconds, envelope), sharding_key)
        except BaseException:
            with self._changing:
                self._awaited.pop(correlation_id, None)
            raise
        self._time(awaited, sent.message_id)
        return awaited

    def _open(self) -> Mapping[str, str]:
        envelope = self._replies.open()
        with self._changing:
            if self._closed:
                raise StoreClosed("this producer was closed")
            self._envelope = envelope
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
        """Add a waiting request, before it is sent."""
        with self._changing:
            if self._closed:
                raise StoreClosed("this producer was closed")
            if not self._awaited:  # replies that have come are for ended requests
                self._replies.skip()
            self._awaited[correlation_id] = awaited

    def _time(self, awaited: _Awaited, message_id: str) -> None:
        """Set the deadline of a sent request. Its time counts from the call."""
        with self._changing:
            awaited.message_id = message_id
            awaited.deadline = awaited.began + awaited.seconds
            self._due = min(self._due, awaited.deadline)
            gives_way = self._listener not in (None, self._thread)  # to the own thread
            is_to_wake = gives_way or awaited.deadline < self._wakes_at < math.inf
        if is_to_wake:
            self._replies.bell.ring()

    def _listens_alone(self) -> bool:
        """Let the calling thread listen, if no thread does and no other reply is awaited; return whether it does."""
        with self._changing:
            if self._listener is not None or len(self._awaited) != 1:
                return False
            self._listener = threading.current_thread()
        return True

    def _have_listener(self) -> None:
        """Let the requester's own thread listen, if no thread does."""
        with self._changing:
            if self._listener is None and self._awaited:
                self._call_thread()

    def _call_thread(self) -> None:
        if self._thread is None:
            thread = GuardedThread(target=self._run, name="rmq-replies")
            thread.start()
            self._thread = thread
        self._listener = self._thread
        self._called.set()

    def _run(self) -> None:
        while not self._closed:
            self._called.wait()
            self._called.clear()
            if self._listener is self._thread:
                self._listen(None)
                self._leave()
        self._leave()  # another thread may have called it just now

    def _listen(self, own: _Awaited | None) -> None:
        """Receive replies: until ``own`` has ended or other replies are awaited; all replies without ``own``."""
        bell = self._replies.bell
        while not self._closed:
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
                return not self._awaited
            return own.future.done() or len(self._awaited) > 1

    def _leave(self) -> None:
        """Stop listening, if the calling thread does. The requester's own thread takes over if a reply is awaited."""
        with self._changing:
            if self._listener is not threading.current_thread():
                return
            self._listener, self._wakes_at = None, math.inf
            self._changing.notify_all()
            if self._awaited:
                self._call_thread()

    def _step(self) -> float:
        """Receive replies and end late requests; return the seconds that the listener may sleep."""
        try:
            self._replies.listen()  # before the look, so that a later reply wakes the listener
            self._look()
            return self._expire()
        except Exception as error:  # noqa: BLE001 - without a listener all requests would wait forever
            _log.error("replies cannot be received: %s: %s", type(error).__name__, error)
            self._fail_all(error)
            return 0.0

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
        """End late requests; return the seconds until the next deadline."""
        now = clock.elapsed()
        late: list[_Awaited] = []
        with self._changing:
            if now >= self._due:
                late = [awaited for awaited in self._awaited.values() if awaited.deadline <= now]
                self._awaited = {name: each for name, each in self._awaited.items() if each.deadline > now}
                self._due = min((each.deadline for each in self._awaited.values()), default=math.inf)
            self._wakes_at = min(self._due, now + _LONGEST_WAIT_S)
            pause_s = clock.real_s(self._wakes_at - now)
        for awaited in sorted(late, key=lambda each: each.deadline):  # a late thread may find several
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
