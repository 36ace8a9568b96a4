"""Retry topic: how the messages that a group could not finish come back to its handlers.

A group takes the messages of ``%RETRY%group`` by itself, all of them and from the first one on. In each process one
member takes part in the allocation of its queue. The threads of one of the group's handlers in the process deliver the
queue. They pass each message to the handler of the topic where it first failed, so no handler runs in more threads
than it asked for. An ordered handler retries in place, and a broadcast handler does not retry.

The processes of a group may have handlers for different topics, as while a new version is rolled out. A process that
gets a message without having its handler sends it back, and leaves the queue to the others for some seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from weakref import proxy

from rmqclient.backend.backend import Backend
from rmqclient.backend.group_protocols import Death, Grant, Members, Terms
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.rebalance import Rebalancer
from rmqclient.delivery.modes.concurrent import ConcurrentDelivery
from rmqclient.delivery.modes.concurrent_queue import ConcurrentQueue
from rmqclient.failures.retry import retry_topic
from rmqclient.filters import MessageFilter

_ASIDE_S = 5.0
"""How long a process leaves the queue to the others after a message for which it has no handler."""


class RetryTopic:
    """The membership of one process in the retry topic of one group. ``deliveries`` are those of the group here."""

    keeps_order = False

    def __init__(
        self,
        backend: Backend,
        members: Members,
        group: str,
        deliveries: Sequence[ConcurrentDelivery],
        client_id: str,
        config: ConsumerConfig,
    ) -> None:
        self.group = group
        all_messages = Terms("*", MessageFilter(), lease_ms=config.lease_ms)
        self.membership = members.join(group, retry_topic(group), client_id, all_messages)
        self.rebalancer = Rebalancer(backend, self.membership, proxy(self), config)
        self._deliveries = deliveries
        self._members = members
        for delivery in deliveries:
            delivery.siblings = {each.topic: each for each in deliveries}
            delivery.pass_on = self.pass_on

    def let_go(self) -> None:
        """Let the deliveries know of nothing but themselves: the consumer has ended."""
        for delivery in self._deliveries:
            delivery.stand_alone()

    def pass_on(self, topic: str) -> bool:
        """Let other processes have the queue for a while if one has a handler for this topic; tell whether one has.

        Safe for threads. Always False on a cluster, where a member does not know what the others take.
        """
        if topic not in self.membership.topics_of_others():
            return False
        self.rebalancer.step_aside(_ASIDE_S)
        self._members.bell.ring()
        return True

    def make_queue(self, grant: Grant, deaths: Mapping[int, Sequence[Death]]) -> ConcurrentQueue:
        """Return the process queue for a grant; ``deaths`` as :attr:`ProcessQueue.deaths`."""
        return self._deliveries[0].make_queue(grant, deaths)

    def set_queues(self, queues: tuple[ConcurrentQueue, ...]) -> None:
        """Deliver from these queues from now on."""
        self._deliveries[0].set_retry_queues(queues)

    def is_handling(self, queue: ConcurrentQueue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        return queue.running > 0

    def is_between(self, queue: ConcurrentQueue) -> bool:
        """Tell whether a thread may be about to begin a message of a revoked queue that nobody could know of."""
        return self._deliveries[0].is_between(queue)

    @property
    def kept_s(self) -> float:
        """For how many seconds one call has kept each of the threads that take the messages of the queue."""
        return self._deliveries[0].kept_s

    def has_waiting(self, queues: Iterable[ConcurrentQueue]) -> bool:
        """Tell whether these queues have messages that could begin if a thread were free."""
        return self._deliveries[0].has_waiting(queues)
