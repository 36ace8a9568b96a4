"""Ranges: queue offsets by queue. An offset is the next one to read, and ranges are half open."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from rmqclient.store import MessageQueue

Offsets: TypeAlias = dict[MessageQueue, int]
Ranges: TypeAlias = dict[MessageQueue, range]


def in_words(queue: MessageQueue) -> str:
    """Return ``queue 0 of orders``, with its broker in a cluster."""
    broker = f" on {queue.broker_name}" if queue.broker_name else ""
    return f"queue {queue.queue_id} of {queue.topic}{broker}"


class Piece(NamedTuple):
    """A range of queue offsets of one queue; ``stop`` is exclusive."""

    queue: MessageQueue
    start: int
    stop: int
