"""Rebalance: who of a group has which queue of a topic.

Every member computes the same allocation from the same sorted members and queues, and moves towards it. A queue moves
in two steps, so that it never has two owners: the old one takes nothing more, lets its running messages end for a
bounded time, and releases; the new one takes the lease.

Looked at every 20 s (RebalanceService), and at once when members, subscriptions or queues change, which the membership
word tells, or when a member died or stopped, which each look at the leases finds.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from rmqclient.allocation import allocate
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery import Delivery
from rmqclient.group import Member
from rmqclient.process_queue import ProcessQueue
from store import MessageQueue, MessageStore, TagSet
from store.errors import UnknownTopic

_log = logging.getLogger(__name__)


class View(NamedTuple):
    """What an allocation is computed from."""

    clients: tuple[str, ...]
    queues: tuple[MessageQueue, ...]


class Rebalancer:
    """Keeps the queues of one member as the allocation says. For one thread."""

    def __init__(
        self, store: MessageStore, member: Member, tags: TagSet, delivery: Delivery, config: ConsumerConfig
    ) -> None:
        self._store = store
        self._member = member
        self._tags = tags
        self._delivery = delivery
        self._config = config
        self._held: dict[MessageQueue, ProcessQueue] = {}
        self._drain_until: dict[MessageQueue, float] = {}
        self._view = View((), ())
        self._settled = False
        self._next_at = 0.0

    def step(self) -> None:
        """Renew, look, and move towards the allocation. Cheap when nothing changed."""
        self._member.beat()
        self._renew()
        view = self._look()
        if view != self._view or not self._settled or time.monotonic() >= self._next_at:
            self._view = view
            self._move(self._allocated(view))

    def release_all(self) -> None:
        """Give every queue back; the member is about to leave."""
        held, self._held = self._held, {}
        self._delivery.set_queues(())
        for queue in held.values():
            queue.revoked = True
            self._member.release(queue.slot, queue.grant.epoch)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues held now, sorted."""
        return tuple(sorted(self._held))

    def _look(self) -> View:
        members = self._member.table.counted(self._member.group, self._member.topic, self._config.lease_ms)
        try:
            queues = self._store.topics.queues(self._member.topic)
        except UnknownTopic:
            queues = []
        return View(tuple(member.client_id for member in members), tuple(queues))

    def _allocated(self, view: View) -> set[MessageQueue]:
        if not view.queues or self._member.client_id not in view.clients:
            return set()
        return set(allocate("averaged", view.clients, view.queues)[self._member.client_id])

    def _renew(self) -> None:
        lost = [
            queue
            for queue, held in self._held.items()
            if (held.revoked and queue not in self._drain_until)
            or not self._member.renew(held.slot, held.grant.epoch, self._config.lease_ms)
        ]
        for queue in lost:
            _log.warning("group %s: queue %d of %s went to another member while this one was stopped",
                         self._member.group, queue.queue_id, queue.topic)  # fmt: skip
            self._held.pop(queue).revoked = True
            self._drain_until.pop(queue, None)
        if lost:
            self._settled = False
            self._publish()

    def _move(self, allocated: set[MessageQueue]) -> None:
        for queue in (set(self._held) - allocated) | set(self._drain_until):
            self._revoke(queue)  # also one that was allocated again meanwhile: only a new grant begins where it stopped
        for queue in sorted(allocated - set(self._held)):
            self._take(queue)
        self._settled = set(self._held) == allocated and not self._drain_until
        self._next_at = time.monotonic() + self._config.rebalance_interval_ms / 1000
        self._publish()

    def _revoke(self, queue: MessageQueue) -> None:
        """Take nothing more from a queue; release it when nothing runs, or the time for that is over."""
        held = self._held[queue]
        held.revoked = True
        until = self._drain_until.setdefault(queue, time.monotonic() + self._config.drain_ms / 1000)
        if self._delivery.is_handling(held) and time.monotonic() < until:
            return
        self._member.release(held.slot, held.grant.epoch)
        del self._held[queue], self._drain_until[queue]

    def _take(self, queue: MessageQueue) -> None:
        slot = self._member.queue_slot(queue)
        epoch = self._member.take(slot, self._config.lease_ms)
        if epoch is not None:
            grant = self._store.grant(slot, epoch, self._tags)
            self._held[queue] = ProcessQueue(grant, slot, self._config)

    def _publish(self) -> None:
        for held in self._held.values():
            held.share_limits(len(self._held))
        self._delivery.set_queues(tuple(self._held[queue] for queue in sorted(self._held)))
