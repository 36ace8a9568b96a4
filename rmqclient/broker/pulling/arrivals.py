"""Arrivals: tells the event loop of messages that any process of this host has sent.

A thread sleeps on an arrival lane of the store (:mod:`rmqclient.store.runtime.arrivals`) without blocking the loop.
When a sender rings, the thread calls the loop once, and not again before the loop has looked. So under load one call
covers many messages.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from rmqclient.store import LONGEST_SLEEP_S, MessageQueue, MessageStore
from rmqclient.store.errors import UnknownTopic
from rmqclient.store.runtime.arrivals import NOT_SEEN, Seen
from rmqclient.store.threads.guarded import GuardedThread


class Arrivals:
    """One bell of a server. Calls ``look`` on the loop after senders rang, and every half second.

    The periodic call covers a sender that died between its message and its ring. Except for :meth:`close`, methods are
    for the thread of the loop.
    """

    def __init__(self, store: MessageStore, look: Callable[[], None]) -> None:
        self.bell = store.arrival_bell()
        self._look = look
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard = self.bell.heard()
        self._is_called = False
        self._wanted = threading.Event()
        self._closed = False
        self._thread = GuardedThread(target=self._run, name="rmq-arrivals")

    def arm(self, queue: MessageQueue) -> Seen:
        """Ask the next sender to a queue to ring; return the queue's state after that. Then read the queue."""
        if self._loop is None:
            self._thread.start()
        self._loop = asyncio.get_running_loop()
        self._wanted.set()
        with suppress(UnknownTopic):  # made later: the next look arms it
            self.bell.arm(queue)
            return self.bell.look(queue)
        return NOT_SEEN

    def rest(self) -> None:
        """Let the thread sleep until the next :meth:`arm`, because no pull waits."""
        self._wanted.clear()

    def close(self) -> None:
        """End the thread, and wait for its end. For any thread."""
        self._closed = True
        self._wanted.set()
        self.bell.ring()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._wanted.wait()
            self.bell.wait(self._heard, LONGEST_SLEEP_S)
            self._heard = self.bell.heard()
            if not self._is_called and self._loop is not None:
                self._is_called = True
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._is_called = False  # before the look, so that no later ring is lost
        self._look()
