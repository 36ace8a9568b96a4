"""Local steps: keeps the results of durable steps in a store of this host."""

from __future__ import annotations

from rmqclient.local.sender import LocalSender
from rmqclient.store import MessageStore


class LocalSteps:
    """The :class:`rmqclient.backend.steps.StepStore` of a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def log_begin(self) -> int:
        """Commit log offset of the oldest message."""
        return self._store.state.min_offset

    def has(self, topic: str) -> bool:
        """Return whether a topic exists."""
        return topic in self._store.topics

    def sender(self) -> LocalSender:
        """Return a sender that makes a missing topic, with one queue."""
        return LocalSender(self._store, lambda topic: self._store.topics.create(topic, 1, None))
