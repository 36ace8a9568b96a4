"""Flushes: answers that wait for the disk or for replicas. One thread waits for all of them, so they share a flush.

The code of the answer says how safe a stored message is, as RocketMQ's clients expect:

===========================  =====================================================================================
code                         the message is stored, and
===========================  =====================================================================================
``FLUSH_DISK_TIMEOUT`` 10    the flush took too long
``SLAVE_NOT_AVAILABLE`` 11   too few replicas were in sync, and the store continues without them
``FLUSH_SLAVE_TIMEOUT`` 12   the replicas did not acknowledge it in time
===========================  =====================================================================================
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final, NamedTuple

from rmqclient.broker.request import Request
from rmqclient.broker.sending.outcomes import explained
from rmqclient.errors import QueueError
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import Durability, MessageStore
from rmqclient.store.append.replicas import Copies
from rmqclient.store.errors import LimitReached, NotFlushed
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_CODES: Final = {Copies.ABSENT: ResponseCode.SLAVE_NOT_AVAILABLE, Copies.LATE: ResponseCode.FLUSH_SLAVE_TIMEOUT}


class _Parked(NamedTuple):
    request: Request
    answer: Frame
    end: int


class Flushes:
    """Sends answers once the log is safe up to the end of their messages; at once if that is not required.

    After a flush that takes too long the answers have the code FLUSH_DISK_TIMEOUT: their messages are stored. The first
    answer that waits starts the thread.
    """

    def __init__(self, store: MessageStore, *, sync: bool) -> None:
        self._flusher = store.flusher
        self._replicas = store.replicas
        self._is_sync = sync or store.config.durability is Durability.SYNC
        self._changed = threading.Condition()
        self._parked: list[_Parked] = []
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send answers from the thread of this loop."""
        self._loop = loop

    def when_flushed(self, request: Request, answer: Frame, end: int) -> Frame | None:
        """Return the answer if it need not wait; else None, and send it later. For any thread."""
        if request.frame.is_oneway or not (self._is_sync or self._replicas.are_waited_for):
            return answer
        parked = _Parked(request, answer, end)
        with self._changed:
            if self._is_closed:
                return answer
            try:
                self._start()
            except LimitReached as error:
                _note([parked], NotFlushed(f"no thread can wait for the disk: {error}"))
                return answer
            self._parked.append(parked)
            self._changed.notify()
        return None

    def _start(self) -> None:
        """Start the thread, the first time. Raises LimitReached if the host allows no more threads."""
        if self._thread is None:
            thread = GuardedThread(target=self._run, name="rmq-serve-flushes")
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """Send the waiting answers, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while parked := self._next():
            self._wait(parked)
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_answer, list(parked))
            parked.clear()  # drop references before sleeping, or the connections would count these requests as waiting

    def _next(self) -> list[_Parked]:
        """Wait for answers and return all of them; empty once this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._parked or self._is_closed)
            parked, self._parked = self._parked, []
            return parked

    def _wait(self, parked: list[_Parked]) -> None:
        """Wait until the log is safe up to the last message, and set the code of the answers."""
        end = max(each.end for each in parked)
        try:
            if self._is_sync:
                self._flusher.wait_until_flushed(end)
            copies = self._replicas.copies(end)
        except QueueError as error:
            _note(parked, error)
        except Exception as error:  # noqa: BLE001 - without this thread no message would be answered
            _log.exception("a flush failed")
            _note(parked, NotFlushed(f"{type(error).__name__} {error}"))
        else:
            if copies in _CODES:
                for each in parked:
                    each.answer.code = int(_CODES[copies])


def _note(parked: list[_Parked], failure: QueueError) -> None:
    _log.error("%d messages are stored and not yet on the disk: %s", len(parked), failure)
    code, remark = explained(failure)
    for each in parked:
        each.answer.code = int(ResponseCode.FLUSH_DISK_TIMEOUT) if isinstance(failure, NotFlushed) else int(code)
        each.answer.remark = remark


def _answer(parked: list[_Parked]) -> None:
    for each in parked:
        each.request.answer(each.answer)
