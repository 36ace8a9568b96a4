"""Roll: the members of all groups, as their table says, for one consumer that reads it again and again.

What changes seldom, the seat of a member, is read once for each incarnation of a slot. No lock is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from rmqclient.store import layout
from rmqclient.store.clock import boottime
from rmqclient.store.runtime.awake import Awake
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.rows import NOT_STRAINED, MemberInfo, Strained
from rmqclient.store.runtime.slot_table import OwnedSlots
from rmqclient.store.runtime.subscription import REMOTE

_KEPT_NS = 2_000_000_000
"""A member whose threads were all kept by long calls a shorter time ago has no room for the queues of a busy one."""
_USUAL_LEASE_NS = 10_000_000_000
"""The lease of most members: of another one only its end is known."""


class Roll:
    """The members in the slots of a store."""

    def __init__(self, slots: OwnedSlots, awake: Awake) -> None:
        self._slots = slots
        self._awake = awake
        self._incarnations: list[int] = []
        self._seats: dict[int, MemberInfo] = {}
        self._by_topic: dict[tuple[str, str], tuple[MemberInfo, ...]] = {}

    def counted(self, group: str, topic: str, lease_ms: int) -> tuple[MemberInfo, ...]:
        """Return the members that take part in the allocation of a topic's queues, sorted by client id.

        No lock is probed: a dead member is counted until its watcher has found it dead.
        """
        seats = self.in_topic(group, topic)
        beats, lease_ns = self._column("heartbeat"), lease_ms * 1_000_000
        oldest = boottime() - lease_ns
        if all(beats[seat.slot] >= oldest for seat in seats):
            return seats
        heard = [beats[seat.slot] > 0 and self._awake.ran_since(beats[seat.slot]) <= lease_ns for seat in seats]
        return tuple(itertools.compress(seats, heard))

    def strained(self, group: str, topic: str, lease_ms: int) -> Strained:
        """Return which of the :meth:`counted` members are busy, and which can help them.

        Nobody is busy in a group with members of other languages: these share queues without such words.
        """
        seats = self.counted(group, topic, lease_ms)
        busy = self._column("busy")
        if not any(busy[seat.slot] for seat in seats) or self._has_remote(group):
            return NOT_STRAINED
        kept, ran_since = self._column("kept_at"), self._awake.ran_since
        helpers = [seat for seat in seats if not busy[seat.slot] and ran_since(kept[seat.slot]) > _KEPT_NS]
        return Strained(
            frozenset(seat.client_id for seat in seats if busy[seat.slot]), tuple(seat.client_id for seat in helpers)
        )

    def everybody(self, lease_ms: int) -> list[MemberInfo]:
        """Return the members of all groups for all topics, each as :meth:`counted`, in no order."""
        self._read_on()
        return [seat for group, topic in list(self._by_topic) for seat in self.counted(group, topic, lease_ms)]

    def all(self) -> list[MemberInfo]:
        """Return every member whose process runs, by slot."""
        return [
            self._info(seat)
            for _, seat in sorted(self.by_slot().items())
            if self._slots.is_alive(seat.slot, seat.incarnation)
        ]

    def owner(self, slot: GroupQueueSlot) -> MemberInfo | None:
        """Return the member that owns a queue in its group now; None when the queue is free."""
        number, incarnation = slot.load("owner") - 1, slot.load("owner_incarnation")
        if number < 0 or not self._slots.is_alive(number, incarnation):
            return None
        if self._awake.is_over(slot.load("lease_until"), _USUAL_LEASE_NS):
            return None
        seat = self._read(number, incarnation)
        return None if seat is None else self._info(seat)

    def in_topic(self, group: str, topic: str) -> tuple[MemberInfo, ...]:
        """Return the members of a group for a topic, dead ones too, sorted by client id."""
        self._read_on()
        return self._by_topic.get((group, topic), ())

    def by_slot(self) -> Mapping[int, MemberInfo]:
        """Return every member by its slot, dead ones too."""
        self._read_on()
        return self._seats

    def _read_on(self) -> None:
        """Read the slots whose incarnation changed since the last look."""
        count = len(self._incarnations)
        while count < layout.MEMBER_SLOTS and self._slots.load(count, "incarnation"):
            count += 1  # slots are taken from the first on: all slots after a never used one are unused
            self._incarnations.append(0)
        incarnations = self._column("incarnation")
        if incarnations == self._incarnations:
            return
        for slot, (old, new) in enumerate(zip(self._incarnations, incarnations, strict=True)):
            if old != new:
                self._seats.pop(slot, None)
                if new % 2 == 1 and (seat := self._read(slot, new)) is not None:
                    self._seats[slot] = seat
        self._incarnations = incarnations
        by_topic: dict[tuple[str, str], list[MemberInfo]] = {}
        for seat in self._seats.values():
            by_topic.setdefault((seat.group, seat.topic), []).append(seat)
        self._by_topic = {
            key: tuple(sorted(seats, key=lambda seat: (seat.client_id, seat.slot))) for key, seats in by_topic.items()
        }

    def _read(self, slot: int, incarnation: int) -> MemberInfo | None:
        """Return the seat in a slot, None when the slot has gone to another member meanwhile."""
        slots = self._slots
        names = [slots.text(slot, name) for name in ("group", "topic", "client_id", "subscription")]
        pid, wake_slot = slots.load(slot, "pid"), slots.load(slot, "wake_slot")
        if slots.load(slot, "incarnation") != incarnation:
            return None
        group, topic, client_id, subscription = (name.decode() for name in names)
        return MemberInfo(slot, incarnation, group, topic, client_id, pid, subscription, wake_slot)

    def _info(self, seat: MemberInfo) -> MemberInfo:
        return seat._replace(heartbeat_age_ms=(boottime() - self._slots.load(seat.slot, "heartbeat")) / 1e6)

    def _has_remote(self, group: str) -> bool:
        return any(seat.group == group and seat.subscription.endswith(REMOTE) for seat in self._seats.values())

    def _column(self, field: str) -> list[int]:
        return self._slots.column(field, len(self._incarnations))
