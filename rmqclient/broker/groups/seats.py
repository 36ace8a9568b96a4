"""Seats: remote members in the store's own table of members, held by the process that has their connections.

A remote member in clustering mode has a seat for each topic, under its client id. So local members count it when they
allocate queues, and ``rmq group`` shows it. One thread renews the seats and the leases of their queues, so a busy event
loop loses neither. The kernel frees both when this process dies.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from rmqclient.broker.address import Address
from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.limits.made import Kind, Made
from rmqclient.broker.stored_names import stored_client, stored_group
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting import bodies
from rmqclient.store import HALF_TOPIC, Member, MemberInfo, MessageQueue, MessageStore, QueueGrant, TagSet
from rmqclient.store.errors import MembershipRefused, QueueError
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.subscription import REMOTE, agree
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

LEASE_MS = 10_000
"""Milliseconds for which local members wait for a stalled server, as for each other. [ConsumerConfig.lease_ms]"""
BEAT_S = 0.25
"""Seconds between two heartbeats of the seats. [ConsumerConfig.liveness_interval_ms]"""

_RETRIES = "*"
"""Subscription text of members of a retry topic."""
_LIST_S = 0.05
_LOCK_TIMEOUT_MS = 200
"""Milliseconds for which a step of the event loop waits for a mutex, at most; it is then tried again."""


class GroupSlots:
    """The store's slots of groups for queues, by the names of clients. For any thread."""

    def __init__(self, store: MessageStore, made: Made) -> None:
        self._store = store
        self._made = made

    def find(self, group: str, queue: MessageQueue) -> GroupQueueSlot | None:
        """Return the store's slot of a group for a queue; None if it never had it, or there is no such queue."""
        try:
            return self._store.groups.find(stored_group(group), self._store.topics.slot(queue))
        except LookupError:
            return None

    def find_or_add(self, group: str, queue: MessageQueue, begin: int, client: Address) -> GroupQueueSlot | None:
        """Return the store's slot of a group for a queue; a new one begins at offset ``begin``.

        None if the client's address has used up its share of slots. Raises UnknownTopic, TableFull.
        """
        number = self._store.topics.slot(queue)
        found = self._store.groups.find(stored_group(group), number)
        if found is None and self._made.has_room(Kind.GROUP_QUEUE, client):
            found = self._store.groups.find_or_add(stored_group(group), number, begin)
        return found


class Seats:
    """The seats of all remote members, and their leases. Safe for threads.

    A thread of its own calls ``rang`` when members, topics or owners of queues may have changed, and every quarter of a
    second.
    """

    def __init__(self, store: MessageStore, made: Made, rang: Callable[[], None]) -> None:
        self._store = store
        self.slots = GroupSlots(store, made)
        self._rang = rang
        self.table = store.members()
        self.table.lock_timeout_ms = _LOCK_TIMEOUT_MS
        self._lock = threading.Lock()
        self._members: dict[tuple[str, str, str], Member] = {}
        self._sitting: dict[tuple[str, str, str], list[Consumer]] = {}
        self._grants: dict[int, QueueGrant] = {}
        self._local_ids: dict[str, set[str]] = {}
        self._listed_at = -math.inf
        self._closing = threading.Event()
        self._bell = self.table.bell
        self._thread = GuardedThread(target=self._beat, name="rmq-serve-seats")

    def start(self) -> None:
        """Start the heartbeats; a second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Release every queue and seat, and end the thread. Fences stay."""
        self._closing.set()
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join()
        fenced = {slot.number for slot in self._store.groups if slot.fence_left_ns}
        for number, grant in self._grants.items():
            if number not in fenced:
                grant.release()
        self._grants.clear()
        for member in self._members.values():
            member.leave()
        self._members.clear()

    def sit(self, consumer: Consumer, subscription: bodies.Subscription) -> bool:
        """Give a member its seat for a topic. False if its subscription differs from that of living members.

        Local members decide, because they cannot change their subscription. If all members are remote, the newest one
        decides, as with a broker, and the seats of the others get its text. Raises TableFull, StoreBusy.
        """
        text, name = text_of(subscription), _name(consumer, subscription.topic)
        group, topic, _ = name
        with self._lock:
            seats = self.table.roll.counted(group, topic, LEASE_MS)
            if not all(self.is_ours(seat) or agree(seat.subscription, text) for seat in seats):
                return False
            self._join_anew([seat for seat in seats if not agree(seat.subscription, text)], text)
            if name not in self._members:
                try:
                    self._members[name] = self.table.join(*name, text)
                except MembershipRefused:  # by a stalled member, which no longer counts
                    return False
            sitting = self._sitting.setdefault(name, [])
            if consumer not in sitting:
                sitting.append(consumer)
            self._bell = self.table.bell
            return True

    def leave(self, consumer: Consumer, topic: str) -> None:
        """Remove a member's seat for a topic, unless another connection has its client id. Its queues were released."""
        name = _name(consumer, topic)
        with self._lock:
            sitting = self._sitting.get(name, [])
            if consumer in sitting:
                sitting.remove(consumer)
            if not sitting:
                self._sitting.pop(name, None)
                member = self._members.pop(name, None)
                if member is not None:
                    member.leave()

    def take(self, consumer: Consumer, queue: MessageQueue, begin: int) -> QueueGrant | None:
        """Take the lease of a queue for a member with a seat; None while it has an owner, or the mutex is busy.

        A group that never had the queue begins at offset ``begin``, or at the end of the queue nearest to it. Raises
        UnknownTopic, TableFull.
        """
        topics = self._store.topics
        begin = min(max(begin, topics.min_offset(queue)), topics.max_offset(queue))
        member = self._members.get(_name(consumer, queue.topic))
        if member is None:
            return None
        slot = self.slots.find_or_add(consumer.group, queue, begin, consumer.peer.remote)
        if slot is None:
            return None
        with self._lock:
            epoch = member.take(slot, LEASE_MS)
            if epoch is None:
                return None
            grant = self._store.grants.grant(slot, epoch, TagSet(()))
            self._grants[slot.number] = grant
            return grant

    def release(self, grant: QueueGrant) -> None:
        """Release a queue. Does nothing if it has another owner."""
        if self._grants.get(grant.group_queue) is grant:
            del self._grants[grant.group_queue]
        grant.release()

    def has_owner(self, slot: GroupQueueSlot) -> bool:
        """Return whether a queue has an owner, in this process or another."""
        with self._lock:
            return self.table.roll.owner(slot) is not None

    def counted(self, group: str, topic: str) -> tuple[MemberInfo, ...]:
        """Return the members among which local members allocate a topic's queues."""
        with self._lock:
            return self.table.roll.counted(stored_group(group), topic, LEASE_MS)

    def local_ids(self, group: str) -> set[str]:
        """Return the client ids of the local members of a group, for any topic. The result may be 50 ms old."""
        with self._lock:
            if time.monotonic() > self._listed_at + _LIST_S:
                self._listed_at = time.monotonic()
                self._local_ids = {}
                for seat in self.table.roll.everybody(LEASE_MS):
                    if seat.topic != HALF_TOPIC and not self.is_ours(seat):
                        self._local_ids.setdefault(seat.group, set()).add(seat.client_id)
            return self._local_ids.get(stored_group(group), set())

    def forget_local_ids(self) -> None:
        """Drop the cache of :meth:`local_ids`."""
        self._listed_at = -math.inf

    def is_ours(self, seat: MemberInfo) -> bool:
        """Return whether a seat is that of a remote member of this server."""
        member = self._members.get((seat.group, seat.topic, seat.client_id))
        return member is not None and (member.slot, member.incarnation) == (seat.slot, seat.incarnation)

    def _join_anew(self, seats: Sequence[MemberInfo], text: str) -> None:
        """Give members of this server another text. The group has no other members at this time."""
        names = [(seat.group, seat.topic, seat.client_id) for seat in seats]
        for name in names:
            self._members.pop(name).leave()
        for name in names:
            self._members[name] = self.table.join(*name, text)

    def _beat(self) -> None:
        while not self._closing.is_set():
            bell = self._bell
            heard = bell.heard()
            try:
                self._show_life()
            except (QueueError, OSError) as error:
                _log.error("heartbeats of remote members failed, trying again: %s", error)
            except Exception:  # noqa: BLE001 - without this thread every member would lose its queues
                _log.exception("heartbeats of remote members failed, trying again")
            self._rang()
            if not self._closing.is_set():
                bell.wait(heard, BEAT_S)

    def _show_life(self) -> None:
        with self._lock:
            for member in self._members.values():
                member.beat()
            self.table.watch_behind({member.slot for member in self._members.values()})
        for number, grant in list(self._grants.items()):
            if not grant.renew(LEASE_MS):  # the event loop finds out at the next look
                self._grants.pop(number, None)


def _name(consumer: Consumer, topic: str) -> tuple[str, str, str]:
    """Return the name of a seat in the store: group, topic and client."""
    return stored_group(consumer.group), topic, stored_client(consumer.client_id)


def text_of(subscription: bodies.Subscription) -> str:
    """Return a remote member's subscription as the text that the members of a group compare.

    A local member's text is :attr:`rmqclient.handler.Handler.subscription`: tags, filters, order and allocation. A
    heartbeat does not have the last two (:mod:`rmqclient.store.runtime.subscription`).
    """
    if subscription.topic.startswith(RETRY_PREFIX):
        return _RETRIES
    if subscription.expression_type == "TAG":
        return f"tags {' || '.join(subscription.tags) or '*'}{REMOTE}"
    return f"tags *; {subscription.expression_type.lower().removesuffix('92')} {subscription.expression!r}{REMOTE}"


def allocation_of(text: str) -> str:
    """Return the name of the allocation in a member's text; ``averaged`` if there is no name."""
    return text.rpartition("; allocation ")[2] or "averaged" if "; allocation " in text else "averaged"
