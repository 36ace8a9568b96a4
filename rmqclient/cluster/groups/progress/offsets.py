"""Offsets: where a group goes on in a queue, wherever that is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmqclient.store import MessageQueue


class Offsets(Protocol):
    """Keeps the offsets of one group, or of one member of a broadcast group. Safe for threads."""

    def read(self, queue: MessageQueue) -> int:
        """Return the offset of the next message, for a new group of the oldest one. Raises QueueError."""

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of the next message; when this returns, others read it. Raises QueueError, OSError."""

    def commit_soon(self, queue: MessageQueue, offset: int, done: Callable[[bool], None]) -> None:
        """Set the offset without waiting; ``done`` learns on any thread whether it is set. Raises as ``commit``."""

    def life(self, queue: MessageQueue) -> object:
        """Return what has changed when the offset that was set may be forgotten, and has to be set again."""

    def flush(self) -> None:
        """Make sure that what was committed survives the process. Raises OSError."""
