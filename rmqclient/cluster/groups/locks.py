"""Locks of queues: a broker locks a queue of a group for one client, until 60 s after the last renewal.

RocketMQ uses them for ordered consumers. Here a member locks each queue that it takes, so that the next owner waits
until the last one has committed its offset and unlocked the queue. Java's members of a group without an order ignore
the locks.

A 5.x broker takes a group with locks for an ordered one, and makes messages for its retry topic dead letters at once
(AbstractSendMessageProcessor.handleRetryAndDLQ). So locks of a group without an order have another group name.

A broker does not free the locks of a closed connection. [RebalanceLockManager] Only a master locks: without one, its
queues cannot be locked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import NoPermission, QueueError
from rmqclient.names import HANDOVER_SUFFIX
from rmqclient.remoting.bodies import LockedQueues, LockRequest
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import error_of
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue, boottime

RENEW_EVERY_S = 20.0
"""Seconds between two renewals. [rocketmq.client.rebalance.lockInterval]"""

VALID_S = 30.0
"""Seconds after the last renewal for which a client relies on a lock. [rocketmq.client.rebalance.lockMaxLiveTime]"""

_TIMEOUT_S = 1.0
_RENEW_TIMEOUT_S = 3.0
"""Seconds for the answer to a renewal, for which no thread waits."""

Renewed: TypeAlias = Callable[[list[MessageQueue], "set[MessageQueue] | QueueError"], None]
"""Gets the queues of one broker, and those that this client has locked, or the error. Must not block."""


class QueueLocks:
    """The locks of one client in one group. ``ordered``: those of Java's ordered consumers. Safe for threads."""

    def __init__(self, client: ClusterClient, group: str, *, ordered: bool) -> None:
        self.group = group
        self.ordered = ordered
        self._client = client
        self._lock_group = group if ordered else group + HANDOVER_SUFFIX

    def lock(self, queue: MessageQueue) -> bool:
        """Lock a queue, or renew its lock. False if another client has it. Raises as a request to its broker.

        Without an order, a client that lacks the permission gets True without a lock.
        """
        try:
            answer = self._client.call(self._address(queue), self._request([queue]), _TIMEOUT_S)
        except NoPermission:
            if self.ordered:
                raise
            return True
        return queue in self._locked(answer)

    def can_be_given(self, broker_name: str) -> bool:
        """Whether this broker has a master, according to cached routes, and so can lock."""
        return self._client.brokers.has_master(broker_name)

    def renew(self, queues: Iterable[MessageQueue], done: Renewed) -> None:
        """Renew the locks of queues, by one request to each broker, without waiting.

        ``done`` is called once for each broker: on the I/O thread, or at once for an unreachable broker.
        """
        brokers: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            brokers[queue.broker_name].append(queue)
        for asked in brokers.values():
            try:
                self._renew_at_broker(asked, done)
            except QueueError as error:  # one broker is unreachable: ask the others
                done(asked, error)

    def _renew_at_broker(self, asked: list[MessageQueue], done: Renewed) -> None:
        address = self._address(asked[0])

        def answered(answer: Frame | QueueError) -> None:
            done(asked, answer if isinstance(answer, QueueError) else self._kept(asked, answer, address))

        self._client.submit(address, self._request(asked), answered, _RENEW_TIMEOUT_S)

    def _kept(self, asked: list[MessageQueue], answer: Frame, address: str) -> set[MessageQueue] | QueueError:
        try:
            if answer.code:
                raise error_of(answer, address)
            return self._locked(answer)
        except NoPermission as error:
            return error if self.ordered else set(asked)
        except QueueError as error:
            return error

    def unlock(self, queue: MessageQueue, client_id: str | None = None) -> None:
        """Free the lock of a queue; ``client_id`` may name another, dead client. Raises as :meth:`lock`."""
        body = LockRequest(self._lock_group, client_id or self._client.client_id, (self._on_wire(queue),)).encode()
        self._client.call(self._address(queue), request(RequestCode.UNLOCK_BATCH_MQ, body), _TIMEOUT_S)

    def _request(self, queues: list[MessageQueue]) -> Frame:
        wanted = tuple(self._on_wire(queue) for queue in queues)
        return request(
            RequestCode.LOCK_BATCH_MQ, LockRequest(self._lock_group, self._client.client_id, wanted).encode()
        )

    def _locked(self, answer: Frame) -> set[MessageQueue]:
        found = LockedQueues.decode(answer.body).queues
        return {queue._replace(topic=self._client.url.unwrap(queue.topic)) for queue in found}

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=self._client.url.wrap(queue.topic))

    def _address(self, queue: MessageQueue) -> str:
        return self._client.brokers.address(queue.broker_name)


class HeldLock:
    """The lock of one queue, as its holder sees it. Safe for threads.

    ``asked_at`` is the time at which the broker was asked for it, in ns of CLOCK_BOOTTIME, and ``asked_in`` the value
    of ``life``, :meth:`.offsets.Offsets.life`, at that time.
    """

    def __init__(self, life: Callable[[], object], asked_at: int, asked_in: object, *, ordered: bool) -> None:
        self._life = life
        self._asked_at = asked_at
        self._asked_in = asked_in
        self._ordered = ordered

    @property
    def is_in_doubt(self) -> bool:
        """Whether another client may have the lock: it expired here, or the broker may have lost it."""
        return self.may_be_forgotten or boottime() - self._asked_at > VALID_S * 1e9

    @property
    def may_be_forgotten(self) -> bool:
        """Whether the broker of an ordered queue may have been killed since the last renewal."""
        return self._ordered and self._life() != self._asked_in

    def renewed(self, asked_at: int, asked_in: object) -> None:
        """Note a renewal."""
        self._asked_at = max(self._asked_at, asked_at)
        self._asked_in = asked_in
