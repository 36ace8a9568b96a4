"""Message queue: one numbered queue of a topic."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


class MessageQueue(NamedTuple):
    """A (topic, queue id) pair; ``broker_name`` is empty for a store without a broker."""

    topic: str
    queue_id: int
    broker_name: str = ""

    @property
    def sort_key(self) -> tuple[str, str, int]:
        """Sort key in RocketMQ's order: topic, broker name (``b-10`` before ``b-2``), queue id as a number."""
        return self.topic, self.broker_name, self.queue_id


def is_name(text: str) -> bool:
    """Tell whether a topic or a group may have this name in RocketMQ's files: 1 to 127 of ``%|a-zA-Z0-9_-``.

    New topics and groups of this library have no ``|`` in their names (:mod:`rmqclient.names`).
    """
    return _NAME.fullmatch(text) is not None
