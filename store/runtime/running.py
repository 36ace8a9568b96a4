"""Running: which messages were being handled when a process died.

Each handler thread has one slot of the running table for its life. It writes what it is about to run into the slot
(:class:`rmqclient.store.Running`), and clears the slot after the run. A member that is granted a queue reads the slots
of dead members: the messages there may have killed the process, and each such death counts as a delivery attempt.

============================  =====================================================================================
a slot is free                when its thread gave it back, or its member is dead and it names no unfinished message
a message is interrupted      when a slot of a dead member names it, and it is not acknowledged
============================  =====================================================================================

A handler that keeps the order of its queues counts attempts in the group-queue, so its slots have none, and a death
leaves nothing here. A supervisor that ends the process for the time limit writes the attempt, for the cause of death.

Nobody clears the slot of a dead member, so a reader that dies loses nothing; the slot stays taken until its message is
finished. When several messages ran side by side, all of them are interrupted, because nobody knows which one killed the
process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.clock import boottime
from rmqclient.store.errors import TableFull
from rmqclient.store.kernel._kernel import Running, running_in
from rmqclient.store.runtime import handling_table
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.runtime.slot_table import OwnedSlots, SlotTable


@dataclass(frozen=True, slots=True)
class Interrupted:
    """One death of a process whose handler ran the message."""

    begun: int
    """How often the message had been begun from this queue, 1 for the first time."""

    client_id: str
    """Client id of the member that died; empty when its slot has gone to another member."""

    pid: int

    overdue_s: float | None = None
    """Seconds since its supervisor ended the process because this call took longer than the time limit; None if not."""


_MOST_DEATHS = 16
"""Deaths of one message that keep a slot each. A message of a handler in order may have any number of them."""


class RunningTable:
    """The running table, as the members of one process use it."""

    def __init__(
        self,
        root: Path,
        state: SharedState,
        members: OwnedSlots,
        lock_timeout_ms: int,
    ) -> None:
        self._root = root
        self._state = state
        self._members = members
        self.lock_timeout_ms = lock_timeout_ms
        self._slots = SlotTable(state, layout.RUNNING_SLOT, layout.RUNNING_TABLE_AT, layout.RUNNING_SLOTS)

    def claim(self, member: int, incarnation: int, count: int, handler: tuple[str, str] | None = None) -> list[Running]:
        """Take ``count`` slots for threads of a member. Raises TableFull, StoreBusy.

        ``handler`` is the group and the topic whose times the threads count; without it, nobody keeps the times.
        """
        state = self._state
        with state.locked(state.table_mutex, self.lock_timeout_ms):
            numbers = self._free(count)
            for number in numbers:
                self._fill(number, member, incarnation)
            state.running_count = max(state.running_count, numbers[-1] + 1 if numbers else 0)
            handling_at = 0 if handler is None else handling_table.slot_of(state, *handler)
            return [Running(state.mapping, self._slots.at(number, "member"), handling_at) for number in numbers]

    def interrupted(self, slot: GroupQueueSlot) -> dict[int, list[Interrupted]]:
        """Return the deaths in which messages of a queue were being handled, by queue offset, the last death last.

        The slots of all but the last 16 deaths of one message are given back. Raises StoreBusy.
        """
        state = self._state
        found: dict[int, list[Interrupted]] = {}
        alone: dict[int, list[tuple[int, int]]] = {}
        for number in running_in(state.mapping, layout.RUNNING_TABLE_AT, state.running_count, slot.number):
            fields = self._slots.read(number)
            if fields["attempt"] == 0 or lives(self._members, fields["member"], fields["incarnation"]):
                continue
            client_id = self._client_id(fields["member"], fields["incarnation"])
            overdue_at = fields["overdue_at"]
            overdue_s = (boottime() - overdue_at) / 1e9 if overdue_at > fields["began"] else None
            death = Interrupted(fields["attempt"], client_id, fields["pid"], overdue_s)
            if fields["queue_offset"] == fields["last_offset"]:
                alone.setdefault(fields["queue_offset"], []).append((fields["attempt"], number))
            for offset in slot.unfinished(fields["queue_offset"], fields["last_offset"]):
                found.setdefault(offset, []).append(death)
        for deaths in found.values():
            deaths.sort(key=lambda death: death.begun)
        self._forget([number for deaths in alone.values() for _, number in sorted(deaths)[:-_MOST_DEATHS]])
        return found

    def _forget(self, numbers: list[int]) -> None:
        """Let slots of dead members tell of no death."""
        if numbers:
            with self._state.locked(self._state.table_mutex, self.lock_timeout_ms):  # nobody claims one meanwhile
                for number in numbers:
                    fields = self._slots.read(number)
                    if not lives(self._members, fields["member"], fields["incarnation"]):
                        self._slots.store(number, "attempt", 0)

    def _client_id(self, member: int, incarnation: int) -> str:
        if not 0 < member <= layout.MEMBER_SLOTS:
            return ""
        if self._members.load(member - 1, "incarnation") not in (incarnation, incarnation + 1):
            return ""
        return self._members.text(member - 1, "client_id").decode("utf-8", "replace")

    def _free(self, count: int) -> list[int]:
        alive: dict[tuple[int, int], bool] = {}
        numbers: list[int] = []
        for number in range(self._state.running_count):
            if len(numbers) == count:
                break
            if self._is_free(number, alive):
                numbers.append(number)
        following = self._state.running_count
        numbers += range(following, following + count - len(numbers))
        if numbers and numbers[-1] >= layout.RUNNING_SLOTS:
            raise TableFull(
                f"{count} handler threads more: the {layout.RUNNING_SLOTS} slots of {self._root} for threads and "
                "for messages whose handler killed its process, are in use"
            )
        return numbers

    def _is_free(self, number: int, alive: dict[tuple[int, int], bool]) -> bool:
        fields = self._slots.read(number)
        if fields["member"] == 0:
            return True
        member = fields["member"], fields["incarnation"]
        if member not in alive:
            alive[member] = lives(self._members, *member)
        if alive[member]:
            return False
        if fields["attempt"] == 0 or fields["group_queue"] >= self._state.group_queue_count:
            return True
        slot = GroupQueueSlot(self._state, fields["group_queue"])
        return not slot.unfinished(fields["queue_offset"], fields["last_offset"])

    def _fill(self, number: int, member: int, incarnation: int) -> None:
        # The attempt first: the message of the former member must not count against the new one.
        self._slots.store(number, "attempt", 0)
        self._slots.store(number, "began", 0)
        self._slots.store(number, "overdue_at", 0)
        self._slots.store(number, "grant", 0)
        self._slots.store(number, "incarnation", incarnation)
        self._slots.store(number, "pid", os.getpid())
        self._slots.store(number, "member", member + 1)


def lives(members: OwnedSlots, member: int, incarnation: int) -> bool:
    """Tell whether the member that a slot of the running table names lives; ``member`` is its slot + 1, or 0."""
    return 0 < member <= layout.MEMBER_SLOTS and members.is_alive(member - 1, incarnation)


def mark_overdue(state: SharedState, pid: int, limit_s: float, is_of: Callable[[int], bool]) -> None:
    """Say of the calls that a process has run for longer than a limit that it is ended for them; before it is ended.

    ``is_of`` tells whether the process has a member slot: processes of several containers have equal pids.
    """
    slots = SlotTable(state, layout.RUNNING_SLOT, layout.RUNNING_TABLE_AT, layout.RUNNING_SLOTS)
    now = boottime()
    found = {number: slots.read(number) for number in range(state.running_count)}
    for number, fields in found.items():
        is_late = fields["pid"] == pid and 0 < fields["began"] < now - limit_s * 1e9
        if is_late and is_of(fields["member"] - 1):
            if not fields["attempt"] and (attempt := _attempt_in_order(state, fields)):
                # Of a message with any number of attempts, only the last mark takes a slot.
                for other, before in found.items():
                    if before["overdue_at"] and all(before[name] == fields[name] for name in _MESSAGE):
                        slots.store(other, "attempt", 0)
                slots.store(number, "attempt", attempt)
            slots.store(number, "overdue_at", now)


_MESSAGE = ("group_queue", "queue_offset")


def _attempt_in_order(state: SharedState, fields: Mapping[str, int]) -> int:
    """Return the attempt of a message that holds its queue, which is counted there; 0 if it does not hold it."""
    slot = GroupQueueSlot(state, fields["group_queue"])
    return slot.load("held_attempts") & 0xFFFF_FFFF if slot.load("held_offset") == fields["queue_offset"] + 1 else 0
