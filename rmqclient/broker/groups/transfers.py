"""Transfers: the members that ask for a queue, and which of them is to have it."""

from __future__ import annotations

from collections.abc import Callable

from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.clients.notices import tell_members_changed
from rmqclient.broker.groups.allocation import Allocations
from rmqclient.broker.groups.fences import Fences
from rmqclient.broker.groups.lease import Key, Lease, QueueRequest, QueueRequests
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_RESERVED_S = 3.0
"""Seconds a free queue is reserved for the member that the allocation names."""
_UNUSED_S = 60.0
"""Seconds unused after which a member loses a queue outside its allocation, if another member asks for it."""
_SILENT_S = 45.0
"""Seconds of silence after which a later connection with the same client id gets the earlier one's queues."""
_MOST_LOGGED = 10_000
"""Duplicate client ids that were logged once; beyond this number a line may be repeated."""


class Transfers:
    """The requests for queues of all groups. For the thread of the event loop."""

    def __init__(self, allocations: Allocations, fences: Fences, ran_s: Callable[[], float]) -> None:
        self.allocations = allocations
        self._ran_s = ran_s
        self.requests = QueueRequests(ran_s)
        self._fences = fences
        self._listening: list[Callable[[str, MessageQueue], None]] = []
        self._logged: set[tuple[str, str]] = set()

    def when_free(self, callback: Callable[[str, MessageQueue], None]) -> None:
        """Call ``callback(group, queue)`` when a refused pull may be tried again."""
        self._listening.append(callback)

    def is_reserved(self, key: Key, consumer: Consumer, wanted: QueueRequest) -> bool:
        """Return whether a free queue is reserved for another member, which the allocation names."""
        group, queue = key
        if self._fences.is_for(key, consumer.client_id):
            return False
        shares = self.allocations.of(group, queue.topic)
        heir, local = shares.remote.get(queue, consumer.client_id), shares.local.get(queue)
        if heir == consumer.client_id and (local is None or local.client_id == heir):
            return False
        return self._ran_s() < wanted.since + _RESERVED_S

    def is_called_for(self, key: Key, lease: Lease) -> bool:
        """Return whether another member is to have a queue that is leased."""
        queue, owner, now = lease.queue, lease.consumer, self._ran_s()
        wanting = [each for each in self.requests.of(key) if each is not owner]
        same_id = [each for each in wanting if each.client_id == owner.client_id]
        if same_id and owner.seen_at < now - _SILENT_S:
            return True
        shares = self.allocations.of(key[0], queue.topic)
        heir, local = shares.remote.get(queue), shares.local.get(queue)
        if heir == owner.client_id:
            self._complain_of_same(owner, same_id)
            return False
        if local is not None or any(each.client_id == heir for each in wanting):
            return True
        return bool(wanting) and lease.active_at < now - _UNUSED_S and not lease.is_locked

    def tell_waiting(self, key: Key) -> None:
        """Retry held pulls of a free queue, and tell orderly consumers to try their lock again."""
        for consumer, wanted in self.requests.of(key).items():
            if wanted.locks and wanted.last < self._ran_s() - 0.2 and not self.is_reserved(key, consumer, wanted):
                wanted.last = self._ran_s()
                tell_members_changed(consumer)
        for callback in self._listening:
            callback(*key)

    def _complain_of_same(self, owner: Consumer, others: list[Consumer]) -> None:
        if others and (owner.group, owner.client_id) not in self._logged:
            if len(self._logged) >= _MOST_LOGGED:
                self._logged.clear()
            self._logged.add((owner.group, owner.client_id))
            _log.warning(
                "group %s: %s and %s have one client id, %s: only the first is given messages",
                owner.group, owner.peer.remote, others[0].peer.remote, owner.client_id,
            )  # fmt: skip
