"""Allocation: the intended owner of each queue, as remote members compute it and as local ones do.

Remote members share the queues of a topic among all clients of the group, whichever topics they have [RebalanceImpl];
local members share them among the members for that topic. Members that subscribe to the same topics, as RocketMQ asks
for, come to the same result: both sort client ids and queues alike, and average the shares.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rmqclient.broker.groups.seats import Seats, allocation_of
from rmqclient.store import MemberInfo, MessageQueue


class Shares(NamedTuple):
    """The intended owners of the queues of one topic."""

    remote: Mapping[MessageQueue, str]
    """Client ids, as remote members compute them; some may be of local members."""
    local: Mapping[MessageQueue, MemberInfo]
    """Local members, as they compute it."""


class Allocations:
    """The intended owners in all groups, cached until :meth:`forget`. For the thread of the event loop.

    ``ids`` returns the client ids of a group, ``read_queues`` the queues of a topic that remote members see, and
    ``queues`` those that local ones see; it raises UnknownTopic.
    """

    def __init__(
        self,
        seats: Seats,
        ids: Callable[[str], Sequence[str]],
        read_queues: Callable[[str], Sequence[MessageQueue]],
        queues: Callable[[str], Sequence[MessageQueue]],
    ) -> None:
        self._seats = seats
        self._ids = ids
        self._read_queues = read_queues
        self._queues = queues
        self._known: dict[tuple[str, str], Shares] = {}

    def forget(self) -> None:
        """Drop the cache, because members or queues may have changed."""
        self._known.clear()

    def of(self, group: str, topic: str) -> Shares:
        """Return the intended owners of a topic's queues in a group. Raises UnknownTopic."""
        known = self._known.get((group, topic))
        if known is None:
            known = self._known[group, topic] = self._computed(group, topic)
        return known

    def _computed(self, group: str, topic: str) -> Shares:
        from rmqclient.allocation.named import PURE  # noqa: PLC0415 - no server needs it without members

        counted = self._seats.counted(group, topic)
        remote = _owners("averaged", tuple(self._ids(group)), tuple(self._read_queues(topic)))
        local = {seat.client_id: seat for seat in counted if not self._seats.is_ours(seat)}
        if not local:
            return Shares(remote, {})
        strategy = allocation_of(next(iter(local.values())).subscription)
        if strategy not in PURE:
            strategy = "averaged"  # with other strategies the leases decide
        owners = _owners(strategy, tuple(seat.client_id for seat in counted), tuple(self._queues(topic)))
        return Shares(remote, {queue: local[client] for queue, client in owners.items() if client in local})


@functools.lru_cache(maxsize=256)
def _owners(
    strategy: str, ids: tuple[str, ...], queues: tuple[MessageQueue, ...]
) -> MappingProxyType[MessageQueue, str]:
    """Return the client id of each queue's owner; empty without members or queues."""
    if not ids or not queues:
        return MappingProxyType({})
    from rmqclient.allocation import allocate  # noqa: PLC0415 - as above

    allocated = allocate(strategy, ids, queues)
    return MappingProxyType({queue: client for client, part in allocated.items() for queue in part})
