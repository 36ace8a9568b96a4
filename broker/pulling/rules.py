"""Rules: what a pull asks of groups and of their members. Other rooms of the broker answer."""

from __future__ import annotations

from typing import Protocol

from rmqclient.broker.request import Peer
from rmqclient.remoting.bodies import GroupConfig, Subscription
from rmqclient.store import MessageQueue


class Groups(Protocol):
    """The settings of consumer groups."""

    def config(self, group: str) -> GroupConfig | None:
        """Return the settings of a group, made if it is missing; None when groups are not made by themselves."""


class Subscriptions(Protocol):
    """What the members of groups subscribe to, by their heartbeats."""

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return what a group wants of a topic; None for a group without members, and for another topic."""


class Leases(Protocol):
    """Which member of a group has which queue."""

    def may_pull(self, peer: Peer, group: str, queue: MessageQueue) -> bool:
        """Tell whether this client may be fed from this queue now."""

    def commit(self, peer: Peer, group: str, queue: MessageQueue, offset: int) -> bool:
        """Set where the group goes on; False, and nothing is changed, when the client has lost the queue."""
