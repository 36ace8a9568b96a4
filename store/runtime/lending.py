"""Lending: calls that go on when their queue goes to another member, if no order is kept.

Under the mutex of the queue, the new owner writes its epoch into the slots of living members that run messages of it:
they are *lent*. It does not deliver them. The call's own acknowledgement has an old epoch and is refused, but the
thread asks again by its slot, and is accepted if the slot has the present epoch. The owner takes back what is not
running any more, or runs in a process that is dead or has been silent for the lease: it clears the slot's epoch under
the mutex, and delivers what is not acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rmqclient.store import layout
from rmqclient.store.kernel._kernel import QueueGrant, calls_in
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.running import lives
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.runtime.slot_table import OwnedSlots, SlotTable


class LentMessages:
    """Messages of a granted queue whose handlers still run in members that had the queue before. For one thread."""

    def __init__(self, lending: Lending, slot: GroupQueueSlot, grant: QueueGrant, lease_ms: int) -> None:
        self._lending = lending
        self._slot = slot
        self._epoch = grant.epoch
        self._lease_ms = lease_ms
        self._numbers: Collection[int] = lending.lent(slot, grant.epoch)
        self._left = frozenset(offset for number in self._numbers for offset in lending.unfinished(number, slot))
        self.is_finished = grant.is_finished
        """Tells whether the message at a queue offset is acknowledged."""
        self.first_unfinished = grant.first_unfinished
        """Returns how many messages at the head of the compressed batch at a queue offset are noted as finished."""

    def look(self) -> frozenset[int]:
        """Take back what does not run any more, or runs where nobody beats; return the other queue offsets.

        When the queue has another owner by now, nothing is taken back: that one has what was lent. Raises StoreBusy.
        """
        lending, slot = self._lending, self._slot
        runs = {number: offsets for number in self._numbers if (offsets := self._offsets_of(number))}
        if len(runs) < len(self._numbers):
            with slot.locked(lending.lock_timeout_ms):
                if slot.load("epoch") != self._epoch:
                    return self._left
                for number in set(self._numbers) - runs.keys():
                    # A thread that rests acknowledges none of them any more, and may have the queue again by a new
                    # grant of its member, whose word in the slot is the same.
                    if not lending.beats(number, self._lease_ms):
                        lending.take_back(number, slot, self._epoch)
            self._numbers = runs.keys()
        self._left = frozenset[int]().union(*runs.values())
        return self._left

    def offsets(self) -> frozenset[int]:
        """Return the queue offsets that were not taken back, and were not acknowledged at the last look."""
        return self._left

    def _offsets_of(self, number: int) -> frozenset[int]:
        """Return which of the lent messages a slot still runs; none if its process does not beat."""
        if not self._lending.is_lent(number, self._slot, self._epoch, self._lease_ms):
            return frozenset()
        return self._left.intersection(self._lending.unfinished(number, self._slot))


class Lending:
    """What the slots of the running table say of lent messages, as the members of one process use them."""

    def __init__(self, state: SharedState, members: OwnedSlots, lock_timeout_ms: int) -> None:
        self._state = state
        self._members = members
        self.lock_timeout_ms = lock_timeout_ms
        self._slots = SlotTable(state, layout.RUNNING_SLOT, layout.RUNNING_TABLE_AT, layout.RUNNING_SLOTS)

    def lend(self, slot: GroupQueueSlot, epoch: int, lease_ms: int, loser: int | None, *, lends: bool) -> None:
        """Leave to living members the messages of a queue that they run, under the epoch of its next grant.

        Only calls of the present epoch are lent, or those that a member lent which died before it had the queue.
        ``loser`` is the ``wake_slot`` of the consumer that lost the queue without releasing it, and may begin more of
        its messages; None if there is none. Without ``lends``, nothing is. The caller holds the mutex.
        """
        state, word, next_word = self._state, _word_of(slot, epoch - 1), _word_of(slot, epoch)
        for number in calls_in(state.mapping, layout.RUNNING_TABLE_AT, state.running_count, slot.number):
            fields = self._slots.read(number)
            is_lent = (
                lends
                and self._beats(fields, lease_ms)
                and self._members.load(fields["member"] - 1, "wake_slot") != loser
                and bool(self.unfinished(number, slot))
            )
            state.words.replace(self._slots.at(number, "grant"), *((word, next_word) if is_lent else (next_word, 0)))

    def lent(self, slot: GroupQueueSlot, epoch: int) -> list[int]:
        """Return the slots that have the epoch of a grant; at its begin, those that were lent to others."""
        state, word = self._state, _word_of(slot, epoch)
        numbers = calls_in(state.mapping, layout.RUNNING_TABLE_AT, state.running_count, slot.number)
        return [number for number in numbers if self._slots.load(number, "grant") == word]

    def is_lent(self, number: int, slot: GroupQueueSlot, epoch: int, lease_ms: int) -> bool:
        """Tell whether a slot runs messages that were lent under an epoch, in a process that lives and beats."""
        fields = self._slots.read(number)
        is_granted = 0 != fields["grant"] == _word_of(slot, epoch)
        return is_granted and fields["began"] > 0 and self._beats(fields, lease_ms)

    def beats(self, number: int, lease_ms: int) -> bool:
        """Tell whether the member of a slot lives, and was heard within the lease."""
        return self._beats(self._slots.read(number), lease_ms)

    def take_back(self, number: int, slot: GroupQueueSlot, epoch: int) -> None:
        """End the lending of a slot: its thread cannot acknowledge any more. The caller holds the mutex."""
        self._state.words.replace(self._slots.at(number, "grant"), _word_of(slot, epoch), 0)

    def unfinished(self, number: int, slot: GroupQueueSlot) -> list[int]:
        """Return the queue offsets that a slot names, and that are not acknowledged."""
        return slot.unfinished(self._slots.load(number, "queue_offset"), self._slots.load(number, "last_offset"))

    def _beats(self, fields: Mapping[str, int], lease_ms: int) -> bool:
        if not lives(self._members, fields["member"], fields["incarnation"]):
            return False
        heartbeat = self._members.load(fields["member"] - 1, "heartbeat")
        return self._state.awake.ran_since(heartbeat) <= lease_ms * 1_000_000


def _word_of(slot: GroupQueueSlot, epoch: int) -> int:
    """Return what the kernel's grant_word returns: one grant of one queue."""
    return slot.number << _QUEUE_AT | epoch & (1 << _QUEUE_AT) - 1


_QUEUE_AT = 48
"""The bit of ``grant`` from which on it has the number of the group-queue."""
