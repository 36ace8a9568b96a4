"""Watched calls: calls of other code, one after the other, of which one that hangs does not hold the next.

A call runs on a thread that is used again. When it takes longer than the patience, the next call gets another thread
and runs beside it, up to a number of threads; then the next one waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable

from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.locks import Condition
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class _Call:
    """One call, and what it raised."""

    def __init__(self, name: Hashable, target: Callable[[], object]) -> None:
        self.name = name
        self.target = target
        self.began = time.monotonic()
        self.hangs = False
        self.error: BaseException | None = None


class WatchedCalls:
    """Runs calls for one thread, each for ``patience_s`` before the next; with ``most`` threads at most."""

    def __init__(self, what: str, thread: str, *, patience_s: float, most: int) -> None:
        self._what = what
        self._thread = thread
        self._patience_s = patience_s
        self._most = most
        self._changed = Condition()
        self._waiting: deque[_Call] = deque()
        self._running: dict[Hashable, _Call] = {}
        self._threads: list[GuardedThread] = []
        self._closed = False

    @property
    def hang(self) -> bool:
        """Whether a call has outlasted the patience and still runs."""
        with self._changed:
            return any(each.hangs for each in self._running.values())

    def run(self, name: Hashable, target: Callable[[], object]) -> None:
        """Run a call, and return when it has ended or hangs; raises what it raised within the patience.

        While one of the same name still runs, and after :meth:`close`, this does nothing. Raises LimitReached when the
        process can have no more threads.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or name in self._running or len(self._running) < self._most)
            if self._closed or name in self._running:
                return
            if len(self._running) == len(self._threads):
                self._start_thread()
            call = self._running[name] = _Call(name, target)
            self._waiting.append(call)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._closed or name not in self._running, self._patience_s):
                call.hangs = True
                _log.error("%s of %s has run for %.0f s: the next runs beside it, and %d at most at once",
                           self._what, name, self._patience_s, self._most)  # fmt: skip
        if call.error is not None and not call.hangs:
            raise call.error

    def close(self) -> None:
        """Begin no more calls, and wait for running ones; one that hangs is left to its thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._running, self._patience_s):
                _log.error("%s of %s still runs, and is not waited for", self._what, ", ".join(map(str, self._running)))
                return
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        thread = GuardedThread(target=self._serve, name=self._thread)
        thread.start()
        self._threads.append(thread)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if not self._waiting:
                    return
                call = self._waiting.popleft()
            try:
                call.target()
            except BaseException as error:  # noqa: BLE001 - raised by run(), or logged here if nobody waits for it
                call.error = error
            with self._changed:
                del self._running[call.name]
                self._changed.notify_all()
            self._tell_of_the_end(call)

    def _tell_of_the_end(self, call: _Call) -> None:
        if call.hangs:
            _log.warning("%s of %s has ended after %.0f s", self._what, call.name, time.monotonic() - call.began,
                         exc_info=call.error)  # fmt: skip
