"""Nearby: members get the queues of their own machine room (AllocateMachineRoomNearby).

An inner strategy allocates the queues of a room to the members of that room. It allocates the queues of a room without
members, room by room, to all members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmqclient.allocation.named import PURE
from rmqclient.allocation.strategy import Allocation, Strategy
from rmqclient.message import MessageQueue
from rmqclient.names import function_name


@dataclass(frozen=True, slots=True)
class nearby:  # noqa: N801 - written as a function: allocation=nearby(room_of)
    """The strategy ``machine_room_nearby``. [MachineRoomResolver]

    ``room_of`` returns the room of a member, given its client id, and of a queue. ``inner`` is ``averaged``,
    ``circle``, ``hash``, or a function. Raises ValueError for another inner strategy and for an empty room name.
    """

    room_of: Callable[[str | MessageQueue], str]
    inner: str | Strategy = "averaged"

    def __post_init__(self) -> None:
        if isinstance(self.inner, str) and self.inner not in PURE:
            raise ValueError(f"inner={self.inner!r}: give a function, or one of {', '.join(PURE)}")

    @property
    def name(self) -> str:
        """The name that members compare."""
        inner = self.inner if isinstance(self.inner, str) else getattr(self.inner, "name", function_name(self.inner))
        return f"machine_room_nearby({function_name(self.room_of)}, {inner})"

    def __call__(self, members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
        """Return the queues of each member."""
        inner = PURE[self.inner] if isinstance(self.inner, str) else self.inner
        members_in, queues_in = self._by_room(members), self._by_room(queues)
        allocation: Allocation = {member: [] for member in members}
        # The rooms with members first: a member's own room comes before shared rooms.
        for room in sorted(queues_in, key=lambda room: (room not in members_in, room)):
            for member, part in inner(members_in.get(room, members), queues_in[room]).items():
                allocation[member] += part
        return allocation

    def _by_room(self, things: Sequence[str] | Sequence[MessageQueue]) -> dict[str, list]:  # type: ignore[type-arg]
        by_room: dict[str, list[str | MessageQueue]] = {}
        for thing in things:
            room = self.room_of(thing)
            if not room:
                raise ValueError(f"{function_name(self.room_of)} gives the room {room!r} for {thing!r}")
            by_room.setdefault(room, []).append(thing)
        return by_room
