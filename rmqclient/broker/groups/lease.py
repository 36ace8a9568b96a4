"""Lease: one queue of a group in the hands of one remote member, and what stands beside it.

A client is asked to give a queue up by request 40, upon which it asks who is in the group, and drops the queue. It says
so in one of these ways, whichever comes first:

* An orderly consumer, and any client that has locked the queue, unlocks it (42). It may renew the lock for 30 s more,
  and it runs out 60 s after the last renewal. Nothing else counts: a handler may run for long, and messages of the
  queue must not overtake it. A lock that outlived a server counts as well (:mod:`rmqclient.broker.groups.fences`).
* Any other client commits the queue's offset (15), after it has asked for the members again.
* It has not pulled for 2 s. A pull that it sent before does not count.
* It pulls on for 30 s, longer than two of its rebalances are apart: then it shares queues by another strategy.

Beside the leases stand the members that ask for a queue which another one has (``Wants``), and the locks of clients
that are not members of the group that they name (``StrangersLocks``): RocketMQ locks for any client
[RebalanceLockManager]. This library's clients use that before they join a group, to set where it begins, and without
any group, so that one of several processes does something alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqclient.broker.clients.consumer import Consumer
from rmqclient.broker.request import Request
from rmqclient.store import MessageQueue, QueueGrant

LOCK_S = 60.0
"""How long a lock lasts without a renewal. [RebalanceLockManager.REBALANCE_LOCK_MAX_LIVE_TIME]"""
QUIET_S = 2.0
"""A member that was asked for a queue, and has not pulled for so long, does not pull it any more."""
PATIENCE_S = 30.0
"""A queue is taken from a member that was asked for it, and goes on pulling for so long."""


@dataclass(slots=True, eq=False)
class Lease:
    """A queue that a remote member has. Times are monotonic seconds; 0 means never."""

    consumer: Consumer
    queue: MessageQueue
    grant: QueueGrant | None
    """None for a lock of a queue that the group never had: the first pull says where it begins."""
    locked_at: float = 0.0
    is_ordered: bool = False
    """Whether the member handles the queue in order, as far as its lock tells."""
    pulled_at: float = 0.0
    committed_at: float = 0.0
    asked_at: float = 0.0
    """When the member was asked to give the queue up."""
    pull: Request | None = field(default=None, repr=False)
    """The last pull, so that one that is held and looked at again does not count twice."""

    @property
    def is_valid(self) -> bool:
        """Whether nobody else has got the queue, by a seek or after the server stood still."""
        return self.grant is None or self.grant.valid

    @property
    def is_locked(self) -> bool:
        """Whether the member holds the lock of the queue."""
        return self.locked_at > 0.0 and time.monotonic() < self.locked_at + LOCK_S

    @property
    def is_called_in(self) -> bool:
        """Whether the member was asked to give the queue up."""
        return self.asked_at > 0.0

    @property
    def active_at(self) -> float:
        """When the member last did anything with the queue."""
        return max(self.locked_at, self.pulled_at, self.committed_at)

    def note_pull(self, request: Request) -> None:
        """Note that the member pulls; a pull that was noted is not noted again."""
        if request is not self.pull:
            self.pull = request
            self.pulled_at = time.monotonic()

    def is_given_up(self) -> bool:
        """Tell whether the member, which was asked for the queue, has dropped it."""
        now = time.monotonic()
        if self.is_locked:
            return False
        if self.committed_at > max(self.asked_at, self.pulled_at) and self.consumer.asked_members_at > self.asked_at:
            return True
        return now > max(self.asked_at, self.pulled_at) + QUIET_S or now > self.asked_at + PATIENCE_S


WANTED_S = 65.0
"""A member that has not asked again for so long does not want the queue any more; a pull is held for 30 s at most."""

Key = tuple[str, MessageQueue]
"""A group and a queue."""


@dataclass(slots=True)
class Want:
    """A member that asks for a queue in vain. Times are monotonic seconds."""

    since: float
    last: float
    locks: bool
    """Whether it asks for the lock, and has to be told when it may try again."""


class Wants:
    """Who wants which queue. For the thread of the event loop."""

    def __init__(self) -> None:
        self._wants: dict[Key, dict[Consumer, Want]] = {}

    def note(self, key: Key, consumer: Consumer, *, locks: bool) -> Want:
        """Note that a member asks for a queue now."""
        now = time.monotonic()
        want = self._wants.setdefault(key, {}).setdefault(consumer, Want(now, now, locks))
        want.last = now
        return want

    def drop(self, key: Key, consumer: Consumer) -> None:
        """Forget that a member wants a queue."""
        wants = self._wants.get(key, {})
        wants.pop(consumer, None)
        if not wants:
            self._wants.pop(key, None)

    def forget(self, consumer: Consumer) -> None:
        """Forget all that a member wants."""
        for key in [key for key, wants in self._wants.items() if consumer in wants]:
            self.drop(key, consumer)

    def end_old(self) -> None:
        """Forget those that have not asked again."""
        oldest = time.monotonic() - WANTED_S
        old = [(key, who) for key, wants in self._wants.items() for who, want in wants.items() if want.last < oldest]
        for key, consumer in old:
            self.drop(key, consumer)

    def of(self, key: Key) -> dict[Consumer, Want]:
        """Return the members that want a queue."""
        return dict(self._wants.get(key, {}))

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._wants))


_MOST = 10_000


class StrangersLocks:
    """Who has locked which queue without being a member. For the thread of the event loop."""

    def __init__(self) -> None:
        self._locks: dict[Key, tuple[str, float]] = {}

    def lock(self, key: Key, client_id: str) -> bool:
        """Lock a queue for a client, or renew its lock; False while another one has it, and for too many locks."""
        if self.holder(key) not in (None, client_id) or (key not in self._locks and len(self._locks) >= _MOST):
            return False
        self._locks[key] = client_id, time.monotonic() + LOCK_S
        return True

    def unlock(self, key: Key, client_id: str) -> None:
        """Free the lock of a client."""
        if self.holder(key) == client_id:
            del self._locks[key]

    def holder(self, key: Key) -> str | None:
        """Return the client id that has locked a queue; None when nobody has."""
        client_id, until = self._locks.get(key, (None, 0.0))
        return client_id if time.monotonic() < until else None

    def end_old(self) -> None:
        """Forget the locks that have run out."""
        now = time.monotonic()
        self._locks = {key: lock for key, lock in self._locks.items() if lock[1] > now}
