"""Flushes: one thread waits for the disk and replicas, for senders that must not block."""

from __future__ import annotations

from collections.abc import Callable

from rmqclient.backend.futures import SendFuture
from rmqclient.message import SendResult
from rmqclient.store.append.replicas import told
from rmqclient.store.errors import LimitReached, NotFlushed, StoreClosed
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.locks import Condition


class Flushes:
    """Ends futures when their messages are on disk. Waiting messages share one flush.

    ``wait(end)`` waits until the log is safe up to an offset, as configured, and returns the value of
    SendResult.replicated. The first message starts the thread.
    """

    def __init__(self, wait: Callable[[int], bool | None]) -> None:
        self._wait = wait
        self._changed = Condition()
        self._waiting: list[tuple[SendResult, SendFuture]] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, result: SendResult, future: SendFuture) -> None:
        """End ``future`` with ``result`` when the message is on disk, or with the error of ``wait``."""
        with self._changed:
            if self._closed:
                raise StoreClosed("this producer was closed")
            try:
                self._start()
            except LimitReached as error:
                future.end(NotFlushed(f"no thread can wait for the disk: {error}; the message is stored"))
                return
            self._waiting.append((result, future))
            self._changed.notify()

    def _start(self) -> None:
        """Start the thread, the first time. Raises LimitReached if the host allows no more threads."""
        if self._thread is None:
            thread = GuardedThread(target=self._run, name="rmq-flushes")
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """End every future, then the thread. Closing twice does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while waiting := self._next():
            outcome = self._outcome(max(result.commit_log_end for result, _ in waiting))
            for result, future in waiting:
                future.end(outcome if isinstance(outcome, Exception) else told(result, outcome))

    def _next(self) -> list[tuple[SendResult, SendFuture]]:
        """Wait for messages and return all of them; empty once this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            waiting, self._waiting = self._waiting, []
            return waiting

    def _outcome(self, end: int) -> Exception | bool | None:
        try:
            return self._wait(end)
        except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
            return error
