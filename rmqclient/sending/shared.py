"""Shared: one producer for all code of a process that sends for an application.

A web application has no good moment to open a producer: a server imports it, then forks. So each process opens one at
its first send, for the store that the application names then, and closes it at its end.
"""

from __future__ import annotations

import atexit
from collections.abc import Hashable
from contextlib import ExitStack, suppress
from typing import Any, Protocol

from rmqclient.sending.producer import Producer
from rmqclient.store import fork
from rmqclient.store.errors import StoreReplaced
from rmqclient.store.native_threads import threading


class Sends(Protocol):
    """An application."""

    tables: Any
    """The tables, which know the application's current place."""

    def producer(self) -> Producer:
        """Open a producer at the current place."""


class SharedProducer:
    """The producers of one application in this process: one for each store that it has named, usually one."""

    def __init__(self, app: Sends) -> None:
        self._app = app
        self._producers: dict[Hashable, Producer] = {}
        self._lock = threading.Lock()
        fork.register(self)

    def get(self) -> Producer:
        """Return the producer of this process, which is safe for threads. Raises as a Producer."""
        place: Hashable = self._app.tables.root
        producer = self._producers.get(place)
        if producer is None:
            with self._lock:
                producer = self._producers.get(place)
                if producer is None:
                    producer = self._producers[place] = self._app.producer()
                    atexit.register(self._close_at_exit)
        return producer

    def close(self) -> None:
        """Close the producers; the next :meth:`get` opens a new one."""
        atexit.unregister(self._close_at_exit)
        with self._lock, ExitStack() as stack:
            for producer in self._producers.values():
                stack.callback(producer.close)
            self._producers = {}

    def _close_at_exit(self) -> None:
        with suppress(StoreReplaced):  # a script may have removed its temporary directory
            self.close()

    def leave_to_parent(self) -> None:
        """In a forked child: drop the parent's producers, and the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()
        self._producers = {}
        atexit.unregister(self._close_at_exit)

    def __reduce__(self) -> tuple[object, ...]:
        return SharedProducer, (self._app,)
