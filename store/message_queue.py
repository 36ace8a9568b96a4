"""Message queue: one numbered queue of a topic."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """A (topic, queue id) pair; ``broker_name`` is empty for a store without a broker."""

    topic: str
    queue_id: int
    broker_name: str = ""

    @property
    def sort_key(self) -> tuple[str, str, int]:
        """RocketMQ's order: topic, broker name (``b-10`` before ``b-2``), queue id as a number."""
        return self.topic, self.broker_name, self.queue_id
