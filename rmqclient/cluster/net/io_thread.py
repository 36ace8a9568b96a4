"""I/O thread: the one thread of this process that serves all connections to clusters.

It starts with the first user and ends with the last. It waits for sockets and runs their callbacks, calls from other
threads, timers, and checks of deadlines. None of these may block.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from rmqclient.store import fork, take_no_signals
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

Call: TypeAlias = Callable[[], None]
Ready: TypeAlias = Callable[[int], None]
"""Gets the epoll events of a descriptor."""
Check: TypeAlias = Callable[[float], float]
"""Gets the monotonic time in seconds, does what is due, and returns the time of its next call; infinity for never."""

READ_BYTES: Final = 256 * 1024
"""Bytes of one read, at most."""

_ONE: Final = (1).to_bytes(8, "little")  # written to an eventfd
_log = Log(__name__)


class IoThread:
    """A thread with an epoll of sockets, timers and deadlines.

    ``watch``, ``forget`` and ``buffer`` are for the thread itself; everything else is for any thread.
    """

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.users = 0
        self._poll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._bell, select.EPOLLIN)
        self._rung = False
        self._ended = False
        self._ready: dict[int, Ready] = {}
        self._calls: deque[Call] = deque()
        self._timers: list[tuple[float, int, Call]] = []
        self._numbers = itertools.count()
        self._checks: set[Check] = set()
        self._next_check = math.inf
        self._lock = threading.Lock()
        self._bell_lock = threading.Lock()
        self._has_bell = True  # a closed descriptor's number may be reused by another file
        self._thread = GuardedThread(target=self._run, name="rmq-cluster-io")
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.get_ident() == self._thread.ident

    def run_soon(self, call: Call) -> None:
        """Run ``call`` on the thread, after earlier calls; never if the thread has ended."""
        self._calls.append(call)
        self._ring()

    def run_later(self, delay_s: float, call: Call) -> None:
        """Run ``call`` on the thread in ``delay_s`` seconds."""
        timer = (time.monotonic() + delay_s, next(self._numbers), call)
        self.run_soon(lambda: heapq.heappush(self._timers, timer))

    def add_check(self, check: Check) -> None:
        """Call ``check`` at the times of :meth:`check_at`, and at those that it returns."""
        with self._lock:
            self._checks.add(check)

    def remove_check(self, check: Check) -> None:
        """Stop calling ``check``, from the next round on."""
        with self._lock:
            self._checks.discard(check)

    def check_at(self, moment: float) -> None:
        """Run all checks at ``moment`` (monotonic seconds) or before. Call this after adding what they look for."""
        if moment >= self._next_check:
            return  # a check resets it before it looks, so none is missed
        with self._lock:
            self._next_check = min(self._next_check, moment)
        self._ring()

    def watch(self, descriptor: int, events: int, ready: Ready) -> None:
        """Call ``ready`` on one of ``events``; replaces an earlier callback for the descriptor."""
        if descriptor in self._ready:
            self._poll.modify(descriptor, events)
        else:
            self._poll.register(descriptor, events)
        self._ready[descriptor] = ready

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor. Call it before closing the descriptor."""
        if self._ready.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def leave_to_parent(self) -> None:
        """In a forked child: close the copies of the descriptors, so that connections end with the parent.

        Not after the thread has ended, when their numbers may be those of other files.
        """
        global _shared
        if _shared is self:
            _shared = None
        self._poll.close()
        for descriptor in (*([self._bell] if self._has_bell else []), *self._ready):
            os.close(descriptor)
        self._ready.clear()

    def end(self) -> None:
        """End the thread, which closes its descriptors."""

        def stop() -> None:
            self._ended = True

        self.run_soon(stop)
        if not self.is_here:
            self._thread.join()

    def _ring(self) -> None:
        if not self._rung and not self.is_here:
            with self._bell_lock:
                if self._has_bell:
                    self._rung = True
                    os.write(self._bell, _ONE)

    def _run(self) -> None:
        take_no_signals()
        while self._calls or not self._ended:
            for descriptor, events in self._poll.poll(self._sleep_s()):
                if descriptor == self._bell:
                    os.read(self._bell, 8)
                    self._rung = False
                elif ready := self._ready.get(descriptor):
                    _safely(ready, events)
            for _ in range(len(self._calls)):
                _safely(self._calls.popleft())
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                _safely(heapq.heappop(self._timers)[2])
            if self._next_check <= now:
                self._check(now)
        self._poll.close()
        with self._bell_lock:
            self._has_bell = False
            os.close(self._bell)

    def _sleep_s(self) -> float | None:
        if self._calls:
            return 0
        moment = min(self._next_check, self._timers[0][0] if self._timers else math.inf)
        return None if moment == math.inf else max(0.0, moment - time.monotonic())

    def _check(self, now: float) -> None:
        with self._lock:
            self._next_check = math.inf
            checks = list(self._checks)
        for check in checks:
            self.check_at(_safely(check, now) or math.inf)


def _safely(call: Callable[..., float | None], *arguments: float) -> float | None:
    """Run ``call`` and log its exception, because one connection must not end the thread of all."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001 - it is logged
        _log.exception("a call on the I/O thread failed: %r", call)
        return None


_shared: IoThread | None = None


def acquire() -> IoThread:
    """Return the I/O thread of this process. Call :func:`release` afterwards."""
    global _shared
    with fork.held_off:
        if _shared is None:
            _shared = IoThread()
            fork.register(_shared)
        _shared.users += 1
        return _shared


def release(io: IoThread) -> None:
    """Give the I/O thread back. The last user ends it and waits for its end."""
    global _shared
    with fork.held_off:
        io.users -= 1
        if io.users > 0 or io is not _shared:
            return
        _shared = None
    io.end()
