"""Timer thread: runs a consumer's periodic work, such as renewing locks and committing offsets."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from rmqclient.errors import QueueError
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.locks import Condition
from rmqclient.store.threads.logs import Log

Errand: TypeAlias = Callable[[], None]

_log = Log(__name__)


class TimerThread:
    """Runs errands on one thread, each when it is due. Safe for threads.

    An errand may wait for a broker for about a second. Its exceptions are logged.
    """

    def __init__(self, name: str) -> None:
        self._changed = Condition()
        self._due: list[tuple[float, int, Errand]] = []
        self._count = itertools.count()
        self._ended = False
        self._thread = GuardedThread(target=self._run, name=name)
        self._thread.start()

    def after(self, delay_s: float, errand: Errand) -> None:
        """Run an errand once, in ``delay_s`` seconds or later. Does nothing after :meth:`close`."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._count), errand))
            self._changed.notify()

    def every(self, interval_s: float, errand: Errand) -> None:
        """Run an errand repeatedly, the first time after one interval."""

        def again() -> None:
            try:
                errand()
            finally:
                self.after(interval_s, again)

        self.after(interval_s, again)

    def close(self) -> None:
        """End the thread after its current errand, for which this waits up to 10 s. Closing twice does nothing."""
        with self._changed:
            self._ended = True
            self._due.clear()
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join(10)

    def _run(self) -> None:
        while (errand := self._next()) is not None:
            safely(errand)

    def _next(self) -> Errand | None:
        """Wait for the next errand; None after the end."""
        with self._changed:
            while not self._ended:
                left_s = self._due[0][0] - time.monotonic() if self._due else None
                if left_s is not None and left_s <= 0:
                    return heapq.heappop(self._due)[-1]
                self._changed.wait(left_s)
        return None


def safely(errand: Errand) -> None:
    """Run an errand, and log its exception."""
    try:
        errand()
    except (QueueError, OSError) as error:
        _log.warning("%s: %s; it is tried again", type(error).__name__, error)
    except Exception:  # noqa: BLE001 - other errands must continue
        _log.exception("an errand of a consumer failed")
