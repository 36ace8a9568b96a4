"""Limits: what a backend accepts and promises, as far as its clients have to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from rmqclient.store import Durability, StoreConfig
from rmqclient.store.bodies import DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a backend; the defaults are those of RocketMQ's brokers and clients."""

    max_body_bytes: int = 4 << 20
    """Longest encoded body that is accepted. [maxMessageSize]"""
    max_opened_body_bytes: int = DEFAULT_LIMIT
    """Longest body that a compressed one may open to."""
    default_queue_count: int = 4
    """Queues of a topic that is made by its first message. [defaultTopicQueueNums]"""
    durability: Durability = Durability.ASYNC
    """SYNC if a producer must wait for a flush. Brokers wait by themselves, as they are configured."""
    file_reserved_hours: int | None = None
    """Hours for which messages are kept at least; None if the backend does not know that. [fileReservedTime]"""

    @classmethod
    def of(cls, config: StoreConfig) -> Self:
        """Return the limits of a store with these settings."""
        return cls(
            max_body_bytes=config.max_body_bytes,
            max_opened_body_bytes=config.max_opened_body_bytes,
            default_queue_count=config.default_queue_count,
            durability=config.durability,
            file_reserved_hours=config.retention.file_reserved_hours,
        )
