"""Leases: owners of queues, and how a queue moves from one member to the next.

A remote member that reads a queue has a lease with an epoch, as a local member has; this process holds it for the
member. So a queue never has a local and a remote reader at once, nor two remote ones.

===================================  ===================================================================================
a member pulls or locks a queue      result
===================================  ===================================================================================
that it owns                         messages, until it is asked to give the queue up
that is free                         the lease; only after 3 s if the allocation names another member
that another member owns             nothing yet; the owner is asked for the queue if the allocation names another one
===================================  ===================================================================================

A queue moves in two steps. First its owner gets no more messages, and is told to rebalance. When it has given the queue
up (:mod:`rmqclient.broker.groups.lease`), the lease is released and the next owner is told. If clients allocate queues
otherwise than by RocketMQ's default, the owner of a queue keeps it while it uses it.

Pull consumers, which choose their queues themselves, take no lease, and get nothing from a queue that has an owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.clients.notices import tell_members_changed, tell_offsets
from rmqclient.broker.groups.fences import Fences
from rmqclient.broker.groups.lease import Key, Lease, named
from rmqclient.broker.groups.seats import Seats
from rmqclient.broker.groups.transfers import Transfers
from rmqclient.broker.request import Request
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_MOVED_S = 30.0
"""Seconds for which a member that lost a queue by a seek must resume at the new offset."""


class _Moved(NamedTuple):
    """A member that lost a queue by a seek."""

    consumer: Consumer
    offset: int
    until: float


class Leases:
    """The leases of all remote members. For the thread of the event loop.

    ``broker_name`` is the one that clients know.
    """

    def __init__(
        self,
        store: MessageStore,
        seats: Seats,
        clients: Clients,
        fences: Fences,
        transfers: Transfers,
        broker_name: str,
    ) -> None:
        self._store = store
        self._ran_s = store.state.awake.ran_s
        self._seats = seats
        self._clients = clients
        self._broker_name = broker_name
        self.by_key: dict[Key, Lease] = {}
        """Every lease, also one whose epoch is old."""
        self._fences = fences
        self._moved: dict[Key, _Moved] = {}
        self._transfers = transfers

    def read_from(self, request: Request, group: str, queue: MessageQueue) -> int | None:
        """Return the offset from which a pull is answered; None while its client may not read the queue.

        It takes the lease if the client needs one and may have it. The offset is the one that the client asks for, but
        no message that the group finished: a member may ask for the group's offset before the last owner's final
        commit, and pull after it. A held pull may be checked repeatedly. Raises UnknownTopic, TableFull.
        """
        asked = int(request.fields["queueOffset"])
        consumer = self._clients.consumers.find(group, request.peer)
        if consumer is not None and consumer.is_broadcast:
            consumer.start_offsets[queue] = None
            return asked
        slot = self.slot(group, queue)
        if slot is not None and slot.load("paused"):
            return None
        if consumer is not None and queue.topic in consumer.refused:
            return None
        if consumer is None or not consumer.shares_queues:
            return asked if (group, queue) not in self.by_key and self._fences.is_free(slot) else None
        consumer.seen_at = self._ran_s()
        lease = self.find(group, queue)
        if lease is None or lease.consumer is not consumer:
            lease = self.take(consumer, queue, asked)
        else:
            lease.note_pull(request)
            if lease.is_called_in:
                return None
            if lease.grant is None:
                lease.grant = self._seats.take(consumer, queue, asked)
                self._fences.put(lease)
        if lease is None or lease.grant is None:
            return None
        return asked if lease.committed_at else max(asked, lease.grant.committed_offset)

    def count_delivered(self, group: str, queue: MessageQueue, messages: int, size: int) -> None:
        """Count messages that a member of a group gets; ``size`` is the bytes of their records."""
        slot = self.slot(group, queue)
        if slot is not None:
            slot.add("delivered", messages)
            slot.add("bytes_out", size)

    def leave(self, consumer: Consumer) -> None:
        """Release the queues of a member that left or lost its connection.

        An ordered queue stays locked for 30 s after the connection has ended, because a handler may still run.
        """
        self._transfers.requests.forget(consumer)
        for lease in self._of(consumer):
            if consumer.peer.is_open or not self._fences.is_around(lease):
                self.release(lease)

    def has_any(self, consumer: Consumer, topic: str) -> bool:
        """Return whether a member has a queue of a topic."""
        return any(lease.queue.topic == topic for lease in self._of(consumer))

    def release_topic(self, consumer: Consumer, topic: str) -> None:
        """Release a member's queues of a topic that it no longer subscribes to."""
        for lease in self._of(consumer):
            if lease.queue.topic == topic:
                self.release(lease)

    def look(self) -> None:
        """Advance every move of a queue. Call this a few times a second, and after any change."""
        self._transfers.allocations.forget()
        for key, lease in list(self.by_key.items()):
            if not lease.is_valid:
                self._lose(key, lease)
            elif not lease.consumer.peer.is_open and not self._fences.is_around(lease):
                self.release(lease)
            else:
                self._settle(key, lease)
        self._transfers.requests.end_old()
        for key in self._transfers.requests:
            if key not in self.by_key:
                self._transfers.tell_waiting(key)
        now = self._ran_s()
        for key in [key for key, moved in self._moved.items() if moved.until < now]:
            del self._moved[key]

    # --- taking ----------------------------------------------------------------------------------

    def take(self, consumer: Consumer, queue: MessageQueue, begin: int | None) -> Lease | None:
        """Take a queue for a member, or note its request. ``begin`` is the offset it asks for; None for a lock."""
        key = (consumer.group, queue)
        wanted = self._transfers.requests.note(key, consumer, locks=begin is None)
        held = self.by_key.get(key)
        if held is not None:
            self._settle(key, held)
        if key in self.by_key or self._transfers.is_reserved(key, consumer, wanted):
            return None
        if begin is not None and self.is_moved(consumer.group, queue, consumer, begin):
            return None
        known = self._seats.slots.find(consumer.group, queue) is not None
        has_place = known or begin is not None
        grant = self._seats.take(consumer, queue, begin or 0) if has_place else None
        if grant is None and (has_place or queue.topic not in consumer.subscriptions):
            return None
        lease = self.by_key[key] = Lease(consumer, queue, grant, self._ran_s)
        lease.pulled_at = self._ran_s()
        self._fences.know_again(lease)
        self._moved.pop(key, None)
        self._transfers.requests.drop(key, consumer)
        return lease

    # --- moving ----------------------------------------------------------------------------------

    def _settle(self, key: Key, lease: Lease) -> None:
        """Ask the owner for a queue that another member is to have; release it once the owner has given it up."""
        if lease.is_called_in:
            if lease.is_given_up():
                self.release(lease)
        elif self._transfers.is_called_for(key, lease):
            lease.asked_at = self._ran_s()
            tell_members_changed(lease.consumer)

    def release(self, lease: Lease) -> None:
        """Give a queue back, and tell the members that wait for it."""
        key = (lease.consumer.group, lease.queue)
        del self.by_key[key]
        if lease.grant is not None:
            self._seats.release(lease.grant)
        local = self._transfers.allocations.of(key[0], lease.queue.topic).local.get(lease.queue)
        if local is not None:
            self._seats.table.wake((local,))
        self._transfers.tell_waiting(key)

    def _lose(self, key: Key, lease: Lease) -> None:
        """Drop a lease whose epoch is old, after a seek or after the server stalled and another member took over."""
        del self.by_key[key]
        slot = self._seats.slots.find(*key)
        if slot is None or lease.grant is None:
            return
        self._seats.release(lease.grant)
        if slot.load("owner"):
            _log.warning("group %s: %s has lost %s to another member", key[0], lease.consumer.client_id, named(key[1]))
        else:
            offset = slot.committed_offset
            self._moved[key] = _Moved(lease.consumer, offset, self._ran_s() + _MOVED_S)
            wire = lease.queue._replace(broker_name=self._broker_name)
            tell_offsets(lease.consumer, lease.queue.topic, {wire: offset})

    def is_moved(self, group: str, queue: MessageQueue, consumer: Consumer | None, offset: int) -> bool:
        """Return whether a member still uses an offset that a seek has replaced."""
        moved = self._moved.get((group, queue))
        return moved is not None and moved.consumer is consumer and offset != moved.offset

    # --- looking ---------------------------------------------------------------------------------

    def find(self, group: str, queue: MessageQueue) -> Lease | None:
        """Return the lease of a queue, unless its epoch is old: then it is dropped."""
        lease = self.by_key.get((group, queue))
        if lease is not None and not lease.is_valid:
            self._lose((group, queue), lease)
            return None
        return lease

    def slot(self, group: str, queue: MessageQueue) -> GroupQueueSlot | None:
        """Return the slot as :meth:`GroupSlots.find`; that of a lease is looked up once, because it cannot change.

        A group that has members is not removed, and a lease ends when the epoch of its slot does.
        """
        lease = self.by_key.get((group, queue))
        if lease is None or lease.grant is None:
            return self._seats.slots.find(group, queue)
        if lease.slot is None:
            lease.slot = self._seats.slots.find(group, queue)
        return lease.slot

    def _of(self, consumer: Consumer) -> Iterator[Lease]:
        return iter([lease for lease in self.by_key.values() if lease.consumer is consumer])
