"""Moved clock: wakes the threads of a store when a test moves its clock.

Threads that wait for messages, and for a time as well, sleep on bells of the runtime file. Each process that has such a
store open rings all of them when the clock was moved; a thread that has nothing due looks once in vain.
"""

from __future__ import annotations

from rmqclient.store import clock, layout
from rmqclient.store.native_threads import threading
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.threads.guarded import GuardedThread

_LONGEST_SLEEP_S = 0.5


class MovedClock:
    """A thread that rings every bell of a store when the clock of this process was moved. Ends by :meth:`close`."""

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self._closed = threading.Event()
        self._thread = GuardedThread(target=self._run, args=(clock.heard(),), name="rmq-clock")

    def start(self) -> None:
        """Start the thread. Raises LimitReached."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; returns when it rings no more."""
        self._closed.set()
        clock.ring()
        self._thread.join()

    def _run(self, heard: int) -> None:
        while True:
            clock.wait(heard, _LONGEST_SLEEP_S)
            if self._closed.is_set():
                return
            if (now := clock.heard()) != heard:
                heard = now
                for lane in range(layout.ARRIVAL_LANES):
                    self._state.signal_arrival(lane)
                self._state.signal_membership()
