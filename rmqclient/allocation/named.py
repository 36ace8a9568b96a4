"""Named: the strategies that a handler gives by name, and what is said of the others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rmqclient.allocation.consistent_hash import hashed
from rmqclient.allocation.sticky import sticky
from rmqclient.allocation.strategy import Strategy, averaged, circle

PURE: Mapping[str, Strategy] = MappingProxyType({"averaged": averaged, "circle": circle, "hash": hashed()})
"""Those that need no owners: whoever knows the members and the queues computes the same."""

WITHOUT_SETTINGS: Mapping[str, Strategy] = MappingProxyType({**PURE, "sticky": sticky({})})
"""The strategies that a handler gives by name."""

WITH_SETTINGS = MappingProxyType(
    {
        "config": "configured({member: queues})",
        "machine_room": "machine_room(rooms)",
        "machine_room_nearby": "nearby(room_of, inner)",
    }
)
"""The strategies that a handler gives as an object, and how one is written."""


def check_name(strategy: str) -> None:
    """Raise ValueError if a handler cannot give a strategy by this name."""
    if strategy in WITH_SETTINGS:
        raise ValueError(f"allocation {strategy!r} needs settings: give {WITH_SETTINGS[strategy]}")
    if strategy not in WITHOUT_SETTINGS:
        known = ", ".join(map(repr, sorted({*WITHOUT_SETTINGS, *WITH_SETTINGS})))
        raise ValueError(f"no allocation strategy {strategy!r}: choose one of {known}")
