"""Retry topic: how the messages that a group could not finish come back to its handlers.

A group takes the messages of ``%RETRY%group`` by itself, all of them and from the first one on. In each process one
member takes part in the allocation of its queue. The threads of one of the group's handlers in the process deliver the
queue. They pass each message to the handler of the topic where it first failed, so no handler runs in more threads
than it asked for. An ordered handler retries in place, and a broadcast handler does not retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmqclient.backend.group_protocols import Death, Grant, Members
from rmqclient.backend.protocols import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.rebalance import Rebalancer
from rmqclient.delivery.modes.concurrent import ConcurrentDelivery
from rmqclient.delivery.modes.concurrent_queue import ConcurrentQueue
from rmqclient.failures.retry import retry_topic
from rmqclient.filters import MessageFilter


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
        self.membership = members.join(group, retry_topic(group), client_id, "*")
        self.rebalancer = Rebalancer(backend, self.membership, MessageFilter(), self, config)
        self._deliveries = deliveries
        for delivery in deliveries:
            delivery.siblings = {each.topic: each for each in deliveries}

    def make_queue(self, grant: Grant, deaths: Mapping[int, Sequence[Death]]) -> ConcurrentQueue:
        """Return the process queue for a grant; ``deaths`` as :attr:`ProcessQueue.deaths`."""
        return self._deliveries[0].make_queue(grant, deaths)

    def set_queues(self, queues: tuple[ConcurrentQueue, ...]) -> None:
        """Deliver from these queues from now on."""
        self._deliveries[0].set_retry_queues(queues)

    def is_handling(self, queue: ConcurrentQueue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        return queue.running > 0
