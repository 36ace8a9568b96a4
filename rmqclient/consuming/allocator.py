"""Allocator: computes for one member which member gets which queue of its topic."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterable
from typing import NamedTuple

from rmqclient.allocation import Allocation, Strategy, allocate, name_of, unallocated
from rmqclient.backend.backend import Backend
from rmqclient.backend.group_protocols import Membership, Seat
from rmqclient.errors import AllocationError
from rmqclient.names import RETRY_PREFIX
from rmqclient.store import NOT_STRAINED, MessageQueue, Strained
from rmqclient.store.errors import StoreFenced, UnknownTopic
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_BETWEEN_CHANGES_S = 0.1
"""Members that join or leave in quick succession count as one change: a second one waits this long. [5.2: 1 s]"""


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


class Allocator:
    """Looks at the members and the queues, and allocates; for one thread."""

    def __init__(
        self, backend: Backend, membership: Membership, strategy: str | Strategy, *, keeps_order: bool
    ) -> None:
        self._backend = backend
        self._membership = membership
        self._strategy = strategy
        self._keeps_order = keeps_order
        self._complaint = ""
        self.next_change_at = 0.0
        """Monotonic seconds before which no change of the members is seen."""

    def look(self, before: View) -> View:
        """Return what there is now. Members that came or left are seen if the last change is long enough ago."""
        try:
            seats = self._membership.counted()
        except StoreFenced as error:  # what would be acknowledged here is thrown away
            self._complain(logging.ERROR, f"{error}. This member gives its queues back, and takes nothing more")
            return View((), (), ())
        if seats != before.seats:
            if time.monotonic() < self.next_change_at:
                seats = before.seats
            else:
                self.next_change_at = time.monotonic() + _BETWEEN_CHANGES_S
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
            self._membership.strained() if is_named and not self._keeps_order else NOT_STRAINED,
        )

    def allocate(self, view: View, held: Iterable[MessageQueue]) -> Allocation:
        """Return which member gets which queues; empty while this member is not counted or there is no queue.

        It keeps the queues that it has, ``held``, while the strategy raises AllocationError.
        """
        clients = view.clients
        if not view.queues or self._membership.client_id not in clients:
            return {}
        try:
            if isinstance(self._strategy, str):
                return _shared(self._strategy, view)
            allocation = allocate(self._strategy, clients, view.queues)
        except AllocationError as error:
            self._complain(logging.ERROR, f"{error}; this member keeps the queues that it has")
            return {self._membership.client_id: list(held)}
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
