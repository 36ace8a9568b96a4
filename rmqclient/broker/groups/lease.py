"""Lease: one queue of a group, leased to one remote member; also the requests of members for queues.

Request 40 asks a client to give a queue up: it asks for the members of the group, and drops the queue. The first of
these events ends the lease:

* An orderly consumer, and any client that has locked the queue, unlocks it (42). It may renew the lock for 30 s more,
  and the lock expires 60 s after the last renewal. No other event counts: a handler may run for long, and messages of
  the queue must not overtake it. A lock from a server that died counts as well
  (:mod:`rmqclient.broker.groups.fences`).
* Any other client commits the queue's offset (15), after it has asked for the members again.
* It has not pulled for 2 s. A pull that it sent before does not count.
* It still pulls after 30 s, longer than two of its rebalances are apart: then it allocates queues differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.request import Request
from rmqclient.store import MessageQueue, QueueGrant
from rmqclient.store.runtime.group_table import GroupQueueSlot

LOCK_S = 60.0
"""Seconds until a lock expires without a renewal. [RebalanceLockManager.REBALANCE_LOCK_MAX_LIVE_TIME]"""
QUIET_S = 2.0
"""Seconds without a pull after which a member that was asked for a queue counts as having dropped it."""
PATIENCE_S = 30.0
"""Seconds after which a queue is taken from a member that was asked for it and still pulls."""


@dataclass(slots=True, eq=False)
class Lease:
    """A queue that a remote member has. Times are of ``ran_s``; 0 means never."""

    consumer: Consumer
    queue: MessageQueue
    grant: QueueGrant | None
    """None for a lock of a queue that the group never had: the first pull gives the start offset."""
    ran_s: Callable[[], float] = field(repr=False)
    """The seconds in which this process runs. What a client sends while it stands still is not read yet."""
    locked_at: float = 0.0
    is_ordered: bool = False
    """Whether the member handles the queue in order, according to its lock."""
    pulled_at: float = 0.0
    committed_at: float = 0.0
    asked_at: float = 0.0
    """When the member was asked to give the queue up."""
    slot: GroupQueueSlot | None = field(default=None, repr=False)
    """The store's slot of the group for the queue, once it was looked up under this grant."""
    pull: Request | None = field(default=None, repr=False)
    """The last pull; a held pull is checked repeatedly and must count once."""

    @property
    def is_valid(self) -> bool:
        """Whether the member still owns the queue: a seek, or a stall of the server, may have ended that."""
        return self.grant is None or self.grant.valid

    @property
    def is_locked(self) -> bool:
        """Whether the member holds the lock of the queue."""
        return self.locked_at > 0.0 and self.ran_s() < self.locked_at + LOCK_S

    @property
    def is_called_in(self) -> bool:
        """Whether the member was asked to give the queue up."""
        return self.asked_at > 0.0

    @property
    def active_at(self) -> float:
        """When the member last did anything with the queue."""
        return max(self.locked_at, self.pulled_at, self.committed_at)

    def note_pull(self, request: Request) -> None:
        """Note the time of a pull, once for each request."""
        if request is not self.pull:
            self.pull = request
            self.pulled_at = self.ran_s()

    def is_given_up(self) -> bool:
        """Return whether the member, which was asked for the queue, has dropped it."""
        now = self.ran_s()
        if self.is_locked:
            return False
        if self.committed_at > max(self.asked_at, self.pulled_at) and self.consumer.asked_members_at > self.asked_at:
            return True
        return now > max(self.asked_at, self.pulled_at) + QUIET_S or now > self.asked_at + PATIENCE_S


WANTED_S = 65.0
"""Seconds until a queue request expires unless it is repeated; clients hold a pull for 30 s at most."""

Key = tuple[str, MessageQueue]
"""A group and a queue."""


def named(queue: MessageQueue) -> str:
    """Return how texts for people name a queue."""
    return f"queue {queue.queue_id} of {queue.topic}"


@dataclass(slots=True)
class QueueRequest:
    """A member's request for a queue that it cannot have yet. Times are seconds in which this process runs."""

    since: float
    last: float
    locks: bool
    """Whether it asks for the lock, so that it must be told when to try again."""


class QueueRequests:
    """Requests for queues by member. For the thread of the event loop."""

    def __init__(self, ran_s: Callable[[], float]) -> None:
        self._ran_s = ran_s
        self._requests: dict[Key, dict[Consumer, QueueRequest]] = {}

    def note(self, key: Key, consumer: Consumer, *, locks: bool) -> QueueRequest:
        """Add or renew a member's request for a queue."""
        now = self._ran_s()
        request = self._requests.setdefault(key, {}).setdefault(consumer, QueueRequest(now, now, locks))
        request.last = now
        return request

    def drop(self, key: Key, consumer: Consumer) -> None:
        """Remove a member's request for a queue."""
        requests = self._requests.get(key, {})
        requests.pop(consumer, None)
        if not requests:
            self._requests.pop(key, None)

    def forget(self, consumer: Consumer) -> None:
        """Remove all requests of a member."""
        for key in [key for key, requests in self._requests.items() if consumer in requests]:
            self.drop(key, consumer)

    def end_old(self) -> None:
        """Remove expired requests."""
        oldest = self._ran_s() - WANTED_S
        old = [
            (key, of)
            for key, requests in self._requests.items()
            for of, request in requests.items()
            if request.last < oldest
        ]
        for key, consumer in old:
            self.drop(key, consumer)

    def of(self, key: Key) -> dict[Consumer, QueueRequest]:
        """Return the requests for a queue, by member."""
        return dict(self._requests.get(key, {}))

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._requests))
