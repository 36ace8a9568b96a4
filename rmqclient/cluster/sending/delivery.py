"""Delivery: sends messages to brokers, and tries again. [DefaultMQProducerImpl.sendDefaultImpl]

A message has three tries. The next one goes to another broker, if there is one.

===========================================  ======================  =================================================
a try ended with                             most messages           with a sharding key, and half messages
===========================================  ======================  =================================================
no connection, a refusal for now             tried again             tried again; with a key, in the same queue
a lost connection, a time-out                tried again             raised
another answer, such as an illegal message   raised                  raised
===========================================  ======================  =================================================

After a lost connection or a time-out, a retry can store the message twice; both copies have the same id. With a
sharding key, the second copy could come after later messages. Of two half messages, a check would commit the second
one.

If the last try fails, the raised error has ``stored`` set if any of the tries may have stored the message.

A caller that waits does the work itself. For asynchronous sends the I/O thread takes successful answers, and a helper
thread does what may block: requests to name servers, and retries.
"""

from __future__ import annotations

import queue as queues
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending.queue_choice import QueueChoice
from rmqclient.cluster.sending.send_requests import STORED, results_of, size_of, to_queue
from rmqclient.cluster.sending.under_way import UnderWay
from rmqclient.errors import BrokerUnreachable, ConnectionFull, QueueError, RequestTimedOut
from rmqclient.message import MessageQueue, SendResult
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError, error_of
from rmqclient.remoting.frame import Frame
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

TRIES: Final = 3
"""Tries of a message. [retryTimesWhenSendFailed + 1]"""

_REFUSED_FOR_NOW: Final = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)
"""Codes after which a send is tried again. [DefaultMQProducer.retryResponseCodes]"""

_BROKER_IS_FINE: Final = frozenset(
    (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
)
"""Codes about the topic or the message, which do not count against the broker."""

_SILENT_S: Final = 60.0
"""Seconds between two warnings about the same broker."""

_Done: TypeAlias = Callable[[SendResult | Exception], None]
_log = Log(__name__)


@dataclass(slots=True, eq=False)
class Send:
    """One message or batch, and the state of its tries. For one thread at a time."""

    request: Frame
    message_ids: Sequence[str]
    topic: str
    sharding_key: str | None = None
    once: bool = False
    """Whether a message that may be stored must not be sent again, as one with a sharding key."""
    pinned: MessageQueue | None = None
    """The queue of every try; None to choose one for each."""
    tries_left: int = TRIES
    failed_on: str = ""
    """The broker that has just failed, by name."""
    uncertain: QueueError | None = None
    """The error of the last try that may have stored the message."""

    def count_failure(self, queue: MessageQueue, error: QueueError) -> None:
        """Take the error of a try. Raises the error for the caller if there are no more tries."""
        self.tries_left -= 1
        is_final = self.tries_left == 0 or (error.stored and (self.once or self.sharding_key is not None))
        if is_final or not _may_succeed_later(error):
            raise self.worst(error)
        self.failed_on = queue.broker_name
        if error.stored:
            self.uncertain = error

    def worst(self, error: QueueError) -> QueueError:
        """Return an error after which the message may be stored, or else the last one."""
        if self.uncertain is None or error.stored:
            return error
        self.uncertain.add_note(f"a later try failed, too: {error}")
        return self.uncertain


class Delivery:
    """The sends of one producer. Safe for threads."""

    def __init__(self, client: ClusterClient, choice: QueueChoice) -> None:
        self._client = client
        self._choice = choice
        self._under_way = UnderWay()
        self._silent_until: dict[tuple[str, int], float] = {}
        self._jobs: queues.SimpleQueue[Callable[[], None] | None] = queues.SimpleQueue()
        self._helper: threading.Thread | None = None
        self._starting = threading.Lock()

    def send(self, send: Send) -> list[SendResult]:
        """Send and wait for the answer. Raises the error of the last try."""
        while True:
            queue = self._next_queue(send)
            began = time.monotonic()
            try:
                address = self._client.brokers.address(queue.broker_name)
                answer = self._client.call(address, to_queue(send.request, queue), also=STORED)
            except QueueError as error:
                self._failed(send, queue, error)
            else:
                return self._stored(send, queue, answer, began)

    def send_async(self, send: Send, done: _Done) -> None:
        """Send one message without waiting. ``done`` gets the outcome on another thread; it must not block or raise.

        If too many sends are under way, this waits up to the request's time-out, but not on a thread that completes
        sends. Raises ProducerFull and StoreClosed.
        """
        completes_sends = self._client.is_io_thread or threading.current_thread() is self._helper
        self._under_way.begin(size_of(send.request), 0.0 if completes_sends else self._client.url.timeout_s)
        if self._choice.is_known(send.topic):
            self._try(send, done)
        else:
            self._later(partial(self._try, send, done))

    def close(self) -> None:
        """Wait until every send has its outcome. Closing twice does nothing."""
        self._under_way.close()
        if self._helper is not None:
            self._jobs.put(None)
            self._helper.join()

    # --- one try ------------------------------------------------------------------------------------

    def _next_queue(self, send: Send) -> MessageQueue:
        """Return the queue of the next try. Raises UnknownTopic, TopicNotWritable, NameServerUnreachable."""
        if send.pinned is not None:
            return send.pinned
        try:
            return self._choice.next(send.topic, send.sharding_key, send.failed_on)
        except QueueError as error:
            raise send.worst(error) from None

    def _stored(self, send: Send, queue: MessageQueue, answer: Frame, began: float) -> list[SendResult]:
        """Return the results of a try that was answered. Raises PlaceUnknown."""
        self._choice.avoidance.took(queue.broker_name, time.monotonic() - began)
        if answer.code:
            self._warn(send, answer, queue)
        return results_of(answer, queue, send.message_ids)

    def _failed(self, send: Send, queue: MessageQueue, error: QueueError) -> None:
        """Note a failed try. Raises the error for the caller if there are no more tries."""
        if _may_succeed_later(error):
            if not isinstance(error, AnswerError) or error.code not in _BROKER_IS_FINE:
                self._choice.avoidance.failed(queue.broker_name)
            self._choice.forget(send.topic)
        send.count_failure(queue, error)

    def _warn(self, send: Send, answer: Frame, queue: MessageQueue) -> None:
        """Warn that a stored message is not yet as safe as configured; once a minute for each broker."""
        what, now = (queue.broker_name, answer.code), time.monotonic()
        if now >= self._silent_until.get(what, 0.0):
            self._silent_until[what] = now + _SILENT_S
            _log.warning(
                "message %s is stored by broker %s, which says %s: it is not yet as safe as the broker promises",
                send.message_ids[0], queue.broker_name, ResponseCode(answer.code).name,
            )  # fmt: skip

    # --- asynchronous tries ---------------------------------------------------------------------------

    def _try(self, send: Send, done: _Done) -> None:
        try:
            queue = self._next_queue(send)
            began = time.monotonic()
            address = self._client.brokers.address(queue.broker_name)
            answered = partial(self._answered, send, done, queue, address, began)
            self._client.submit(address, to_queue(send.request, queue), answered)
        except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
            self._end(send, done, error)

    def _answered(
        self, send: Send, done: _Done, queue: MessageQueue, address: str, began: float, outcome: Frame | QueueError
    ) -> None:
        """Take the outcome of one try, on the I/O thread."""
        if isinstance(outcome, Frame) and outcome.code in STORED:
            result: SendResult | Exception
            try:
                result = self._stored(send, queue, outcome, began)[0]
            except Exception as unplaced:  # noqa: BLE001 - it is raised where the future is awaited
                result = unplaced
            self._end(send, done, result)
        else:
            error = error_of(outcome, address) if isinstance(outcome, Frame) else outcome
            self._later(partial(self._try_again, send, done, queue, error))

    def _try_again(self, send: Send, done: _Done, queue: MessageQueue, error: QueueError) -> None:
        try:
            self._failed(send, queue, error)
        except Exception as last:  # noqa: BLE001 - it is raised where the future is awaited
            self._end(send, done, last)
        else:
            self._try(send, done)

    def _end(self, send: Send, done: _Done, outcome: SendResult | Exception) -> None:
        self._under_way.end(size_of(send.request))  # first, because the callback may send again
        try:
            done(outcome)
        finally:
            self._under_way.finish()

    def _later(self, job: Callable[[], None]) -> None:
        with self._starting:
            if self._helper is None:
                self._helper = GuardedThread(target=self._help, name="rmq-sends")
                self._helper.start()
        self._jobs.put(job)

    def _help(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # noqa: BLE001 - other sends must continue
                _log.exception("a send failed")


def _may_succeed_later(error: QueueError) -> bool:
    if isinstance(error, AnswerError):
        return error.code in _REFUSED_FOR_NOW
    return isinstance(error, BrokerUnreachable | RequestTimedOut | ConnectionFull)
