"""Locks: requests 41 and 42, by which clients lock queues for an order.

A member's lock is a part of its lease. RocketMQ locks queues for any client, member of the group or not
[RebalanceLockManager]. This library's clients use such locks (:class:`NonMemberLocks`) to set the start offset before
they join a group, and as a mutex between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rmqclient.broker.clients import heartbeats
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.groups.fences import Fences
from rmqclient.broker.groups.lease import LOCK_S, PATIENCE_S, Key
from rmqclient.broker.groups.leases import Leases
from rmqclient.broker.request import Peer, Request
from rmqclient.broker.routes import SUB, Need, Route, need_of_group, need_of_topic
from rmqclient.names import HANDOVER_SUFFIX
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore

_LONGEST_NAME = 512
_MOST_LOCKED = 4_096
"""Queues of one request to lock or unlock, at most."""
_MOST = 10_000


class NonMemberLocks:
    """Locks of clients that are not members of the group. For the thread of the event loop."""

    def __init__(self, ran_s: Callable[[], float]) -> None:
        self._ran_s = ran_s
        self._locks: dict[Key, tuple[str, float]] = {}

    def lock(self, key: Key, client_id: str) -> bool:
        """Lock a queue for a client, or renew its lock; False while another client has it, or if there are too many."""
        if self.holder(key) not in (None, client_id) or (key not in self._locks and len(self._locks) >= _MOST):
            return False
        self._locks[key] = client_id, self._ran_s() + LOCK_S
        return True

    def unlock(self, key: Key, client_id: str) -> None:
        """Free the lock of a client."""
        if self.holder(key) == client_id:
            del self._locks[key]

    def holder(self, key: Key) -> str | None:
        """Return the id of the client that has locked a queue, or None."""
        client_id, until = self._locks.get(key, (None, 0.0))
        return client_id if self._ran_s() < until else None

    def end_old(self) -> None:
        """Remove expired locks."""
        now = self._ran_s()
        self._locks = {key: lock for key, lock in self._locks.items() if lock[1] > now}


class LocksRoom:
    """Locks queues for clients. For the thread of the event loop.

    ``broker_name`` is the one that clients know. With ``read_only``, locks exclude only each other.
    """

    def __init__(
        self,
        store: MessageStore,
        clients: Clients,
        leases: Leases,
        fences: Fences,
        broker_name: str,
        *,
        read_only: bool,
    ) -> None:
        self._store = store
        self._ran_s = store.state.awake.ran_s
        self._clients = clients
        self._leases = leases
        self._fences = fences
        self._broker_name = broker_name
        self._read_only = read_only
        self._non_member_locks = NonMemberLocks(self._ran_s)
        self._locks_apart = NonMemberLocks(self._ran_s)
        """Locks of read-only members; they exclude only each other."""

    def routes(self) -> Iterable[Route]:
        """Declare the requests for locks. They change no message, topic or offset."""
        yield Route(RequestCode.LOCK_BATCH_MQ, self._lock, needs=_of_locks, writes=False)
        yield Route(RequestCode.UNLOCK_BATCH_MQ, self._unlock, needs=_of_locks, writes=False)

    def end_old(self) -> None:
        """Remove expired locks of clients that are no members."""
        self._non_member_locks.end_old()
        self._locks_apart.end_old()

    def _lock(self, request: Request) -> Frame:
        wanted = _lock_request(request)
        group = wanted.group.removesuffix(HANDOVER_SUFFIX)
        locked = [
            queue
            for queue in wanted.queues
            if queue.broker_name == self._broker_name and self._locks(request.peer, wanted, group, _local(queue))
        ]
        return request.success(bodies.LockedQueues(tuple(locked)).encode())

    def _locks(self, peer: Peer, wanted: bodies.LockRequest, group: str, queue: MessageQueue) -> bool:
        if self._store.life.is_replica:  # the primary has the locks
            return False
        if self._read_only:
            return self._locks_apart.lock((group, queue), wanted.client_id)
        return self._lock_queue(peer, group, wanted.client_id, queue, ordered=group == wanted.group)

    def _unlock(self, request: Request) -> Frame:
        wanted = _lock_request(request)
        group = wanted.group.removesuffix(HANDOVER_SUFFIX)
        for queue in wanted.queues:
            self._locks_apart.unlock((group, _local(queue)), wanted.client_id)
            if not (self._read_only or self._store.life.is_replica):
                self._unlock_queue(request.peer, group, wanted.client_id, _local(queue))
        return request.success()

    def _lock_queue(self, peer: Peer, group: str, client_id: str, queue: MessageQueue, *, ordered: bool) -> bool:
        """Lock a queue for a client, or renew its lock; False while another member has it.

        ``ordered=False`` is for members of this library that lock queues which they handle concurrently.
        """
        consumer = self._clients.consumers.find(group, peer) or self._clients.consumers.named(group, client_id)
        key = (group, queue)
        if consumer is None or not consumer.shares_queues or consumer.client_id != client_id:
            may_lock = key not in self._leases.by_key and self._fences.may_lock(key, client_id, ordered=ordered)
            return may_lock and self._non_member_locks.lock(key, client_id)
        if self._non_member_locks.holder(key) not in (None, client_id):
            return False
        lease = self._leases.find(group, queue)
        if lease is not None and lease.consumer.client_id == client_id and not lease.consumer.peer.is_open:
            lease.consumer, lease.asked_at = consumer, 0.0  # the client is back, by another connection
        if lease is None or lease.consumer is not consumer:
            lease = self._leases.take(consumer, queue, None) if self._exists(queue) else None
            if lease is None:
                return False
        if lease.is_called_in and self._ran_s() > lease.asked_at + PATIENCE_S:
            return False  # before that the lock lets it finish in order
        lease.locked_at, lease.is_ordered = self._ran_s(), ordered
        self._fences.put(lease)
        return True

    def _unlock_queue(self, peer: Peer, group: str, client_id: str, queue: MessageQueue) -> None:
        """Free the lock of a client. Another client may do so for one whose connection has ended."""
        self._non_member_locks.unlock((group, queue), client_id)
        lease = self._leases.by_key.get((group, queue))
        if lease is None:
            self._fences.end((group, queue), client_id)
        if lease is None or lease.consumer.client_id != client_id or not lease.locked_at:
            return
        is_other = self._clients.consumers.find(group, peer) not in (None, lease.consumer)
        if not (is_other and lease.consumer.peer.is_open):
            self._leases.release(lease)

    def _exists(self, queue: MessageQueue) -> bool:
        try:
            return self._store.topics.slot(queue) >= 0
        except LookupError:
            return False


def _local(queue: MessageQueue) -> MessageQueue:
    return MessageQueue(queue.topic, queue.queue_id)


def _lock_request(request: Request) -> bodies.LockRequest:
    wanted = bodies.LockRequest.decode(request.body)
    heartbeats.check_group(wanted.group)
    heartbeats.check_client(wanted.client_id)
    for queue in wanted.queues:  # any name is allowed: a client without a group locks names that are no queues
        if len(queue.topic) > _LONGEST_NAME:
            text = f"a lock with a name of {len(queue.topic):,} characters; at most {_LONGEST_NAME}"
            raise heartbeats.refusal(f"group {wanted.group!r}: {text}")
    if len(wanted.queues) > _MOST_LOCKED:
        text = f"{len(wanted.queues)} queues in one request; at most {_MOST_LOCKED}"
        raise heartbeats.refusal(text)
    return wanted


def _of_locks(request: Request) -> Iterator[Need]:
    asked = bodies.LockRequest.decode(request.body)
    yield need_of_group(asked.group)
    for queue in asked.queues:
        yield need_of_topic(queue.topic, SUB)
