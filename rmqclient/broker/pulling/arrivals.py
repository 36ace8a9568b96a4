"""Arrivals: how the event loop hears of messages that any process of this host has sent.

A thread sleeps on an arrival lane of the store (:mod:`rmqclient.store.runtime.arrivals`) without holding up the loop.
When a sender rings, the thread calls the loop once, and not again before the loop has looked. So under load one call
stands for many messages.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from rmqclient.store import LONGEST_SLEEP_S, MessageQueue, MessageStore
from rmqclient.store.errors import UnknownTopic
from rmqclient.store.runtime.arrivals import NOT_SEEN, Seen
from rmqclient.store.threads.guarded import GuardedThread


class Arrivals:
    """One bell of a server. ``look`` is called on the loop after senders rang, and once in half a second anyway.

    The second is for a sender that died between its message and its ring. Except for :meth:`close`, methods are for the
    thread of the loop.
    """

    def __init__(self, store: MessageStore, look: Callable[[], None]) -> None:
        self._bell = store.arrival_bell()
        self._look = look
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard = self._bell.heard()
        self._is_told = False
        self._wanted = threading.Event()
        self._closed = False
        self._thread = GuardedThread(target=self._run, name="rmq-arrivals")

    def arm(self, queue: MessageQueue) -> Seen:
        """Ask the next sender to a queue to ring; return the queue as it is after this. Look after this, not before."""
        if self._loop is None:
            self._thread.start()
        self._loop = asyncio.get_running_loop()
        self._wanted.set()
        with suppress(UnknownTopic):  # made later: the next look arms it
            self._bell.arm(queue)
            return self._bell.look(queue)
        return NOT_SEEN

    def news(self, seen: Mapping[MessageQueue, Seen]) -> list[MessageQueue]:
        """Return the queues that are not any more as :meth:`arm` returned them."""
        return self._bell.news(seen)

    def rest(self) -> None:
        """Let the thread sleep until the next :meth:`arm`: nobody waits for a message."""
        self._wanted.clear()

    def close(self) -> None:
        """End the thread; returns when it has ended. Any thread may call this."""
        self._closed = True
        self._wanted.set()
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._wanted.wait()
            self._bell.wait(self._heard, LONGEST_SLEEP_S)
            self._heard = self._bell.heard()
            if not self._is_told and self._loop is not None:
                self._is_told = True
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._is_told = False  # before the look: who rings from here on is heard
        self._look()
