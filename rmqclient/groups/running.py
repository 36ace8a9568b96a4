"""Running: which messages were being handled when a process died.

A handler thread has a slot of the running table for its life. It writes what it is about to run before it runs it
(:class:`rmqclient.store.Running`), and takes it away afterwards. Whoever is granted a queue reads the slots of dead
members: the messages that they tell of may have killed the process, and each such death counts as a delivery attempt.

============================  =====================================================================================
a slot is free                when its thread gave it back, or its member is dead and it tells of nothing unfinished
a message is interrupted      when a slot of a dead member tells of it, and it is not acknowledged
============================  =====================================================================================

What a slot of a dead member tells is not cleared by anybody, so a reader that dies loses nothing; the slot stays
taken until the message is finished. Of messages that ran side by side all are interrupted, because nobody knows which
one killed the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from rmqclient.store import MessageStore, Running, layout, running_in
from rmqclient.store.errors import TableFull
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.shared_state import member_slot_at, running_slot_at

_AT = layout.RUNNING_SLOT.at


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A message whose handler ran when its process died."""

    begun: int
    """How often it had been begun from this queue, 1 for the first time."""

    client_id: str
    """Of the member that died; empty when its slot has gone to another one."""

    pid: int


class RunningTable:
    """The running table, as the members of one process use it.

    ``is_alive(member slot, incarnation)`` tells whether the process of a member runs.
    """

    def __init__(self, store: MessageStore, is_alive: Callable[[int, int], bool]) -> None:
        self._store = store
        self._words = store.state.words
        self._is_alive = is_alive

    def claim(self, member: int, incarnation: int, count: int) -> list[Running]:
        """Take ``count`` slots for threads of a member. Raises TableFull, StoreBusy."""
        state = self._store.state
        with state.locked(state.table_mutex, self._store.config.lock_timeout_ms):
            numbers = self._free(count)
            for number in numbers:
                self._fill(number, member, incarnation)
            state.running_count = max(state.running_count, numbers[-1] + 1 if numbers else 0)
            return [Running(state.mapping, running_slot_at(number)) for number in numbers]

    def interrupted(self, slot: GroupQueueSlot) -> dict[int, list[Interrupted]]:
        """Return the messages of a queue that dead processes were handling: by queue offset, the last death last."""
        state = self._store.state
        found: dict[int, list[Interrupted]] = {}
        for number in running_in(state.mapping, layout.RUNNING_TABLE_AT, state.running_count, slot.number):
            fields = layout.RUNNING_SLOT.read(state.mapping, running_slot_at(number))
            if fields["attempt"] == 0 or self._lives(fields["member"], fields["incarnation"]):
                continue
            told = Interrupted(
                fields["attempt"], self._client_id(fields["member"], fields["incarnation"]), fields["pid"]
            )
            for offset in slot.unfinished(fields["queue_offset"], fields["last_offset"]):
                found.setdefault(offset, []).append(told)
        for deaths in found.values():
            deaths.sort(key=lambda death: death.begun)
        return found

    def _lives(self, member: int, incarnation: int) -> bool:
        return 0 < member <= layout.MEMBER_SLOTS and self._is_alive(member - 1, incarnation)

    def _client_id(self, member: int, incarnation: int) -> str:
        if not 0 < member <= layout.MEMBER_SLOTS:
            return ""
        fields = layout.MEMBER_SLOT.read(self._store.state.mapping, member_slot_at(member - 1))
        if fields["incarnation"] not in (incarnation, incarnation + 1):
            return ""
        name: bytes = fields["client_id"][: min(127, fields["client_id_size"])]
        return name.decode("utf-8", "replace")

    def _free(self, count: int) -> list[int]:
        alive: dict[tuple[int, int], bool] = {}
        numbers: list[int] = []
        for number in range(self._store.state.running_count):
            if len(numbers) == count:
                break
            if self._is_free(number, alive):
                numbers.append(number)
        following = self._store.state.running_count
        numbers += range(following, following + count - len(numbers))
        if numbers and numbers[-1] >= layout.RUNNING_SLOTS:
            raise TableFull(
                f"{count} handler threads more: the {layout.RUNNING_SLOTS} slots of {self._store.root} for threads and "
                "for messages whose handler killed its process, are in use"
            )
        return numbers

    def _is_free(self, number: int, alive: dict[tuple[int, int], bool]) -> bool:
        fields = layout.RUNNING_SLOT.read(self._store.state.mapping, running_slot_at(number))
        if fields["member"] == 0:
            return True
        member = fields["member"], fields["incarnation"]
        if member not in alive:
            alive[member] = self._lives(*member)
        if alive[member]:
            return False
        if fields["attempt"] == 0 or fields["group_queue"] >= self._store.state.group_queue_count:
            return True
        slot = GroupQueueSlot(self._store.state, fields["group_queue"])
        return not slot.unfinished(fields["queue_offset"], fields["last_offset"])

    def _fill(self, number: int, member: int, incarnation: int) -> None:
        at, words = running_slot_at(number), self._words
        words.store(at + _AT["attempt"], 0)  # before anything else: what stood here must not be told of a new member
        words.store(at + _AT["incarnation"], incarnation)
        words.store32(at + _AT["pid"], os.getpid())
        words.store(at + _AT["member"], member + 1)
