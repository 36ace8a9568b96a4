"""Pull result: the answer to one read of a queue."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rmqclient.message import ReceivedMessage


class PullStatus(enum.Enum):
    """Outcome of a pull, by RocketMQ's names (PullStatus)."""

    FOUND = "found"
    """There are messages."""
    NO_NEW_MESSAGE = "no new message"
    """The offset is the end of the queue: pull it again later."""
    NO_MATCHED_MESSAGE = "no matched message"
    """The messages that were looked at have other tags: continue at ``next_offset``."""
    OFFSET_ILLEGAL = "offset illegal"
    """The queue has no such offset: it ends below, or that message was removed. ``next_offset`` is the nearest one."""


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to one pull."""

    status: PullStatus
    next_offset: int
    """Offset of the next pull."""
    min_offset: int
    max_offset: int
    messages: tuple[ReceivedMessage, ...] = ()
