"""Locks of clients that are no members of the group that they name. A member's lock is a lease.

RocketMQ locks for whoever asks [RebalanceLockManager]. This library's clients use that before they join a group, to set
where it begins, and without any group, so that one of several processes does something alone.
"""

from __future__ import annotations

import time

from rmqclient.broker.groups.lease import LOCK_S
from rmqclient.broker.groups.wants import Key

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
