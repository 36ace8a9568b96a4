"""Made: limits, for each client address, what clients create permanently by using it.

A request may create a group, a group's offset takes a slot of the store for each queue, and a message may create its
topic. The store has a fixed number of slots for these, so the clients of one address may not take them all.
"""

from __future__ import annotations

import enum
import threading
from collections import Counter
from typing import Final

from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.limits.limits import Limits
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError


class Kind(enum.Enum):
    """What was created. The value is its name in the log and in answers."""

    GROUP = "groups"
    GROUP_QUEUE = "places of groups in queues"
    TOPIC = "topics"


class Made:
    """Counts creations by address since the server's start. Safe for threads."""

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._most: Final = {
            Kind.GROUP: limits.groups_per_address,
            Kind.GROUP_QUEUE: limits.group_queues_per_address,
            Kind.TOPIC: limits.topics_per_address,
        }
        self._counters = counters
        self._lock = threading.Lock()
        self._counts: Counter[tuple[Kind, str]] = Counter()

    def has_room(self, kind: Kind, client: Address) -> bool:
        """Count one more of a kind; False, counted as a refusal, if the address has used up its share."""
        with self._lock:
            if self._counts[kind, client.host] < self._most[kind]:
                self._counts[kind, client.host] += 1
                return True
        self._counters.refuse(Refusal.MADE, f"client {client} refused: {self._text(kind, client)}")
        return False

    def take(self, kind: Kind, client: Address) -> None:
        """Count one more of a kind. Raises AnswerError if the address has used up its share."""
        if not self.has_room(kind, client):
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"{self._text(kind, client)}: let an administrator make more")

    def _text(self, kind: Kind, client: Address) -> str:
        return f"{self._most[kind]:,} {kind.value} were made by clients of {client.host}, which is the limit"
