"""Rules: protocols by which a pull asks about the members of its group. The room of groups implements them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmqclient.broker.request import Peer, Request
from rmqclient.remoting import bodies
from rmqclient.store import MessageQueue


class Subscriptions(Protocol):
    """Subscriptions of groups, from heartbeats."""

    def subscription(self, group: str, topic: str) -> bodies.Subscription | None:
        """Return a group's subscription to a topic; None if no member subscribes to it."""


Commit = Callable[[Peer, str, MessageQueue, int], str]
"""Sets the offset of a group in a queue; returns the refusal, or an empty text. Raises UnknownTopic, TableFull,
StoreBusy."""


class Leases(Protocol):
    """Owners of queues."""

    def read_from(self, request: Request, group: str, queue: MessageQueue) -> int | None:
        """Return the offset from which a pull is answered: the one it asks for, or a later one.

        None while the client may not read the queue. Raises UnknownTopic, TableFull, StoreBusy.
        """

    def count_delivered(self, group: str, queue: MessageQueue, messages: int, size: int) -> None:
        """Count messages that a member of a group gets; ``size`` is the bytes of their records."""


class NoLeases:
    """Rules of a read-only server: members may read any queue, because only the primary knows the owners."""

    def read_from(self, request: Request, group: str, queue: MessageQueue) -> int:
        """Return the offset that the client asks for."""
        del group, queue
        return int(request.fields["queueOffset"])

    def count_delivered(self, group: str, queue: MessageQueue, messages: int, size: int) -> None:
        """Do nothing."""


def no_commit(peer: Peer, group: str, queue: MessageQueue, offset: int) -> str:
    """Refuse to set an offset: a replica gets offsets from its primary."""
    del peer, group, queue, offset
    return "this server takes no offsets"
