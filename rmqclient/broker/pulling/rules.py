"""Rules: what a pull asks about the members of its group. The room of groups answers; for a reading server, nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmqclient.broker.request import Peer, Request
from rmqclient.remoting import bodies
from rmqclient.store import MessageQueue


class Subscriptions(Protocol):
    """What the members of groups subscribe to, by their heartbeats."""

    def subscription(self, group: str, topic: str) -> bodies.Subscription | None:
        """Return what a group wants of a topic; None for a group without members, and for another topic."""


class Leases(Protocol):
    """Which member of a group has which queue."""

    def may_pull(self, request: Request, group: str, queue: MessageQueue) -> bool:
        """Tell whether the client of a pull may be fed from a queue now. Raises UnknownTopic, TableFull, StoreBusy."""

    def feed_from(self, request: Request, group: str, queue: MessageQueue) -> int:
        """Return the offset from which a pull that may be fed is answered: the one it asks for, or a later one."""

    def count_delivered(self, group: str, queue: MessageQueue, messages: int, size: int) -> None:
        """Count messages that a member of a group gets, and the bytes of their records."""

    def commit(self, peer: Peer, group: str, queue: MessageQueue, offset: int) -> str:
        """Set where the group goes on; return why not, or an empty text. Raises UnknownTopic, TableFull, StoreBusy."""

    def when_free(self, callback: Callable[[str, MessageQueue], None]) -> None:
        """Call ``callback(group, queue)`` when a pull that might not be fed may be now."""


class NoLeases:
    """Rules of a server that only reads: members get what they ask for.

    Who has which queue of a replica, its primary alone knows. The queues of another store are for those who commit.
    """

    def may_pull(self, request: Request, group: str, queue: MessageQueue) -> bool:
        """Say yes."""
        del request, group, queue
        return True

    def feed_from(self, request: Request, group: str, queue: MessageQueue) -> int:
        """Return what the client asks for."""
        del group, queue
        return int(request.fields["queueOffset"])

    def count_delivered(self, group: str, queue: MessageQueue, messages: int, size: int) -> None:
        """Count nothing."""

    def commit(self, peer: Peer, group: str, queue: MessageQueue, offset: int) -> str:
        """Refuse: a server that only reads takes no offsets, and a replica gets them from its primary."""
        del peer, group, queue, offset
        return "this server takes no offsets"

    def when_free(self, callback: Callable[[str, MessageQueue], None]) -> None:
        """Forget it: no queue is ever taken."""
