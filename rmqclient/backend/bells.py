"""Bells: wake a thread when a group changes or a message arrives.

A thread calls :meth:`Bell.heard`, then looks for work, and then waits. A ring after the first call ends the wait at
once. The bells of the store, :mod:`rmqclient.store.runtime.arrivals`, satisfy the protocols.
"""

from __future__ import annotations

from typing import Protocol

from rmqclient.store import MessageQueue
from rmqclient.store.threads.locks import Condition


class Bell(Protocol):
    """Wakes sleeping threads. Any thread or process may ring it."""

    def heard(self) -> int:
        """Return a number that changes at each ring, for :meth:`wait`."""

    def wait(self, heard: int, timeout_s: float) -> None:
        """Sleep until the bell rings, at most ``timeout_s`` seconds; return at once if it rang since ``heard``."""

    def ring(self) -> None:
        """Wake every thread that sleeps on this bell."""


class ArrivalBell(Bell, Protocol):
    """A bell that senders to some queues ring, once each time it is armed."""

    lane: int
    """Number of this bell for grants."""

    def arm(self, *queues: MessageQueue) -> int:
        """Ask the next sender to each of these queues to ring; return :meth:`heard`. Raises UnknownTopic."""


class ThreadBell:
    """A bell for the threads of one process."""

    def __init__(self) -> None:
        self._rings = 0
        self._rung = Condition()

    def heard(self) -> int:
        """Return a number that changes at each ring, for :meth:`wait`."""
        return self._rings

    def wait(self, heard: int, timeout_s: float) -> None:
        """Sleep until the bell rings, at most ``timeout_s`` seconds; return at once if it rang since ``heard``."""
        with self._rung:
            self._rung.wait_for(lambda: self._rings != heard, max(0.0, timeout_s))

    def ring(self) -> None:
        """Wake every thread that sleeps on this bell."""
        with self._rung:
            self._rings += 1
            self._rung.notify_all()
