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

import functools
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from rmqclient.allocation import Allocation, Strategy, allocate, name_of, unallocated
from rmqclient.backend.backend import Backend
from rmqclient.backend.group_protocols import Death, Grant, Membership, Seat
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.strain import Strain
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.errors import AllocationError
from rmqclient.names import RETRY_PREFIX
from rmqclient.store import NOT_STRAINED, MessageQueue, Strained
from rmqclient.store.errors import StoreFenced, UnknownTopic
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_DRAINING_INTERVAL_MS = 10
"""How often a member checks whether the running messages of a queue that it gives up have ended."""

_WANTING_INTERVAL_MS = 50
"""How often a member checks whether a queue that it is to have is free."""

_BETWEEN_CHANGES_S = 0.1
"""Members that join or leave in quick succession count as one change: a second one waits this long. [5.2: 1 s]"""

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


class View(NamedTuple):
    """What an allocation is computed from."""

    seats: tuple[Seat, ...]
    queues: tuple[MessageQueue, ...]
    owners: tuple[tuple[int, int], ...]
    """Of each queue, the key of the seat that owns it; empty for a strategy that does not ask for the owners."""
    strained: Strained = NOT_STRAINED

    @property
    def clients(self) -> tuple[str, ...]:
        """Client ids of the members."""
        return tuple(seat.client_id for seat in self.seats)


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
        self._backend = backend
        self._membership = membership
        self._delivery = delivery
        self._config = config
        self._strategy = strategy
        self._held: dict[MessageQueue, Queue] = {}
        self._published: tuple[Queue, ...] = ()
        self._lost: dict[MessageQueue, Queue] = {}
        self._drain_until: dict[MessageQueue, float] = {}
        self._view = View((), (), ())
        self._allocation: Allocation = {}
        self._complaint = ""
        self._settled = False
        self._next_at = 0.0
        self._renew_at = 0.0
        self._next_change_at = 0.0
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
        view = self._look()
        if view != self._view or time.monotonic() >= self._next_at:
            self._allocation = self._allocated(view)
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
    def next_look_ms(self) -> int:
        """How many ms the next step may wait if no bell rings."""
        wait_ms = float(self._config.liveness_interval_ms)
        if self._drain_until:
            wait_ms = min(wait_ms, _DRAINING_INTERVAL_MS)
        elif not self._settled:
            wait_ms = min(wait_ms, _WANTING_INTERVAL_MS)
        until_change_s = self._next_change_at - time.monotonic()
        return int(min(wait_ms, until_change_s * 1000 + 1) if until_change_s > 0 else wait_ms)

    def _look(self) -> View:
        try:
            seats = self._membership.counted()
        except StoreFenced as error:  # what would be acknowledged here is thrown away
            self._complain(logging.ERROR, f"{error}. This member gives its queues back, and takes nothing more")
            return View((), (), ())
        if seats != self._view.seats:
            if time.monotonic() < self._next_change_at:
                seats = self._view.seats
            else:
                self._next_change_at = time.monotonic() + _BETWEEN_CHANGES_S
        try:
            queues = tuple(self._backend.topics.read_queues(self._membership.topic))
        except UnknownTopic:
            queues = ()
            if not self._membership.topic.startswith(RETRY_PREFIX):  # made by the first failure
                self._complain(logging.INFO, f"waiting for topic {self._membership.topic}, which does not exist yet")
        is_named = isinstance(self._strategy, str)  # a function of the application decides alone
        return View(
            seats,
            queues,
            self._membership.owners(queues) if self._strategy == "sticky" else (),
            self._membership.strained() if is_named and not self._delivery.keeps_order else NOT_STRAINED,
        )

    def _allocated(self, view: View) -> Allocation:
        """Compute which member gets which queues; empty while this member is not counted or there is no queue."""
        clients = view.clients
        if not view.queues or self._membership.client_id not in clients:
            return {}
        try:
            if isinstance(self._strategy, str):
                return _shared(self._strategy, view)
            allocation = allocate(self._strategy, clients, view.queues)
        except AllocationError as error:
            self._complain(logging.ERROR, f"{error}; this member keeps the queues that it has")
            return {self._membership.client_id: list(self._held)}
        left = unallocated(allocation, view.queues)
        if left:
            shown = ", ".join(f"{queue.topic}:{queue.queue_id}" for queue in left[:5]) + " ..." * (len(left) > 5)
            name = name_of(self._strategy)
            self._complain(
                logging.WARNING, f"{name} gives {len(left)} queues to nobody: {shown}; they are not consumed"
            )
        return allocation

    def _complain(self, level: int, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            _log.log(level, "group %s: %s", self._membership.group, text)

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
            self._published = queues
            self._delivery.set_queues(queues)


@functools.lru_cache(maxsize=8)
def _shared(strategy: str, view: View) -> Allocation:
    """Allocate once for all members of this process, which only read the answer."""
    client_of = {seat.key: seat.client_id for seat in view.seats}
    owned = zip(view.queues, view.owners, strict=False)  # empty if the strategy does not ask for the owners
    current = {queue: client_of[owner] for queue, owner in owned if owner in client_of}
    allocation = allocate(strategy, view.clients, view.queues, current=current)
    busy, helpers = view.strained
    moved = [queue for client in busy for queue in allocation.get(client, ())]
    if not moved or not helpers:
        return allocation
    owned_by_helpers = {queue: client for queue, client in current.items() if client in helpers}
    helped = allocate(strategy, helpers, moved, current=owned_by_helpers)
    return {client: [] if client in busy else [*part, *helped.get(client, ())] for client, part in allocation.items()}
