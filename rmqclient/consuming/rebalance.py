"""Rebalance: which member of a group has which queue of a topic.

Every member computes the same allocation from the same sorted members and queues, and moves towards it. A queue moves
in two steps, so it never has two owners. First the old owner takes no more messages, waits a bounded time for the
running ones, releases the queue and wakes the new owner. Then the new owner takes the lease.

Each member looks every 20 s (RebalanceService), and at once when something changes:

=====================================  ======================================================================
change                                 noticed by
=====================================  ======================================================================
a member joins or leaves, new queues   all members: the bell of each rings
a member dies                          the member before it, within ``liveness_interval_ms``; it wakes all
a member is stopped                    all members, at the first look after its lease
a queue is released                    its next owner, which the old owner wakes
long calls keep all threads            all members, within ``liveness_interval_ms``: others get the queues of a busy one
another store takes this one's place   all members, within ``liveness_interval_ms``: they give their queues back
=====================================  ======================================================================

In a store, a look that finds nothing new reads three columns of shared memory and probes one lock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from rmqclient.allocation import Allocation, Strategy
from rmqclient.backend.backend import Backend
from rmqclient.backend.group_protocols import Death, Grant, Membership
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.allocator import Allocator, View
from rmqclient.consuming.strain import Strain
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_DRAINING_INTERVAL_MS = 10
"""How often a member checks whether the running messages of a queue that it gives up have ended."""

_WANTING_INTERVAL_MS = 50
"""How often a member checks whether a queue that it is to have is free."""

Queue = TypeVar("Queue", bound=ProcessQueue)


class TakesQueues(Protocol[Queue]):
    """Delivers the messages of the queues that a member has: a :class:`rmqclient.delivery.delivery.Delivery`."""

    @property
    def keeps_order(self) -> bool:
        """Whether a queue goes to another member only when no handler runs with a message of it."""

    def make_queue(self, grant: Grant, deaths: Mapping[int, Sequence[Death]]) -> Queue:
        """Return the process queue for a grant; ``deaths`` as :attr:`ProcessQueue.deaths`."""

    def set_queues(self, queues: tuple[Queue, ...]) -> None:
        """Deliver from these queues from now on."""

    def is_handling(self, queue: Queue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""

    def is_between(self, queue: Queue) -> bool:
        """Tell whether a thread may be about to begin a message of a revoked queue that nobody could know of."""

    @property
    def kept_s(self) -> float:
        """For how many seconds every thread has been kept by one call."""

    def has_waiting(self, queues: Iterable[Queue]) -> bool:
        """Tell whether these queues have messages that could begin if a thread were free."""


class Rebalancer(Generic[Queue]):
    """Moves one member towards the queues that it is allocated. For one thread."""

    def __init__(
        self,
        backend: Backend,
        membership: Membership,
        delivery: TakesQueues[Queue],
        config: ConsumerConfig,
        strategy: str | Strategy = "averaged",
    ) -> None:
        self._membership = membership
        self._delivery = delivery
        self._config = config
        self._held: dict[MessageQueue, Queue] = {}
        self._published: tuple[Queue, ...] = ()
        self._lost: dict[MessageQueue, Queue] = {}
        self._drain_until: dict[MessageQueue, float] = {}
        self._view = View((), (), ())
        self._allocation: Allocation = {}
        self._allocator = Allocator(backend, membership, strategy, keeps_order=delivery.keeps_order)
        self._settled = False
        self._next_at = 0.0
        self._renew_at = 0.0
        self._aside_until = 0.0
        self._strain = Strain(membership)

    def step(self) -> None:
        """Renew the leases, look, and move towards the allocation. Cheap when nothing changed."""
        if time.monotonic() >= self._aside_until or not self._membership.stay_behind():
            self._membership.beat()
        if time.monotonic() >= self._renew_at:
            self._renew()
        self._membership.watch()
        self._look_at_lent()
        if not self._delivery.keeps_order:
            self._strain.look(self._delivery.kept_s, lambda: self._delivery.has_waiting(self._held.values()))
        view = self._allocator.look(self._view)
        if view != self._view or time.monotonic() >= self._next_at:
            self._allocation = self._allocator.allocate(view, self._held)
            self._view = view
            self._settled = False
        if not self._settled:
            self._move(set(self._allocation.get(self._membership.client_id, ())))

    def step_aside(self, seconds: float) -> None:
        """Leave the queues to the other members for so long, from the next step on. Safe for threads."""
        self._aside_until = time.monotonic() + seconds

    def release_all(self) -> bool:
        """Give every queue back before the member leaves; tell whether that is done.

        False when a handler runs with a message of a queue whose order is kept. That queue is kept, too: call
        :meth:`stay_behind` then, or let its lease run out. Calling it again gives back what can be given back by now.
        """
        held = self._held
        for queue in held.values():
            queue.revoked = True
        self._held = {
            name: queue
            for name, queue in held.items()
            if self._delivery.keeps_order and self._delivery.is_handling(queue)
        }
        self._delivery.set_queues(())
        for name, queue in held.items():
            if name not in self._held:
                queue.grant.release()
        return not self._held

    def stay_behind(self) -> bool:
        """Renew the leases of the queues that :meth:`release_all` kept, and do not count for the other queues.

        False where a member cannot do that: then the locks of its queues run out by themselves. Raises StoreBusy.
        """
        for queue in self._held.values():
            self._membership.renew(queue.grant)
        return self._membership.stay_behind()

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues held now, sorted."""
        return tuple(sorted(self._held))

    @property
    def delivered(self) -> frozenset[MessageQueue]:
        """The queues held now that messages are delivered from: not those that are just being taken."""
        published = self._published
        return frozenset(name for name, queue in self._held.copy().items() if queue in published)

    @property
    def next_look_ms(self) -> int:
        """How many ms the next step may wait if no bell rings."""
        wait_ms = float(self._config.liveness_interval_ms)
        if self._drain_until:
            wait_ms = min(wait_ms, _DRAINING_INTERVAL_MS)
        elif not self._settled:
            wait_ms = min(wait_ms, _WANTING_INTERVAL_MS)
        until_change_s = self._allocator.next_change_at - time.monotonic()
        return int(min(wait_ms, until_change_s * 1000 + 1) if until_change_s > 0 else wait_ms)

    def _renew(self) -> None:
        lost = [
            queue
            for queue, held in self._held.items()
            if (held.revoked and queue not in self._drain_until) or not self._membership.renew(held.grant)
        ]
        self._renew_at = time.monotonic() + self._config.liveness_interval_ms / 2000
        for queue in lost:
            _log.warning(
                "group %s: queue %d of %s was moved by a seek, or taken by another member while this one stood still",
                self._membership.group, queue.queue_id, queue.topic,
            )  # fmt: skip
            self._lost[queue] = self._held.pop(queue)
            self._lost[queue].revoked = True
            self._drain_until.pop(queue, None)
        if lost:
            self._settled = False
            self._publish()

    def _move(self, allocated: set[MessageQueue]) -> None:
        released = set()
        for queue in sorted((set(self._held) - allocated) | set(self._drain_until)):
            # Also a queue that was allocated again while it drained: only a new grant begins where this one stopped.
            if self._revoke(queue):
                released.add(queue)
        self._tell_next_owners(released - allocated)
        for queue in sorted(allocated - set(self._held)):
            self._take(queue)
        self._settled = set(self._held) == allocated and not self._drain_until
        self._next_at = time.monotonic() + self._config.rebalance_interval_ms / 1000
        self._publish()

    def _revoke(self, queue: MessageQueue) -> bool:
        """Take no more messages from a queue; release it when no message of it runs, or after the drain time.

        If the order is kept there is no drain time, as for an orderly consumer of RocketMQ: the next owner must not
        begin before the running message has ended. The supervisor ends a worker whose message runs too long. A busy
        member does not wait: its calls are long, and the next owner leaves them to it.
        """
        held = self._held[queue]
        held.revoked = True
        until = self._drain_until.setdefault(queue, time.monotonic() + self._config.drain_ms / 1000)
        is_drained = self._strain.is_busy or time.monotonic() >= until
        if self._delivery.is_handling(held) and (
            self._delivery.keeps_order or not is_drained or self._delivery.is_between(held)
        ):
            return False
        held.grant.release()
        del self._held[queue], self._drain_until[queue]
        return True

    def _tell_next_owners(self, released: set[MessageQueue]) -> None:
        if released:
            heirs = {client for client, part in self._allocation.items() if not released.isdisjoint(part)}
            self._membership.tell(seat for seat in self._view.seats if seat.client_id in heirs)

    def _is_still_handling(self, queue: MessageQueue) -> bool:
        """Tell whether a handler here still runs with a message of an ordered queue that was lost before."""
        lost = self._lost.get(queue)
        if lost is not None and self._delivery.keeps_order and self._delivery.is_handling(lost):
            return True
        self._lost.pop(queue, None)
        return False

    def _take(self, queue: MessageQueue) -> None:
        if self._is_still_handling(queue):
            return
        grant = self._membership.grant(queue)
        if grant is not None:
            # Only after the grant, when an earlier owner cannot acknowledge any more.
            deaths = self._membership.interrupted(grant)
            self._held[queue] = held = self._delivery.make_queue(grant, deaths)
            held.pass_over(self._membership.lent(grant))

    def _look_at_lent(self) -> None:
        """Deliver what was left to other members and runs nowhere any more."""
        for held in self._held.values():
            if held.lent is not None and held.look_at_lent(partial(self._membership.interrupted, held.grant)):
                self._delivery.set_queues(self._published)  # wakes the threads

    def _publish(self) -> None:
        for held in self._held.values():
            held.share_limits(len(self._held))
        queues = tuple(self._held[queue] for queue in sorted(self._held))
        if queues != self._published:
            self._delivery.set_queues(queues)
            self._published = queues
