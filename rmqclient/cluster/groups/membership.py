"""Membership: one member of a group, for one topic of a cluster.

Brokers list the members. Each member computes the owners of queues itself, and Java's members compute the same. A
member takes a queue in this order: lock, committed offset, first pull. It releases it in the opposite order: no message
runs, the offset is committed, the lock is freed.

A killed member leaves its locks. The others free them in its name:

=========================================================  ============================================
when                                                        which queues
=========================================================  ============================================
its process ran on this host, and is dead                   all
it is no longer a member, by the brokers' lists             those without an order
it has not been a member for 30 s                           all: it no longer relies on its locks
10 s have passed, and the lock is still held                without an order: the queue is taken without the lock
=========================================================  ============================================

A failed renewal is repeated after 2 s. While the broker has no master no client can get the lock, so a member without
an order continues, and reads from the slave. An ordered one starts no message from the loss of the connection to the
master until the lock is renewed, because a killed broker has lost its locks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from rmqclient.backend.group_protocols import Death, Grant, Seat
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.bells import Bells
from rmqclient.cluster.groups.grant import ClusterGrant
from rmqclient.cluster.groups.journal import Journal, JournalSlot
from rmqclient.cluster.groups.locks import VALID_S, QueueLocks
from rmqclient.cluster.groups.member_list import ClusterSeat, MemberList, seat_of
from rmqclient.cluster.groups.offsets import Offsets
from rmqclient.cluster.groups.pulling import Pulling
from rmqclient.cluster.groups.timer_thread import TimerThread
from rmqclient.errors import QueueError, StoreClosed
from rmqclient.filters import MessageFilter
from rmqclient.remoting.bodies import Subscription
from rmqclient.store import MessageQueue, boottime
from rmqclient.store.threads.logs import Log

_COURTESY_S = 10.0
PAUSES_S = (0.05, 0.1, 0.2, 0.5)
"""Seconds between tries to take a queue; the last one repeats."""
_UNREACHABLE_PAUSE_S = 2.0
RENEW_AGAIN_S = 2.0
"""Seconds until a failed renewal is repeated."""

_log = Log(__name__)


class ClusterMembership:
    """One member of a group, for one topic. Except for :attr:`bell`, for one thread.

    ``timers`` may wait for brokers, ``lock_timers`` must not. ``locks`` is None for a broadcast group, whose members
    have every queue. ``queue_number`` returns the number of a queue in running slots. ``changed`` is called when a
    queue was lost.
    """

    def __init__(
        self,
        client: ClusterClient,
        timers: TimerThread,
        lock_timers: TimerThread,
        group: str,
        topic: str,
        subscription: Subscription,
        *,
        wanted: MessageFilter,
        ordered: bool,
        members: MemberList | None,
        locks: QueueLocks | None,
        offsets: Offsets,
        journal: Journal,
        bells: Bells,
        queue_number: Callable[[str, MessageQueue], int],
        changed: Callable[[], None],
        left: Callable[[ClusterMembership], None],
    ) -> None:
        self.group = group
        self.topic = topic
        self.client_id = client.client_id
        self.bell = bells.make()
        self.grants: dict[MessageQueue, ClusterGrant] = {}
        """The queues of this member. Other threads read copies of it."""
        self._client = client
        self._timers = timers
        self._lock_timers = lock_timers
        self._subscription = subscription
        self._wanted = wanted
        self.is_ordered = ordered
        self._members = members
        self._locks = locks
        self._offsets = offsets
        self._journal = journal
        self._bells = bells
        self._queue_number = queue_number
        self._changed = changed
        self._left = left
        self._without_lock: set[MessageQueue] = set()
        self._tries: dict[MessageQueue, tuple[float, float, int]] = {}  # first, next, how many
        self._unreachable: dict[str, float] = {}  # broker name → when it may be asked again
        self._freed: set[tuple[MessageQueue, str]] = set()
        self._unrenewed: set[str] = set()  # brokers whose last renewal failed, by name
        self._asked_again: set[str] = set()  # brokers that will be asked again soon
        self.is_sticky = False
        """Whether the allocation needs the current owners of queues."""
        self.owners_seen: dict[MessageQueue, str] = {}
        """Queue → client id of its owner, from the answers of other members."""

    def beat(self) -> None:
        """Do nothing: the client sends the heartbeats."""

    def watch(self) -> bool:
        """Return False: a broker sees at once when a member's connection ends."""
        return False

    def counted(self) -> tuple[ClusterSeat, ...]:
        """Return the members, sorted by client id as in Java; of a broadcast group only this one."""
        if self._members is None:
            return (seat_of(self.client_id),)
        if not self._members.seats:
            self._members.ask()
        return self._members.seats

    def owners(self, queues: Sequence[MessageQueue]) -> tuple[tuple[int, int], ...]:
        """Return the key of the owner of each queue, as far as known."""
        self.is_sticky = True
        own, none = seat_of(self.client_id).key, (0, 0)
        seen = self.owners_seen
        return tuple(
            own if queue in self.grants else seat_of(seen[queue]).key if queue in seen else none for queue in queues
        )

    def grant(self, queue: MessageQueue) -> ClusterGrant | None:
        """Lock a queue, read its offset and start pulling; None while another member has the queue.

        Also None while the broker does not answer, which is logged once.
        """
        first, again_at, tries = self._tries.get(queue, (time.monotonic(), 0.0, 0))
        if time.monotonic() < max(again_at, self._unreachable.get(queue.broker_name, 0.0)):
            return None
        try:
            granted = self._granted(queue, waited_s=time.monotonic() - first)
        except QueueError as error:
            is_new = queue.broker_name not in self._unreachable
            level = logging.WARNING if is_new else logging.DEBUG
            _log.log(level, "group %s: %s cannot be taken yet: %s", self.group, queue, error)
            self._unreachable[queue.broker_name] = time.monotonic() + _UNREACHABLE_PAUSE_S
            return None
        self._unreachable.pop(queue.broker_name, None)
        if granted is None:
            pause_s = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            self._tries[queue] = first, time.monotonic() + pause_s, tries + 1
            return None
        self._tries.pop(queue, None)
        return granted

    def _granted(self, queue: MessageQueue, waited_s: float) -> ClusterGrant | None:
        asked_at = boottime()  # the broker counts from a later time, and the next calls may take long
        asked_in = self._offsets.life(queue)
        if self._locks is not None and not self._lock(self._locks, queue):
            if self.is_ordered or self.is_sticky or waited_s < _COURTESY_S:
                return None
            _log.warning("group %s: the lock of %s is not freed; the queue is taken without it", self.group, queue)
            self._without_lock.add(queue)
        last = self.grants.get(queue)
        if last is not None:
            if last.moved_to is not None:
                self._offsets.commit(queue, last.moved_to)
            last.drop()
        number = self._queue_number(self.group, queue)
        attempts = self._attempts(queue) if self.is_ordered else None
        granted = ClusterGrant(
            queue,
            number,
            self._wanted,
            self._offsets,
            self._bells.of_lane,
            attempts,
            self._give_up,
            locked_at=None if self._locks is None else asked_at,
            locked_in=asked_in,
        )
        granted.arm(self.bell.lane)
        self.grants[queue] = granted
        granted.pull_by(
            Pulling(self._client, self._timers, self.group, queue, self._subscription, granted.next_offset, granted)
        )
        return granted

    def _attempts(self, queue: MessageQueue) -> JournalSlot:
        slot = self._journal.slot()
        slot.serve_queue(self.group, queue)
        return slot

    def _lock(self, locks: QueueLocks, queue: MessageQueue) -> bool:
        if locks.lock(queue):
            self._freed = {pair for pair in self._freed if pair[0] != queue}
            return True
        gone = {(queue, client_id) for client_id in self._gone()} - self._freed
        for _, client_id in gone:
            locks.unlock(queue, client_id)
        self._freed |= gone
        return bool(gone) and locks.lock(queue)

    def _gone(self) -> set[str]:
        """Return the client ids whose locks no longer count."""
        dead = self._journal.dead_clients()
        if self._members is not None:
            now, patience_s = time.monotonic(), VALID_S if self.is_ordered else 0.0
            dead |= {client for client, since in dict(self._members.vanished).items() if now - since >= patience_s}
        return dead - {self.client_id}

    def _give_up(self, grant: ClusterGrant) -> None:
        """Free the lock of a released queue, and forget the deaths with finished messages."""
        queue = grant.queue
        if self.grants.get(queue) is grant:
            del self.grants[queue]
        self._journal.forget(self.group, queue, grant.committed_offset)
        may_have_lock = grant.lock_may_be_forgotten or not grant.lease_is_over
        if self._locks is not None and queue not in self._without_lock and may_have_lock:
            try:
                self._locks.unlock(queue)
            except QueueError as error:
                _log.warning("group %s: the lock of %s ends in 60 s: %s", self.group, queue, error)
        self._without_lock.discard(queue)

    def renew_locks(self) -> None:
        """Renew the locks of all queues, without waiting. For the timer thread."""
        self._renew(lambda _broker_name: True)

    def renew_forgotten_locks(self) -> None:
        """Renew the locks at brokers that may have lost them, without waiting. For the timer thread."""
        grants = list(self.grants.items())
        brokers = {queue.broker_name for queue, grant in grants if grant.valid and grant.lock_may_be_forgotten}
        if brokers := brokers - self._asked_again:
            self._renew(brokers.__contains__)

    def _renew(self, is_wanted: Callable[[str], bool]) -> None:
        grants = list(self.grants.items())
        held = [queue for queue, grant in grants if grant.valid and is_wanted(queue.broker_name)]
        if self._locks is not None and held:
            self._locks.renew(held, partial(self._answered, boottime(), self._locks))

    def _answered(
        self, asked_at: int, locks: QueueLocks, asked: list[MessageQueue], locked: set[MessageQueue] | QueueError
    ) -> None:
        broker_name = asked[0].broker_name
        if not isinstance(locked, QueueError):
            self._unrenewed.discard(broker_name)
            self._renewed(asked, locked, asked_at)
        elif not isinstance(locked, StoreClosed):
            if not self.is_ordered and not locks.can_be_given(broker_name):
                self._live_on(asked, asked_at)
            self._not_renewed(broker_name, locked)

    def _live_on(self, queues: list[MessageQueue], asked_at: int) -> None:
        for queue in queues:
            grant = self.grants.get(queue)
            if grant is not None:
                grant.renewed(asked_at, self._offsets.life(queue))

    def _not_renewed(self, broker_name: str, error: QueueError) -> None:
        """Renew again soon. Logs the first of several failures in a row."""
        if broker_name not in self._unrenewed:
            self._unrenewed.add(broker_name)
            _log.warning("group %s: the locks of broker %s are not renewed yet: %s", self.group, broker_name, error)
        if broker_name not in self._asked_again:
            self._asked_again.add(broker_name)
            self._lock_timers.after(RENEW_AGAIN_S, partial(self._renew_again, broker_name))

    def _renew_again(self, broker_name: str) -> None:
        self._asked_again.discard(broker_name)
        if broker_name in self._unrenewed:
            self._renew(lambda name: name == broker_name)

    def _renewed(self, asked: list[MessageQueue], locked: set[MessageQueue], asked_at: int) -> None:
        for queue in asked:
            grant, life = self.grants.get(queue), self._offsets.life(queue)
            if grant is None or not grant.valid:
                continue
            if queue not in locked and queue not in self._without_lock:
                self._lose(grant)
            elif grant.lease_is_over:  # another member may have had the queue meanwhile
                self._timers.after(0.0, partial(self._confirm, grant, asked_at, life))
            else:
                grant.renewed(asked_at, life)
            if queue in locked:
                self._without_lock.discard(queue)

    def _confirm(self, grant: ClusterGrant, asked_at: int, life: object) -> None:
        """Keep a queue whose lock was renewed late, unless another member has committed meanwhile."""
        if self._offsets.read(grant.queue) <= grant.last_committed:
            grant.renewed(asked_at, life)
        else:
            self._lose(grant)

    def _lose(self, grant: ClusterGrant) -> None:
        _log.warning("group %s lost the lock of %s to another member", self.group, grant.queue)
        grant.end()
        self._changed()

    def commit_soon(self) -> None:
        """Commit offsets that brokers may not have, without waiting. For the timer thread."""
        for queue, grant in list(self.grants.items()):
            try:
                grant.commit_soon()
            except QueueError as error:
                _log.warning("group %s: an offset of %s is not committed yet: %s", self.group, queue, error)
        self._offsets.flush()

    def commit(self) -> None:
        """Commit offsets that brokers may not have. Errors of brokers are logged. Raises OSError."""
        failed: set[str] = set()
        for queue, grant in list(self.grants.items()):
            if queue.broker_name not in failed:
                try:
                    grant.commit()
                except (QueueError, OSError) as error:
                    failed.add(queue.broker_name)
                    _log.warning("group %s: an offset of %s is not committed yet: %s", self.group, queue, error)
        self._offsets.flush()

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Move to other offsets in queues of this member, as a broker asks."""
        for queue, offset in offsets.items():
            grant = self.grants.get(queue)
            if grant is not None and grant.valid:
                grant.move_to(offset)
        self._changed()

    def interrupted(self, grant: Grant) -> Mapping[int, Sequence[Death]]:
        """Return the deaths of processes of this host before this grant, by the queue offset of their message."""
        return self._journal.deaths(self.group, grant.queue, grant.committed_offset)

    def tell(self, seats: Iterable[Seat]) -> None:
        """Do nothing: members that wait for a queue poll its broker."""

    def claim(self, count: int) -> list[JournalSlot]:
        """Take a slot for each of ``count`` handler threads. Raises TableFull."""
        return [self._journal.slot() for _ in range(count)]

    def stay_behind(self) -> bool:
        """Return False: a lock without renewals expires at the broker."""
        return False

    def leave(self) -> None:
        """End the membership. Release its queues before."""
        self._left(self)
