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

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqclient.broker.address import Address
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.consumer import Consumer
from rmqclient.broker.clients.notices import tell_members_changed, tell_offsets
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.groups.allocation import Allocations
from rmqclient.broker.groups.fences import Fences
from rmqclient.broker.groups.lease import PATIENCE_S, Key, Lease, NonMemberLocks, QueueRequest, QueueRequests
from rmqclient.broker.groups.seats import Seats
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.request import Peer, Request
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_RESERVED_S = 3.0
"""Seconds a free queue is reserved for the member that the allocation names."""
_UNUSED_S = 60.0
"""Seconds unused after which a member loses a queue outside its allocation, if another member asks for it."""
_SILENT_S = 45.0
"""Seconds of silence after which a later connection with the same client id gets the earlier one's queues."""
_MOVED_S = 30.0
"""Seconds for which a member that lost a queue by a seek must resume at the new offset."""


_MOST_LOGGED = 10_000
"""Duplicate client ids that were logged once; beyond this number a line may be repeated."""


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
        allocations: Allocations,
        settings: GroupSettings,
        broker_name: str,
        counters: Counters,
    ) -> None:
        self._store = store
        self._seats = seats
        self._clients = clients
        self._settings = settings
        self._broker_name = broker_name
        self._leases: dict[Key, Lease] = {}
        self._requests = QueueRequests()
        self._non_member_locks = NonMemberLocks()
        self._fences = Fences(store, seats)
        self._moved: dict[Key, _Moved] = {}
        self._allocations = allocations
        self._listening: list[Callable[[str, MessageQueue], None]] = []
        self._counters = counters
        self._logged: set[tuple[str, str]] = set()

    def when_free(self, callback: Callable[[str, MessageQueue], None]) -> None:
        """Call ``callback(group, queue)`` when a refused pull may be tried again."""
        self._listening.append(callback)

    def read_from(self, request: Request, group: str, queue: MessageQueue) -> int | None:
        """Return the offset from which a pull is answered; None while its client may not read the queue.

        It takes the lease if the client needs one and may have it. The offset is the one that the client asks for, but
        no message that the group finished: a member may ask for the group's offset before the last owner's final
        commit, and pull after it. A held pull may be checked repeatedly. Raises UnknownTopic, TableFull.
        """
        asked = int(request.fields["queueOffset"])
        consumer = self._clients.consumer(group, request.peer)
        if consumer is not None and consumer.is_broadcast:
            consumer.start_offsets[queue] = None
            return asked
        slot = self._slot(group, queue)
        if slot is not None and slot.load("paused"):
            return None
        if consumer is not None and queue.topic in consumer.refused:
            return None
        if consumer is None or not consumer.shares_queues:
            return asked if (group, queue) not in self._leases and self._fences.is_free(slot) else None
        consumer.seen_at = time.monotonic()
        lease = self._lease(group, queue)
        if lease is None or lease.consumer is not consumer:
            lease = self._taken(consumer, queue, asked)
        else:
            lease.note_pull(request)
            if lease.is_called_in:
                return None
            if lease.grant is None:
                lease.grant = self._seats.take(consumer, queue, self._begin(queue, asked))
                self._fences.put(lease)
        if lease is None or lease.grant is None:
            return None
        return asked if lease.committed_at else max(asked, lease.grant.committed_offset)

    def count_delivered(self, group: str, queue: MessageQueue, messages: int, size: int) -> None:
        """Count messages that a member of a group gets; ``size`` is the bytes of their records."""
        slot = self._slot(group, queue)
        if slot is not None:
            slot.add("delivered", messages)
            slot.add("bytes_out", size)

    def lock(self, peer: Peer, group: str, client_id: str, queue: MessageQueue, *, ordered: bool = True) -> bool:
        """Lock a queue for a client, or renew its lock; False while another member has it.

        ``ordered=False`` is for members of this library that lock queues which they handle concurrently.
        """
        consumer = self._clients.consumer(group, peer) or self._clients.consumer_named(group, client_id)
        key = (group, queue)
        if consumer is None or not consumer.shares_queues or consumer.client_id != client_id:
            may_lock = key not in self._leases and self._fences.may_lock(key, client_id, ordered=ordered)
            return may_lock and self._non_member_locks.lock(key, client_id)
        if self._non_member_locks.holder(key) not in (None, client_id):
            return False
        lease = self._lease(group, queue)
        if lease is not None and lease.consumer.client_id == client_id and not lease.consumer.peer.is_open:
            lease.consumer, lease.asked_at = consumer, 0.0  # the client is back, by another connection
        if lease is None or lease.consumer is not consumer:
            lease = self._taken(consumer, queue, None) if self._exists(queue) else None
            if lease is None:
                return False
        if lease.is_called_in and time.monotonic() > lease.asked_at + PATIENCE_S:
            return False  # before that the lock lets it finish in order
        lease.locked_at, lease.is_ordered = time.monotonic(), ordered
        self._fences.put(lease)
        return True

    def unlock(self, peer: Peer, group: str, client_id: str, queue: MessageQueue) -> None:
        """Free the lock of a client. Another client may do so for one whose connection has ended."""
        self._non_member_locks.unlock((group, queue), client_id)
        lease = self._leases.get((group, queue))
        if lease is None:
            self._fences.end((group, queue), client_id)
        if lease is None or lease.consumer.client_id != client_id or not lease.locked_at:
            return
        is_other = self._clients.consumer(group, peer) not in (None, lease.consumer)
        if not (is_other and lease.consumer.peer.is_open):
            self._release(lease)

    def commit(self, peer: Peer, group: str, queue: MessageQueue, offset: int) -> str:
        """Set a group's offset in a queue. Returns the refusal, for a member that has lost the queue; else ``""``.

        A client that is not a member, such as an administrator's, may commit for a remote member. If the queue has no
        owner, a member may only move forwards. Raises UnknownTopic, TableFull, StoreBusy.
        """
        end = self._store.topics.max_offset(queue)
        if not 0 <= offset <= end:
            begin = self._store.topics.min_offset(queue)
            return self._refusal(group, f"{offset} of {_named(queue)} is outside of {begin} to {end}")
        consumer = self._clients.consumer(group, peer)
        lease = self._lease(group, queue)
        if lease is not None and lease.grant is not None:
            if consumer is not None and lease.consumer is not consumer:
                return self._refusal(group, f"{offset} of {_named(queue)}: {lease.consumer.client_id} has it")
            return self._commit_leased(lease, offset)
        if self._is_moved(group, queue, consumer, offset):
            return self._refusal(group, f"{offset} of {_named(queue)}: the group was moved to another place")
        self._settings.auto_create(group, peer.remote)
        return self._commit_free(consumer, peer.remote, group, queue, offset)

    def leave(self, consumer: Consumer) -> None:
        """Release the queues of a member that left or lost its connection.

        An ordered queue stays locked for 30 s after the connection has ended, because a handler may still run.
        """
        self._requests.forget(consumer)
        for lease in self._of(consumer):
            if consumer.peer.is_open or not self._fences.is_around(lease):
                self._release(lease)

    def has_any(self, consumer: Consumer, topic: str) -> bool:
        """Return whether a member has a queue of a topic."""
        return any(lease.queue.topic == topic for lease in self._of(consumer))

    def release_topic(self, consumer: Consumer, topic: str) -> None:
        """Release a member's queues of a topic that it no longer subscribes to."""
        for lease in self._of(consumer):
            if lease.queue.topic == topic:
                self._release(lease)

    def members_changed(self) -> None:
        """Drop cached allocations, because members or queues have changed."""
        self._allocations.forget()

    def look(self) -> None:
        """Advance every move of a queue. Call this a few times a second, and after any change."""
        self._allocations.forget()
        for key, lease in list(self._leases.items()):
            if not lease.is_valid:
                self._lose(key, lease)
            elif not lease.consumer.peer.is_open and not self._fences.is_around(lease):
                self._release(lease)
            else:
                self._settle(key, lease)
        self._requests.end_old()
        self._non_member_locks.end_old()
        for key in self._requests:
            if key not in self._leases:
                self._tell_wanting(key)
        now = time.monotonic()
        for key in [key for key, moved in self._moved.items() if moved.until < now]:
            del self._moved[key]

    # --- taking ----------------------------------------------------------------------------------

    def _taken(self, consumer: Consumer, queue: MessageQueue, begin: int | None) -> Lease | None:
        """Take a queue for a member, or note its request. ``begin`` is the offset it asks for; None for a lock."""
        key = (consumer.group, queue)
        wanted = self._requests.note(key, consumer, locks=begin is None)
        held = self._leases.get(key)
        if held is not None:
            self._settle(key, held)
        if key in self._leases or self._is_reserved(key, consumer, wanted):
            return None
        if begin is not None and self._is_moved(consumer.group, queue, consumer, begin):
            return None
        known = self._seats.slot(consumer.group, queue) is not None
        has_place = known or begin is not None
        grant = self._seats.take(consumer, queue, self._begin(queue, begin or 0)) if has_place else None
        if grant is None and (has_place or queue.topic not in consumer.subscriptions):
            return None
        lease = self._leases[key] = Lease(consumer, queue, grant)
        lease.pulled_at = time.monotonic()
        self._fences.know_again(lease)
        self._moved.pop(key, None)
        self._requests.drop(key, consumer)
        return lease

    def _exists(self, queue: MessageQueue) -> bool:
        try:
            return self._store.topics.slot(queue) >= 0
        except LookupError:
            return False

    def _begin(self, queue: MessageQueue, offset: int) -> int:
        topics = self._store.topics
        return min(max(offset, topics.min_offset(queue)), topics.max_offset(queue))

    def _is_reserved(self, key: Key, consumer: Consumer, wanted: QueueRequest) -> bool:
        """Return whether a free queue is reserved for another member, which the allocation names."""
        group, queue = key
        if self._fences.is_for(key, consumer.client_id):
            return False
        shares = self._allocations.of(group, queue.topic)
        heir, local = shares.remote.get(queue, consumer.client_id), shares.local.get(queue)
        if heir == consumer.client_id and (local is None or local.client_id == heir):
            return False
        return time.monotonic() < wanted.since + _RESERVED_S

    # --- moving ----------------------------------------------------------------------------------

    def _settle(self, key: Key, lease: Lease) -> None:
        """Ask the owner for a queue that another member is to have; release it once the owner has given it up."""
        if lease.is_called_in:
            if lease.is_given_up():
                self._release(lease)
        elif self._is_called_for(key, lease):
            lease.asked_at = time.monotonic()
            tell_members_changed(lease.consumer)

    def _is_called_for(self, key: Key, lease: Lease) -> bool:
        queue, owner, now = lease.queue, lease.consumer, time.monotonic()
        wanting = [each for each in self._requests.of(key) if each is not owner]
        same_id = [each for each in wanting if each.client_id == owner.client_id]
        if same_id and owner.seen_at < now - _SILENT_S:
            return True
        shares = self._allocations.of(key[0], queue.topic)
        heir, local = shares.remote.get(queue), shares.local.get(queue)
        if heir == owner.client_id:
            self._complain_of_same(owner, same_id)
            return False
        if local is not None or any(each.client_id == heir for each in wanting):
            return True
        return bool(wanting) and lease.active_at < now - _UNUSED_S and not lease.is_locked

    def _release(self, lease: Lease) -> None:
        key = (lease.consumer.group, lease.queue)
        del self._leases[key]
        if lease.grant is not None:
            self._seats.release(lease.grant)
        local = self._allocations.of(key[0], lease.queue.topic).local.get(lease.queue)
        if local is not None:
            self._seats.tell(local)
        self._tell_wanting(key)

    def _tell_wanting(self, key: Key) -> None:
        """Retry held pulls of a free queue, and tell orderly consumers to try their lock again."""
        for consumer, wanted in self._requests.of(key).items():
            if wanted.locks and wanted.last < time.monotonic() - 0.2 and not self._is_reserved(key, consumer, wanted):
                wanted.last = time.monotonic()
                tell_members_changed(consumer)
        for callback in self._listening:
            callback(*key)

    def _lose(self, key: Key, lease: Lease) -> None:
        """Drop a lease whose epoch is old, after a seek or after the server stalled and another member took over."""
        del self._leases[key]
        slot = self._seats.slot(*key)
        if slot is None or lease.grant is None:
            return
        self._seats.release(lease.grant)
        if slot.load("owner"):
            _log.warning("group %s: %s has lost %s to another member", key[0], lease.consumer.client_id, _named(key[1]))
        else:
            offset = slot.committed_offset
            self._moved[key] = _Moved(lease.consumer, offset, time.monotonic() + _MOVED_S)
            wire = lease.queue._replace(broker_name=self._broker_name)
            tell_offsets(lease.consumer, lease.queue.topic, {wire: offset})

    def _is_moved(self, group: str, queue: MessageQueue, consumer: Consumer | None, offset: int) -> bool:
        """Return whether a member still uses an offset that a seek has replaced."""
        moved = self._moved.get((group, queue))
        return moved is not None and moved.consumer is consumer and offset != moved.offset

    # --- committing ------------------------------------------------------------------------------

    def _commit_leased(self, lease: Lease, offset: int) -> str:
        group, queue = lease.consumer.group, lease.queue
        slot = self._slot(group, queue)
        if slot is None or lease.grant is None:
            return ""
        if slot.commit(offset, lease.grant.epoch, self._store.config.lock_timeout_ms):
            lease.committed_at = lease.consumer.seen_at = time.monotonic()
            return ""
        return self._refusal(group, f"{offset} of {_named(queue)}: {lease.consumer.client_id} has lost the queue")

    def _commit_free(
        self, consumer: Consumer | None, client: Address, group: str, queue: MessageQueue, offset: int
    ) -> str:
        slot = self._seats.slot_or_new(group, queue, offset, client)
        if slot is None:
            return self._refusal(
                group, f"{offset} of {_named(queue)}: the clients of {client.host} take too many places"
            )
        if self._seats.has_owner(slot):
            return self._refusal(group, f"{offset} of {_named(queue)}: a local member has the queue")
        if slot.fence_left_ns:
            why = self._fences.commit(consumer, slot, offset)
            return why and self._refusal(group, f"{offset} of {_named(queue)}: {why}")
        with slot.locked(self._store.config.lock_timeout_ms):
            is_back = offset < slot.committed_offset
            if slot.load("owner") and self._seats.has_owner(slot):
                return self._refusal(group, f"{offset} of {_named(queue)}: a local member has the queue")
            if is_back and consumer is not None and consumer.shares_queues:
                return self._refusal(group, f"{offset} of {_named(queue)} is below {slot.committed_offset}")
            if offset != slot.committed_offset:
                slot.seek(offset)
        return ""

    def _refusal(self, group: str, text: str) -> str:
        """Count a refused commit, and log it; return the text for the client."""
        self._counters.refuse(Refusal.COMMIT, f"group {group}: a commit is refused: {text}")
        return f"group {group!r}: offset {text}"

    # --- looking ---------------------------------------------------------------------------------

    def _lease(self, group: str, queue: MessageQueue) -> Lease | None:
        """Return the lease of a queue, unless its epoch is old."""
        lease = self._leases.get((group, queue))
        if lease is not None and not lease.is_valid:
            self._lose((group, queue), lease)
            return None
        return lease

    def _slot(self, group: str, queue: MessageQueue) -> GroupQueueSlot | None:
        """Return the store's slot as :meth:`Seats.slot`; that of a lease is looked up once, because it cannot change.

        A group that has members is not removed, and a lease ends when the epoch of its slot does.
        """
        lease = self._leases.get((group, queue))
        if lease is None or lease.grant is None:
            return self._seats.slot(group, queue)
        if lease.slot is None:
            lease.slot = self._seats.slot(group, queue)
        return lease.slot

    def _of(self, consumer: Consumer) -> Iterator[Lease]:
        return iter([lease for lease in self._leases.values() if lease.consumer is consumer])

    def _complain_of_same(self, owner: Consumer, others: list[Consumer]) -> None:
        if others and (owner.group, owner.client_id) not in self._logged:
            if len(self._logged) >= _MOST_LOGGED:
                self._logged.clear()
            self._logged.add((owner.group, owner.client_id))
            _log.warning(
                "group %s: %s and %s have one client id, %s: only the first is given messages",
                owner.group, owner.peer.remote, others[0].peer.remote, owner.client_id,
            )  # fmt: skip


def _named(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic}"
