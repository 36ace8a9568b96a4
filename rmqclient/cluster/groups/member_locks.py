"""Member locks: the brokers' locks of one member's queues, from taking over a dead member's to renewing its own.

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

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from rmqclient.cluster.groups.grant import ClusterGrant
from rmqclient.cluster.groups.locks import QueueLocks
from rmqclient.cluster.groups.offsets import Offsets
from rmqclient.cluster.groups.timer_thread import TimerThread
from rmqclient.errors import QueueError, StoreClosed
from rmqclient.store import MessageQueue, boottime
from rmqclient.store.threads.logs import Log

RENEW_AGAIN_S: Final = 2.0
"""Seconds until a failed renewal is repeated."""

_log = Log(__name__)


class MemberLocks:
    """The locks of the queues of one member, whose ``grants`` are read only.

    ``gone`` returns the client ids whose locks no longer count; ``lost`` is called when another member got a queue.
    ``timers`` may wait for brokers, ``lock_timers`` must not. Taking and giving back is for one thread.
    """

    def __init__(
        self,
        locks: QueueLocks,
        offsets: Offsets,
        grants: Mapping[MessageQueue, ClusterGrant],
        gone: Callable[[], set[str]],
        lost: Callable[[], None],
        timers: TimerThread,
        lock_timers: TimerThread,
    ) -> None:
        self._locks = locks
        self._offsets = offsets
        self._grants = grants
        self._gone = gone
        self._lost = lost
        self._timers = timers
        self._lock_timers = lock_timers
        self._without_lock: set[MessageQueue] = set()
        self._freed: set[tuple[MessageQueue, str]] = set()
        self._unrenewed: set[str] = set()  # brokers whose last renewal failed, by name
        self._asked_again: set[str] = set()  # brokers that will be asked again soon

    def take(self, queue: MessageQueue) -> bool:
        """Lock a queue; frees the locks of members that are gone. False if another member has it."""
        if self._locks.lock(queue):
            self._freed = {pair for pair in self._freed if pair[0] != queue}
            return True
        gone = {(queue, client_id) for client_id in self._gone()} - self._freed
        for _, client_id in gone:
            self._locks.unlock(queue, client_id)
        self._freed |= gone
        return bool(gone) and self._locks.lock(queue)

    def do_without(self, queue: MessageQueue) -> None:
        """Let a queue be used whose lock is not freed."""
        _log.warning("group %s: the lock of %s is not freed; the queue is taken without it", self._locks.group, queue)
        self._without_lock.add(queue)

    def give_back(self, grant: ClusterGrant) -> None:
        """Free the lock of a released queue."""
        queue, lock = grant.queue, grant.lock
        may_be_held = lock is not None and (lock.may_be_forgotten or not lock.is_in_doubt)
        if queue not in self._without_lock and may_be_held:
            try:
                self._locks.unlock(queue)
            except QueueError as error:
                _log.warning("group %s: the lock of %s ends in 60 s: %s", self._locks.group, queue, error)
        self._without_lock.discard(queue)

    def renew(self) -> None:
        """Renew the locks of all queues, without waiting. For the timer thread."""
        self._renew(lambda _broker_name: True)

    def renew_forgotten(self) -> None:
        """Renew the locks at brokers that may have lost them, without waiting. For the timer thread."""
        grants = [grant for grant in list(self._grants.values()) if grant.valid and grant.lock is not None]
        brokers = {grant.queue.broker_name for grant in grants if grant.lock and grant.lock.may_be_forgotten}
        if brokers := brokers - self._asked_again:
            self._renew(brokers.__contains__)

    def _renew(self, is_wanted: Callable[[str], bool]) -> None:
        grants = list(self._grants.items())
        held = [queue for queue, grant in grants if grant.valid and is_wanted(queue.broker_name)]
        if held:
            self._locks.renew(held, partial(self._answered, boottime()))

    def _answered(self, asked_at: int, asked: list[MessageQueue], locked: set[MessageQueue] | QueueError) -> None:
        broker_name = asked[0].broker_name
        if not isinstance(locked, QueueError):
            self._unrenewed.discard(broker_name)
            for queue in asked:
                self._renewed(queue, asked_at, is_locked=queue in locked)
        elif not isinstance(locked, StoreClosed):
            if not self._locks.ordered and not self._locks.can_be_given(broker_name):
                for queue in asked:  # live on without a master
                    self._note(queue, asked_at, self._offsets.life(queue))
            self._not_renewed(broker_name, locked)

    def _renewed(self, queue: MessageQueue, asked_at: int, *, is_locked: bool) -> None:
        grant, life = self._grants.get(queue), self._offsets.life(queue)
        if grant is None or not grant.valid:
            return
        if not is_locked and queue not in self._without_lock:
            self._lose(grant)
        elif grant.lease_is_over:  # another member may have had the queue meanwhile
            self._timers.after(0.0, partial(self._confirm, grant, asked_at, life))
        else:
            self._note(queue, asked_at, life)
        if is_locked:
            self._without_lock.discard(queue)

    def _note(self, queue: MessageQueue, asked_at: int, life: object) -> None:
        grant = self._grants.get(queue)
        if grant is not None and grant.lock is not None:
            grant.lock.renewed(asked_at, life)

    def _not_renewed(self, broker_name: str, error: QueueError) -> None:
        """Renew again soon. Logs the first of several failures in a row."""
        if broker_name not in self._unrenewed:
            self._unrenewed.add(broker_name)
            group = self._locks.group
            _log.warning("group %s: the locks of broker %s are not renewed yet: %s", group, broker_name, error)
        if broker_name not in self._asked_again:
            self._asked_again.add(broker_name)
            self._lock_timers.after(RENEW_AGAIN_S, partial(self._renew_again, broker_name))

    def _renew_again(self, broker_name: str) -> None:
        self._asked_again.discard(broker_name)
        if broker_name in self._unrenewed:
            self._renew(lambda name: name == broker_name)

    def _confirm(self, grant: ClusterGrant, asked_at: int, life: object) -> None:
        """Keep a queue whose lock was renewed late, unless another member has committed meanwhile."""
        if self._offsets.read(grant.queue) > grant.offset.committed:
            self._lose(grant)
        elif grant.lock is not None:
            grant.lock.renewed(asked_at, life)

    def _lose(self, grant: ClusterGrant) -> None:
        _log.warning("group %s lost the lock of %s to another member", self._locks.group, grant.queue)
        grant.end()
        self._lost()
