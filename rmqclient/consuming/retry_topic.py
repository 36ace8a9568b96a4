"""Retry topic: how the messages that a group could not finish come back to its handlers.

A group takes the messages of ``%RETRY%group`` by itself, all of them and from the first one on. In each process one
member takes part in the allocation of its queue. The queue is delivered by the threads of one of the group's handlers
in the process, which hands messages of other topics to those of theirs; so no handler runs in more threads than it
asked for. An ordered handler retries in place, and one that gets every message in every process does not retry.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.rebalance import Rebalancer
from rmqclient.delivery.delivery import Delivery
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.failures.retry import retry_topic
from rmqclient.store import MemberTable, MessageStore, TagSet


class RetryTopic:
    """The membership of one process in the retry topic of one group, whose deliveries these are."""

    keeps_order = False

    def __init__(
        self,
        store: MessageStore,
        table: MemberTable,
        group: str,
        deliveries: Sequence[Delivery],
        client_id: str,
        config: ConsumerConfig,
    ) -> None:
        self.group = group
        self.member = table.join(group, retry_topic(group), client_id, "*")
        self.rebalancer = Rebalancer(store, self.member, TagSet(()), self, config)
        self._deliveries = deliveries
        for delivery in deliveries:
            delivery.siblings = {each.topic: each for each in deliveries}

    def set_queues(self, queues: tuple[ProcessQueue, ...]) -> None:
        """Deliver from these queues from now on."""
        self._deliveries[0].set_retry_queues(queues)

    def is_handling(self, queue: ProcessQueue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        return queue.running > 0
