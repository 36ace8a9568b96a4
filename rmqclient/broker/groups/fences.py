"""Fences: an ordered queue is reserved for its client after its connection ends or the server dies.

An orderly client handles its messages for up to 30 s after it last locked the queue, even if its broker is gone. The
next server gets the client's pulls, commits and locks before its heartbeat. So the store has the end of the
reservation and the client (``fenced_until``).

===============================================  =====================================================================
while a queue is fenced and not leased           result
===============================================  =====================================================================
its client pulls, as a member                    it gets the lease, and keeps its lock
its client renews its lock                       the fence lasts 30 s more
its client unlocks it                            the fence ends
a commit                                         the group moves, and the fence stays
another client pulls, locks or takes the queue   it gets nothing yet
===============================================  =====================================================================
"""

from __future__ import annotations

from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.clients.process import process_of
from rmqclient.broker.groups.lease import LOCK_S, Key, Lease
from rmqclient.broker.groups.seats import Seats
from rmqclient.store import MessageStore
from rmqclient.store.runtime.group_table import GroupQueueSlot

FENCE_S = 30.0
"""Seconds after its last lock for which an orderly client without a connection handles a queue. [ProcessQueue]"""


class Fences:
    """The fences around the queues of remote members. For the thread of the event loop."""

    def __init__(self, store: MessageStore, seats: Seats) -> None:
        self._store = store
        self._seats = seats

    def put(self, lease: Lease) -> None:
        """Reserve a queue that is locked in order for its client, in case this process dies. Raises StoreBusy."""
        consumer = lease.consumer
        slot = self._seats.slots.find(consumer.group, lease.queue)
        if lease.is_ordered and lease.grant is not None and slot is not None:
            consumer.process = consumer.process or process_of(consumer.client_id, consumer.peer)
            self._put(slot, consumer.client_id, lease.grant.epoch)

    def know_again(self, lease: Lease) -> None:
        """Take over the lock that a client has from a server that died: it still relies on it."""
        slot = self._seats.slots.find(lease.consumer.group, lease.queue)
        if slot is not None and lease.grant is not None and (left_ns := slot.fence_left_ns):
            lease.locked_at, lease.is_ordered = self._store.state.awake.ran_s() + left_ns / 1e9 - FENCE_S, True

    def is_around(self, lease: Lease) -> bool:
        """Return whether a client without a connection may still run a handler of an ordered queue."""
        fenced_until = lease.locked_at + min(FENCE_S, LOCK_S) if lease.is_ordered and lease.locked_at else 0.0
        process = lease.consumer.process
        return self._store.state.awake.ran_s() < fenced_until and not (process is not None and process.has_ended)

    def is_free(self, slot: GroupQueueSlot | None) -> bool:
        """Return whether a queue is neither owned nor reserved. ``slot`` is None if no member ever had it."""
        return slot is None or not (slot.fence_left_ns or self._seats.has_owner(slot))

    def is_for(self, key: Key, client_id: str) -> bool:
        """Return whether a queue is reserved for this client."""
        slot = self._seats.slots.find(*key)
        return slot is not None and slot.is_fenced_for(client_id)

    def may_lock(self, key: Key, client_id: str, *, ordered: bool) -> bool:
        """Return whether a client that is not (yet) a member may lock a queue without a lease.

        Only a lease keeps local members away. So with ``ordered`` the client may only lock a queue that no member ever
        had, or renew its lock from a server that died. Raises StoreBusy.
        """
        slot = self._seats.slots.find(*key)
        if slot is None or not ordered:
            return True
        epoch = slot.load("epoch")
        return slot.is_fenced_for(client_id) and self._put(slot, client_id, epoch)

    def end(self, key: Key, client_id: str) -> None:
        """End the fence of a queue without a lease that its client gives up. Raises StoreBusy."""
        slot = self._seats.slots.find(*key)
        if slot is not None and slot.is_fenced_for(client_id):
            slot.end_fence(client_id, self._store.config.lock_timeout_ms)

    def commit(self, consumer: Consumer | None, slot: GroupQueueSlot, offset: int) -> str:
        """Commit in a fenced queue and keep the fence, which a seek would end. Returns the refusal, else ``""``.

        ``consumer`` is None for a client that is not (yet) a member. Raises OffsetOutOfRange, StoreBusy.
        """
        epoch = slot.load("epoch")
        if consumer is not None and slot.is_fenced_from(consumer.client_id):
            return "it is kept for another client"
        if consumer is not None and consumer.shares_queues and offset < slot.committed_offset:
            return f"it is below {slot.committed_offset}"
        if self._seats.has_owner(slot) or not slot.commit(offset, epoch, self._store.config.lock_timeout_ms):
            return "a local member has the queue"
        return ""

    def _put(self, slot: GroupQueueSlot, client_id: str, epoch: int) -> bool:
        return slot.fence(client_id, epoch, round(FENCE_S * 1000), self._store.config.lock_timeout_ms)
