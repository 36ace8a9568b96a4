"""Allocation: which member of a group gets which message queues. Pure functions of sorted inputs.

Every member computes the whole allocation by itself and takes its own part, so the same inputs must give the same
result in every process. Members are sorted as RocketMQ sorts client ids (String.compareTo, by UTF-16 units), queues by
:attr:`~rmqclient.message.MessageQueue.sort_key`. The order of the arguments does not matter.

=======================  =========================================  ==================================================
name                     queues of a member                         given to a handler as
=======================  =========================================  ==================================================
``averaged``             neighbouring queues                        its name
``circle``               every n-th queue                           its name
``sticky``               those that it has already, balanced        its name
``hash``                 those next to its places on a hash ring    its name, or :class:`hashed`
``config``               those that the settings list               :class:`configured`
``machine_room``         the queues of some rooms, averaged         :class:`machine_room`
``machine_room_nearby``  the queues of its own room                 :class:`nearby`
=======================  =========================================  ==================================================

A custom strategy is a function of (sorted members, sorted queues); :func:`allocate` checks its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rmqclient.allocation.configured import configured
from rmqclient.allocation.consistent_hash import hashed
from rmqclient.allocation.machine_room import machine_room
from rmqclient.allocation.named import WITHOUT_SETTINGS, check_name
from rmqclient.allocation.nearby import nearby
from rmqclient.allocation.sticky import sticky
from rmqclient.allocation.strategy import (
    Allocation,
    Strategy,
    averaged,
    circle,
    in_order_of_members,
    in_order_of_queues,
)
from rmqclient.errors import AllocationError
from rmqclient.message import MessageQueue
from rmqclient.names import function_name

__all__ = [
    "Allocation",
    "Strategy",
    "allocate",
    "averaged",
    "check_name",
    "circle",
    "configured",
    "hashed",
    "machine_room",
    "name_of",
    "nearby",
    "sticky",
    "unallocated",
]


def allocate(
    strategy: str | Strategy,
    members: Sequence[str],
    queues: Sequence[MessageQueue],
    *,
    current: Mapping[MessageQueue, str] = MappingProxyType({}),
) -> Allocation:
    """Return the queues of each member. Every member is a key; a member without queues has an empty list.

    Members and queues given twice count once. ``current``, the owner of each queue, is for ``sticky``. A custom
    function may leave out members and queues; :func:`unallocated` then names the queues.

    Raises ValueError for a name that is not among ``WITHOUT_SETTINGS``, no members, no queues, and an empty client id
    (RocketMQ's AbstractAllocateMessageQueueStrategy.check). Raises AllocationError if a custom function raises, or
    gives a queue twice, an unknown queue, or a queue to an unknown member.
    """
    if isinstance(strategy, str):
        check_name(strategy)
    if not members or not queues:
        raise ValueError(f"nothing to allocate: {len(members)} members, {len(queues)} queues")
    if "" in members:
        raise ValueError("the client id of a member is empty")
    sorted_members, sorted_queues = in_order_of_members(members), in_order_of_queues(tuple(queues))
    if not isinstance(strategy, str):
        return _checked(strategy, sorted_members, sorted_queues)
    chosen = sticky(current) if strategy == "sticky" else WITHOUT_SETTINGS[strategy]
    return chosen(sorted_members, sorted_queues)


def unallocated(allocation: Allocation, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return the queues that no member gets."""
    given = {queue for part in allocation.values() for queue in part}
    return [queue for queue in queues if queue not in given]


def name_of(strategy: str | Strategy) -> str:
    """Return the name by which members compare their strategies; of a function, ``module:qualname``.

    The name of a strategy with settings includes them, so that members with different settings are noticed.
    """
    if isinstance(strategy, str):
        return strategy
    return str(getattr(strategy, "name", None) or function_name(strategy))


def _checked(strategy: Strategy, members: Sequence[str], queues: tuple[MessageQueue, ...]) -> Allocation:
    name = name_of(strategy)
    try:
        answer = {member: list(part) for member, part in strategy(tuple(members), queues).items()}
    except Exception as error:
        raise AllocationError(f"allocation {name} raised {type(error).__name__}: {error}") from error
    known, owner_of = set(queues), dict[MessageQueue, str]()
    for member, part in answer.items():
        if member not in members:
            raise AllocationError(
                f"allocation {name} gives queues to {member!r}, which is not a member: {list(members)}"
            )
        for queue in part:
            if queue not in known:
                raise AllocationError(f"allocation {name} gives {member!r} the queue {queue!r}, which does not exist")
            if queue in owner_of:
                raise AllocationError(
                    f"allocation {name} gives queue {queue.queue_id} of {queue.topic} twice, to {owner_of[queue]!r} "
                    f"and to {member!r}: a queue has one member"
                )
            owner_of[queue] = member
    return {member: answer.get(member, []) for member in members}
