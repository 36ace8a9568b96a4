"""Machine room: the queues of the chosen rooms, in equal neighbouring parts (AllocateMessageQueueByMachineRoom).

The room of a queue is the text before the ``@`` of its broker name, ``room1@broker-a``. The remainder, taken from the
end of the queues, goes to the first members, one queue each. Queues of other rooms are not allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmqclient.allocation.strategy import Allocation
from rmqclient.message import MessageQueue


@dataclass(frozen=True, slots=True, init=False)
class machine_room:  # noqa: N801 - written as a function: allocation=machine_room({...})
    """The strategy ``machine_room`` for the named rooms. Raises ValueError if no room is named. [consumeridcs]"""

    rooms: tuple[str, ...]

    def __init__(self, rooms: Iterable[str]) -> None:
        if isinstance(rooms, str):
            raise ValueError(f"rooms={rooms!r}: give several names, such as {{{rooms!r}}}")  # noqa: TRY004 - as any bad value
        object.__setattr__(self, "rooms", tuple(sorted(set(rooms))))
        if not self.rooms:
            raise ValueError("rooms is empty: no member would get a queue")

    @property
    def name(self) -> str:
        """The name that members compare."""
        return f"machine_room({', '.join(self.rooms)})"

    def __call__(self, members: Sequence[str], queues: Sequence[MessageQueue]) -> Allocation:
        """Return the queues of each member."""
        near = [queue for queue in queues if _room(queue) in self.rooms]
        share, left_over = divmod(len(near), len(members))
        allocation = {member: near[share * number : share * (number + 1)] for number, member in enumerate(members)}
        for number in range(left_over):
            allocation[members[number]].append(near[share * len(members) + number])
        return allocation


def _room(queue: MessageQueue) -> str | None:
    parts = queue.broker_name.split("@")
    while parts and not parts[-1]:  # Java's split gives no empty strings at the end
        parts.pop()
    return parts[0] if len(parts) == 2 else None
