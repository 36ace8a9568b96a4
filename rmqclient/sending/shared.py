"""Shared: one producer for all code of a process that sends for an application, made when it is first needed.

A web application has no good moment to open a producer: a server imports it, then forks. So each process makes its
own at its first send, for the store that the application names by then, and closes it when it ends.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Hashable
from contextlib import ExitStack, suppress
from typing import Any, Protocol

from rmqclient.sending.producer import Producer
from rmqclient.store import fork
from rmqclient.store.errors import StoreReplaced


class Sends(Protocol):
    """An application."""

    tables: Any
    """They know at which place the application is now."""

    def producer(self) -> Producer:
        """Open a producer there."""


class SharedProducer:
    """The producers of one application in this process: one for each store that it has named, in practice one."""

    def __init__(self, app: Sends) -> None:
        self._app = app
        self._producers: dict[Hashable, Producer] = {}
        self._lock = threading.Lock()
        fork.register(self)

    def get(self) -> Producer:
        """Return the producer of this process; it is safe for threads. Raises as a Producer."""
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
        """Close what was made; the next :meth:`get` makes another one."""
        atexit.unregister(self._close_at_exit)
        with self._lock, ExitStack() as stack:
            for producer in self._producers.values():
                stack.callback(producer.close)
            self._producers = {}

    def _close_at_exit(self) -> None:
        with suppress(StoreReplaced):  # its directory went before the process, as that of a script with a temporary one
            self.close()

    def leave_to_parent(self) -> None:
        """Forget the producers of the process that this one was forked from, in whose threads the lock may be held."""
        self._lock = threading.Lock()
        self._producers = {}
        atexit.unregister(self._close_at_exit)

    def __reduce__(self) -> tuple[object, ...]:
        return SharedProducer, (self._app,)
