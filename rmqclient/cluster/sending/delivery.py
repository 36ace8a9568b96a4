"""Delivery: sends requests and retries them, synchronously or asynchronously.

A synchronous caller does the work itself. For asynchronous sends the I/O thread takes successful answers, and a helper
thread does what may block: requests to name servers, and retries.
"""

from __future__ import annotations

import queue as queues
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending.attempts import Attempts
from rmqclient.cluster.sending.outgoing import STORED, Outgoing
from rmqclient.cluster.sending.under_way import UnderWay
from rmqclient.errors import QueueError
from rmqclient.message import MessageQueue, SendResult
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import error_of
from rmqclient.remoting.frame import Frame
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_SILENT_S: Final = 60.0
"""Seconds between two warnings about the same broker."""


@dataclass(frozen=True, slots=True)
class _Send:
    """An asynchronous send."""

    outgoing: Outgoing
    attempts: Attempts
    done: Callable[[SendResult | Exception], None]


class Delivery:
    """Sends for one producer. Safe for threads."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._under_way = UnderWay()
        self._silent_until: dict[tuple[str, int], float] = {}
        self._jobs: queues.SimpleQueue[Callable[[], None] | None] = queues.SimpleQueue()
        self._helper: threading.Thread | None = None
        self._starting = threading.Lock()

    def send(self, outgoing: Outgoing, attempts: Attempts) -> list[SendResult]:
        """Send and wait for the answer. Raises the error of the last try, see :mod:`.attempts`."""
        client = self._client
        while True:
            queue = attempts.next_queue()
            began = time.monotonic()
            try:
                address = client.routes.address(queue.broker_name)
                answer = client.call(address, outgoing.frame(queue), also=STORED)
            except QueueError as error:
                attempts.failed(queue, error)
            else:
                attempts.succeeded(queue, time.monotonic() - began)
                if answer.code:
                    self._warn(outgoing, answer, queue)
                return outgoing.results(answer, queue)

    def send_async(
        self, outgoing: Outgoing, attempts: Attempts, done: Callable[[SendResult | Exception], None]
    ) -> None:
        """Send one message without waiting. ``done`` gets the outcome on another thread; it must not block or raise.

        If too many sends are under way, this waits up to the request's time-out, but not on a thread that completes
        sends. Raises ProducerFull and StoreClosed.
        """
        self._under_way.begin(outgoing.size, 0.0 if self._makes_room() else self._client.url.timeout_s)
        send = _Send(outgoing, attempts, done)
        if attempts.need_no_name_server:
            self._try(send)
        else:
            self._later(partial(self._try, send))

    def close(self) -> None:
        """Wait until every send has its outcome. Closing twice does nothing."""
        self._under_way.close()
        if self._helper is not None:
            self._jobs.put(None)
            self._helper.join()

    def _try(self, send: _Send) -> None:
        try:
            queue = send.attempts.next_queue()
            began = time.monotonic()
            address = self._client.routes.address(queue.broker_name)
            answered = partial(self._answered, send, queue, address, began)
            self._client.submit(address, send.outgoing.frame(queue), answered)
        except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
            self._end(send, error)

    def _answered(
        self, send: _Send, queue: MessageQueue, address: str, began: float, outcome: Frame | QueueError
    ) -> None:
        """Take the outcome of one try, on the I/O thread."""
        if isinstance(outcome, Frame) and outcome.code in STORED:
            send.attempts.succeeded(queue, time.monotonic() - began)
            if outcome.code:
                self._warn(send.outgoing, outcome, queue)
            self._end(send, _result(send.outgoing, outcome, queue))
        else:
            error = error_of(outcome, address) if isinstance(outcome, Frame) else outcome
            self._later(partial(self._try_again, send, queue, error))

    def _try_again(self, send: _Send, queue: MessageQueue, error: QueueError) -> None:
        try:
            send.attempts.failed(queue, error)
        except Exception as last:  # noqa: BLE001 - it is raised where the future is awaited
            self._end(send, last)
        else:
            self._try(send)

    def _end(self, send: _Send, outcome: SendResult | Exception) -> None:
        self._under_way.end(send.outgoing.size)  # first, because the callback may send again
        try:
            send.done(outcome)
        finally:
            self._under_way.finish()

    def _makes_room(self) -> bool:
        return self._client.is_io_thread or threading.current_thread() is self._helper

    def _warn(self, outgoing: Outgoing, answer: Frame, queue: MessageQueue) -> None:
        """Warn that a stored message is not yet as safe as configured; once a minute for each broker."""
        what, now = (queue.broker_name, answer.code), time.monotonic()
        if now >= self._silent_until.get(what, 0.0):
            self._silent_until[what] = now + _SILENT_S
            _log.warning(
                "message %s is stored by broker %s, which says %s: it is not yet as safe as the broker promises",
                outgoing.message_ids[0], queue.broker_name, ResponseCode(answer.code).name,
            )  # fmt: skip

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


def _result(outgoing: Outgoing, answer: Frame, queue: MessageQueue) -> SendResult | Exception:
    try:
        return outgoing.results(answer, queue)[0]
    except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
        return error
