"""Membership: one member of a group, for one topic of a cluster.

Brokers list the members. Each member computes the owners of queues itself, and Java's members compute the same. A
member takes a queue in this order: lock, committed offset, first pull. It releases it in the opposite order: no message
runs, the offset is committed, the lock is freed.
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
from rmqclient.cluster.groups.locks import VALID_S, HeldLock, QueueLocks
from rmqclient.cluster.groups.member_list import ClusterSeat, MemberList, seat_of
from rmqclient.cluster.groups.member_locks import MemberLocks
from rmqclient.cluster.groups.offsets import Offsets
from rmqclient.cluster.groups.pulling import Pulling
from rmqclient.cluster.groups.timer_thread import TimerThread
from rmqclient.errors import QueueError
from rmqclient.filters import MessageFilter
from rmqclient.remoting.bodies import Subscription
from rmqclient.store import NOT_STRAINED, MessageQueue, Strained, boottime
from rmqclient.store.threads.logs import Log

_COURTESY_S = 10.0
PAUSES_S = (0.05, 0.1, 0.2, 0.5)
"""Seconds between tries to take a queue; the last one repeats."""
_UNREACHABLE_PAUSE_S = 2.0

_log = Log(__name__)


class ClusterMembership:
    """One member of a group, for one topic. Except for :attr:`bell`, for one thread.

    ``timers`` may wait for brokers, ``lock_timers`` must not. ``locks`` is None for a broadcast group.
    ``queue_number`` returns the number of a queue in running slots. ``changed`` is called when a queue was lost.
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
        self._subscription = subscription
        self._wanted = wanted
        self.is_ordered = ordered
        self._members = members
        self.locks: MemberLocks | None = None
        """The locks of its queues; None for a broadcast group, whose members have every queue."""
        if locks is not None:
            self.locks = MemberLocks(locks, offsets, self.grants, self._gone, changed, timers, lock_timers)
        self._offsets = offsets
        self._journal = journal
        self._bells = bells
        self._queue_number = queue_number
        self._changed = changed
        self._left = left
        self._tries: dict[MessageQueue, tuple[float, float, int]] = {}  # first, next, how many
        self._unreachable: dict[str, float] = {}  # broker name → when it may be asked again
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
        lock = None
        if self.locks is not None:
            if not self.locks.take(queue):
                if self.is_ordered or self.is_sticky or waited_s < _COURTESY_S:
                    return None
                self.locks.do_without(queue)
            lock = HeldLock(partial(self._offsets.life, queue), asked_at, asked_in, ordered=self.is_ordered)
        last = self.grants.get(queue)
        if last is not None:
            if last.moved_to is not None:
                self._offsets.commit(queue, last.moved_to)
            last.drop()
        number = self._queue_number(self.group, queue)
        attempts = None
        if self.is_ordered:
            attempts = self._journal.slot()
            attempts.serve_queue(self.group, queue)
        granted = ClusterGrant(
            queue, number, self._wanted, self._offsets, self._bells.of_lane, attempts, self._give_up, lock
        )
        granted.arm(self.bell.lane)
        self.grants[queue] = granted
        messages, moved = granted.messages, granted.moved
        granted.pull_by(Pulling(self._client, self._timers, self.group, queue, self._subscription, messages, moved))
        return granted

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
        if self.locks is not None:
            self.locks.give_back(grant)

    def commit_soon(self) -> None:
        """Commit offsets that brokers may not have, without waiting. For the timer thread."""
        for queue, grant in list(self.grants.items()):
            try:
                grant.offset.commit_soon()
            except QueueError as error:
                _log.warning("group %s: an offset of %s is not committed yet: %s", self.group, queue, error)
        self._offsets.flush()

    def commit(self) -> None:
        """Commit offsets that brokers may not have. Errors of brokers are logged. Raises OSError."""
        failed: set[str] = set()
        for queue, grant in list(self.grants.items()):
            if queue.broker_name not in failed:
                try:
                    grant.offset.commit()
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

    def renew(self, grant: Grant) -> bool:
        """Return whether the grant is valid. The timer thread renews the locks."""
        return grant.valid

    def topics_of_others(self) -> frozenset[str]:
        """Return nothing: brokers do not know which member takes which topics."""
        return frozenset()

    def interrupted(self, grant: Grant) -> Mapping[int, Sequence[Death]]:
        """Return the deaths of processes of this host before this grant, by the queue offset of their message."""
        return self._journal.deaths(self.group, grant.queue, grant.committed_offset)

    def lent(self, grant: Grant) -> None:
        """Return None: a broker does not know what runs in a member."""

    def strained(self) -> Strained:
        """Return that nobody is busy: a broker does not know it."""
        return NOT_STRAINED

    def show_kept(self, *, busy: bool) -> None:
        """Do nothing: a broker has no place for it."""

    def show_free(self) -> None:
        """Do nothing, as :meth:`show_kept`."""

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
