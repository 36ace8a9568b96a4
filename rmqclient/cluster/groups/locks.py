"""Locks of queues: a broker keeps, for each queue of a group, which client has it, for 60 s from the last renewal.

RocketMQ uses them for ordered consumers. Here a member locks each queue that it takes, so that queues move between
our members in two steps: the next owner waits until the last one has committed its offset and has unlocked the queue.
Java's members of a group that is not ordered look at no lock, and need none from us.

A 5.x broker takes a group that has locks for an ordered one, and puts what is sent to its retry topic among the dead
letters at once (AbstractSendMessageProcessor.handleRetryAndDLQ). So locks without an order are those of another name.

A broker does not free the locks of a connection that closes. [RebalanceLockManager]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import NoPermission, QueueError
from rmqclient.names import HANDOVER_SUFFIX
from rmqclient.remoting.bodies import LockedQueues, LockRequest
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue

RENEW_EVERY_S = 20.0
"""[rocketmq.client.rebalance.lockInterval]"""

VALID_S = 30.0
"""How long a client relies on a lock after its last renewal. [rocketmq.client.rebalance.lockMaxLiveTime]"""

_TIMEOUT_S = 1.0


class QueueLocks:
    """The locks of one client in one group. ``ordered``: those that Java's ordered consumers use. Safe for threads."""

    def __init__(self, client: ClusterClient, group: str, *, ordered: bool) -> None:
        self._client = client
        self._group = group if ordered else group + HANDOVER_SUFFIX
        self._ordered = ordered

    def lock(self, queue: MessageQueue) -> bool:
        """Lock a queue, or renew its lock. False when another client has it. Raises as a request to its broker.

        True, too, without an order for a client that may not lock.
        """
        try:
            answer = self._client.call(self._address(queue), self._request([queue]), _TIMEOUT_S)
        except NoPermission:
            if self._ordered:
                raise
            return True
        return queue in self._locked(answer)

    def renew(
        self, queues: Iterable[MessageQueue], done: Callable[[list[MessageQueue], set[MessageQueue]], None]
    ) -> None:
        """Renew the locks of queues, one request to each broker; does not wait.

        ``done(asked, locked)`` runs on the I/O thread for each broker that answers.
        """
        brokers: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            brokers[queue.broker_name].append(queue)
        for asked in brokers.values():
            self._renew_at_broker(asked, done)

    def _renew_at_broker(
        self, asked: list[MessageQueue], done: Callable[[list[MessageQueue], set[MessageQueue]], None]
    ) -> None:
        def answered(answer: Frame | QueueError) -> None:
            if not isinstance(answer, QueueError) and answer.code == 0:
                done(asked, self._locked(answer))

        self._client.submit(self._address(asked[0]), self._request(asked), answered, _TIMEOUT_S)

    def unlock(self, queue: MessageQueue, client_id: str | None = None) -> None:
        """Give the lock of a queue back; ``client_id`` names another client, which is dead. Raises as :meth:`lock`."""
        body = LockRequest(self._group, client_id or self._client.client_id, (self._on_wire(queue),)).encode()
        self._client.call(self._address(queue), request(RequestCode.UNLOCK_BATCH_MQ, body), _TIMEOUT_S)

    def _request(self, queues: list[MessageQueue]) -> Frame:
        wanted = tuple(self._on_wire(queue) for queue in queues)
        return request(RequestCode.LOCK_BATCH_MQ, LockRequest(self._group, self._client.client_id, wanted).encode())

    def _locked(self, answer: Frame) -> set[MessageQueue]:
        found = LockedQueues.decode(answer.body).queues
        return {queue._replace(topic=self._client.url.unwrap(queue.topic)) for queue in found}

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=self._client.url.wrap(queue.topic))

    def _address(self, queue: MessageQueue) -> str:
        return self._client.routes.address(queue.broker_name)
