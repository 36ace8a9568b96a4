"""Steps: what durable steps need of a store, besides what every backend has."""

from __future__ import annotations

from typing import Protocol

from rmqclient.backend.protocols import Sender
from rmqclient.message import ReceivedMessage, SendResult


class StepSender(Sender, Protocol):
    """A sender of results of steps, and of copies of waiting messages."""

    def deliver_early(self, message: ReceivedMessage) -> SendResult | None:
        """Deliver a timer message before its time; None if it no longer waits. Raises as a send."""


class StepStore(Protocol):
    """A store that keeps the results of steps."""

    @property
    def log_begin(self) -> int:
        """Commit log offset of the oldest message. One before it, in a compacted file, may outlive its results."""

    def has(self, topic: str) -> bool:
        """Return whether a topic exists. This is cheap."""

    def sender(self) -> StepSender:
        """Return a sender that makes a missing topic, with one queue."""
