"""Requests of brokers to this client, and their handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias

from rmqclient.cluster.net.connection import Connection
from rmqclient.errors import QueueError
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, ResponseCode, response
from rmqclient.store.threads.logs import Log

Handler: TypeAlias = Callable[[Frame, str], Frame | None]
"""Gets a request and the broker's address; returns the answer, or None for no answer."""

THREADS: Final = 4
MOST_WAITING: Final = 1000

_log = Log(__name__)


class BrokerRequests:
    """Runs the handlers on worker threads, which start with the first request."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._handlers: dict[int, Handler] = {}
        self._room = threading.BoundedSemaphore(MOST_WAITING)
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    def on(self, code: RequestCode, handler: Handler) -> None:
        """Let ``handler`` answer the requests with this code, on a worker thread."""
        self._handlers[code.value] = handler

    def take(self, connection: Connection, asked: Frame) -> None:
        """Pass a request to its handler. For the I/O thread."""
        handler = self._handlers.get(asked.code)
        if handler is None:
            _answer(connection, asked, _no(asked, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no handler for it"))
        elif self._is_closed or not self._room.acquire(blocking=False):
            _answer(connection, asked, _no(asked, ResponseCode.SYSTEM_BUSY, f"{MOST_WAITING:,} requests wait"))
        else:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"rmq-cluster-{self._client_id}")
            self._threads.submit(partial(self._run, handler, connection, asked))

    def close(self) -> None:
        """Take no more requests, drop waiting ones, and wait for running ones."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _run(self, handler: Handler, connection: Connection, asked: Frame) -> None:
        try:
            answer = handler(asked, connection.address)
        except Exception as error:  # noqa: BLE001 - the broker is told, and it is logged
            _log.exception("%s: request %d of a broker failed", connection.address, asked.code)
            answer = _no(asked, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._room.release()
        if answer is not None:
            _answer(connection, asked, answer)


def _no(asked: Frame, code: ResponseCode, remark: str) -> Frame:
    return response(asked, code, remark=remark)


def _answer(connection: Connection, asked: Frame, answer: Frame) -> None:
    if asked.is_oneway:
        return
    answer.opaque = asked.opaque
    try:
        connection.tell(answer)
    except QueueError as error:
        _log.info("the answer to request %d of a broker was not sent: %s", asked.code, error)
