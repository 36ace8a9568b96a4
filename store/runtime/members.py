"""Members: who is in which group, and who is granted which queue, with leases and fencing.

A member is one consumer of one topic in one group. It is alive while its byte of the lock file is locked, which the
kernel undoes at any death, and while its heartbeat is fresh; a stopped process fails at the second. A queue is granted
to one member at a time. Each grant has an epoch of its own, and an acknowledgement with an older epoch is refused
inside the critical section that it would change, unless the owner has left the message to its call
(:mod:`rmqclient.store.runtime.running`).

==================  ==================================================================================
a queue is free     when nobody owns it, its owner left or died, or its lease has run out, and no fence is around it
a member is counted when its slot says so and its heartbeat is younger than the lease
a member helps      when another one is busy, and no long calls have kept its own threads for two seconds
==================  ==================================================================================

The slot of a dead member stays in use until another member finds its byte free. If each member probed the bytes of all
others at each look, the cost would grow with the square of their number. So each member *watches* only the next one. If
the next member is dead, or so quiet that it may not watch anybody itself, the watcher also watches the one after it. A
member that finds a dead one frees its slot and wakes everybody.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.clock import boottime
from rmqclient.store.errors import ClientIdInUse, QueueOwned, SubscriptionMismatch, TableFull
from rmqclient.store.files.file_lock import MEMBER_BYTES, LockFile
from rmqclient.store.kernel._kernel import java_hash
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.arrivals import Bell
from rmqclient.store.runtime.client_id import check_client_id
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.lending import Lending
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.roll import Roll
from rmqclient.store.runtime.rows import MemberInfo
from rmqclient.store.runtime.running import RunningTable
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.runtime.slot_table import OwnedSlots, SlotTable
from rmqclient.store.runtime.subscription import agree, fitted

_WATCHES_NS = 1_000_000_000
"""A member whose heartbeat is older may be stopped, and the one after it unwatched. Four beats by default."""


class MemberTable:
    """The member table, as one consumer uses it.

    All members of a consumer share one thread, which sleeps by :attr:`bell`.
    """

    def __init__(
        self,
        root: Path,
        state: SharedState,
        lock: LockFile,
        queues: QueueTable,
        groups: GroupTable,
        lock_timeout_ms: int,
    ) -> None:
        self._root = root
        self._state = state
        self._queues = queues
        self._groups = groups
        self.lock_timeout_ms = lock_timeout_ms
        self.slots = OwnedSlots(
            state, layout.MEMBER_SLOT, layout.MEMBER_TABLE_AT, layout.MEMBER_SLOTS, lock, MEMBER_BYTES
        )
        self.roll = Roll(self.slots, state.awake)
        """The members, as this consumer reads them."""
        self.running = RunningTable(root, state, self.slots, lock_timeout_ms)
        self.lending = Lending(state, self.slots, lock_timeout_ms)
        """The messages that the handler threads of all members run."""
        self._wake_slot: int | None = None

    def join(self, group: str, topic: str, client_id: str, subscription: str) -> Member:
        """Take a slot. The subscriptions of all members of the group on this topic must agree.

        When two agree says :mod:`rmqclient.store.runtime.subscription`. Raises SubscriptionMismatch, ClientIdInUse when
        a living member has the same client id, InvalidName for a client id that is empty or longer than 127 bytes,
        TableFull when all 1,024 slots are in use, and StoreBusy.
        """
        check_client_id(client_id)
        subscription = fitted(subscription)
        state = self._state
        with state.locked(state.table_mutex, self.lock_timeout_ms):  # nobody else joins meanwhile
            self._check(group, topic, client_id, subscription)
            slot = self._free_slot()
            if self._wake_slot is None:
                self._wake_slot = slot
            incarnation = self._fill(slot, group, topic, client_id, subscription)
        state.signal_membership()
        return Member(self, state, slot, incarnation, group, topic, client_id)

    def forget(self, groups: Collection[str]) -> None:
        """Forget groups, with their places in all queues. Raises QueueOwned while one has a member, StoreBusy."""
        state = self._state
        with state.locked(state.table_mutex, self.lock_timeout_ms):  # nobody joins meanwhile
            for member in self.roll.all():
                if member.group in groups:
                    raise QueueOwned(
                        f"group {member.group!r} has a member that runs, {member.client_id!r} of process {member.pid}: "
                        "stop it first"
                    )
            self._groups.forget(groups)
        state.signal_membership()

    def group_queue(self, group: str, queue: MessageQueue) -> GroupQueueSlot:
        """Return the group's slot of a queue; a new group starts at the oldest message. Raises UnknownTopic."""
        number = self._queues.slot(queue)
        found = self._groups.find(group, number)
        return found or self._groups.find_or_add(group, number, self._queues.min_offset(queue))

    def wake(self, seats: Iterable[MemberInfo]) -> None:
        """Make the consumers of these members look at once."""
        self._state.wake_members({seat.wake_slot for seat in seats})

    @property
    def bell(self) -> Bell:
        """The bell that rings when this consumer shall look at the tables; see :meth:`SharedState.wake_members`.

        Before the first join it is the bell of all members, which rings at every change of members or topics.
        """
        if self._wake_slot is None:
            return Bell(self._state.words, layout.RUNTIME_HEADER.at["membership_word"])
        return Bell(self._state.words, self.slots.at(self._wake_slot, "wake_word"))

    def watch(self, slot: int) -> bool:
        """Check that the member after ``slot`` lives, and the ones after it up to one that watches the rest.

        Returns True when one was found dead; everybody is woken then.
        """
        seats, awake = self.roll.by_slot(), self._state.awake
        slots = sorted(seats)
        behind = slots.index(slot) + 1 if slot in seats else 0
        for other in slots[behind:] + slots[:behind]:
            if not self.slots.is_alive(other, seats[other].incarnation):
                self._bury_dead()  # all: the members of one process die together, and others then look once
                self._state.signal_membership()
                return True
            if awake.ran_since(self.slots.load(other, "heartbeat")) < _WATCHES_NS:
                break
        return False

    def watch_behind(self, own: Collection[int]) -> bool:
        """Check, as :meth:`watch`, the members behind those of this process: ``own`` has their slots."""
        slots = sorted(self.roll.by_slot())
        last = [
            slot for slot, behind in zip(slots, slots[1:] + slots[:1], strict=True) if slot in own and behind not in own
        ]
        return any(self.watch(slot) for slot in last)

    def _check(self, group: str, topic: str, client_id: str, subscription: str) -> None:
        """Reject a member whose subscription differs. Free the slots of dead members on the way.

        The caller holds the table mutex.
        """
        for seat in self.roll.in_topic(group, topic):
            if not self.slots.is_alive(seat.slot, seat.incarnation):
                self.slots.free(seat.slot, seat.incarnation)
            elif seat.client_id == client_id:
                raise ClientIdInUse(
                    f"group {group!r}, topic {topic!r}: process {seat.pid} is a member as {client_id!r} already; give "
                    "each consumer its own client id, or no client id: the default has host, pid and a random part"
                )
            elif not agree(seat.subscription, subscription):
                raise SubscriptionMismatch(
                    f"group {group!r}, topic {topic!r}: {client_id!r} subscribes to ({subscription}), but "
                    f"{seat.client_id!r} (pid {seat.pid}) subscribes to ({seat.subscription}): all members of a group "
                    "must be the same, or messages are lost. Use a new group, or stop the old workers first"
                )

    def _bury_dead(self) -> None:
        for seat in self.roll.by_slot().values():
            if not self.slots.is_alive(seat.slot, seat.incarnation):
                self.slots.free(seat.slot, seat.incarnation)

    def _free_slot(self) -> int:
        """Lock the first slot that is not in use. The caller holds the table mutex."""
        for only_now_found_dead in (False, True):
            if only_now_found_dead:
                self._bury_dead()
            for slot in range(layout.MEMBER_SLOTS):
                in_use = self.slots.load(slot, "incarnation") % 2 == 1
                # A slot with an even incarnation that this handle owns is about to be left by another thread.
                if not in_use and not self.slots.owns(slot) and self.slots.own(slot):
                    return slot
        raise TableFull(f"all {layout.MEMBER_SLOTS} member slots of {self._root} are in use")

    def _fill(self, slot: int, group: str, topic: str, client_id: str, subscription: str) -> int:
        slots, incarnation = self.slots, self.slots.load(slot, "incarnation")
        texts = (("group", group), ("topic", topic), ("client_id", client_id), ("subscription", subscription))
        for name, text in texts:
            slots.put_text(slot, name, text.encode())
        slots.store(slot, "pid", os.getpid())
        slots.store(slot, "wake_slot", slot if self._wake_slot is None else self._wake_slot)
        slots.store(slot, "subscription_hash", java_hash(subscription) & 0xFFFF_FFFF)
        slots.store(slot, "heartbeat", boottime())
        slots.store(slot, "kept_at", 0)
        slots.store(slot, "busy", 0)
        slots.store(slot, "incarnation", incarnation + 1)
        return incarnation + 1


class Member:
    """One consumer in a group, of this process."""

    def __init__(
        self,
        table: MemberTable,
        state: SharedState,
        slot: int,
        incarnation: int,
        group: str,
        topic: str,
        client_id: str,
    ) -> None:
        self.table = table
        self._slots = table.slots
        self._state = state
        self.slot = slot
        self.incarnation = incarnation
        self.group = group
        self.topic = topic
        self.client_id = client_id

    @property
    def arrival_lane(self) -> int:
        """The futex lane that this member sleeps on."""
        return self.slot % layout.ARRIVAL_LANES

    def beat(self) -> None:
        """Show that this process runs."""
        self._slots.store(self.slot, "heartbeat", boottime())

    def queue_slot(self, queue: MessageQueue) -> GroupQueueSlot:
        """Return the group's slot of a queue; a new group starts at the oldest message."""
        return self.table.group_queue(self.group, queue)

    def take(self, slot: GroupQueueSlot, lease_ms: int, *, lends: bool = False) -> int | None:
        """Become the owner of a queue; return the epoch of the grant, None when the queue is not free.

        ``lends`` leaves the messages that run in other members to them: see :mod:`rmqclient.store.runtime.lending`.
        """
        with slot.locked(self.table.lock_timeout_ms):
            if not self._is_free(slot, lease_ms):
                return None
            epoch = slot.load("epoch") + 1
            stays_fenced = slot.is_fenced_for(self.client_id)  # its client trusts a lock that it has of a dead owner
            self.table.lending.lend(slot, epoch, lease_ms, self._loser(slot), lends=lends)
            # In this order: a death after the first store leaves a queue that nobody owns, and no grant at all.
            slot.store("owner", 0)
            slot.store("epoch", epoch)
            slot.finish_seek()
            if not stays_fenced:
                slot.store("fenced_until", 0)
            slot.store("lease_until", boottime() + lease_ms * 1_000_000)
            slot.store("owner_incarnation", self.incarnation)
            slot.store("owner", self.slot + 1)
            return epoch

    def show_kept(self, *, busy: bool) -> None:
        """Show that long calls keep all threads; ``busy`` if other members are to have the queues."""
        self._slots.store(self.slot, "kept_at", boottime())
        self._show_busy(int(busy))

    def show_free(self) -> None:
        """Show that a thread is free."""
        self._show_busy(0)

    def retire(self) -> None:
        """Be counted no more, and keep the slot and what it owns. Retiring twice does nothing."""
        if self._slots.load(self.slot, "heartbeat"):
            self._slots.store(self.slot, "heartbeat", 0)  # as if it had been silent for ever
            self._state.signal_membership()

    def leave(self) -> None:
        """End the membership; queues must be released before."""
        self._state.words.add(self._slots.at(self.slot, "incarnation"), 1)
        self._slots.disown(self.slot)
        self._state.signal_membership()

    def _show_busy(self, busy: int) -> None:
        if self._slots.load(self.slot, "busy") != busy:
            self._slots.store(self.slot, "busy", busy)
            self._state.signal_membership()

    def _loser(self, slot: GroupQueueSlot) -> int | None:
        """Return the ``wake_slot`` of the living consumer that owns a queue which it has not released; else None."""
        owner = slot.load("owner") - 1
        if not 0 <= owner < layout.MEMBER_SLOTS or not self._slots.is_alive(owner, slot.load("owner_incarnation")):
            return None
        return self._slots.load(owner, "wake_slot")  # one for all members of a consumer

    def _is_free(self, slot: GroupQueueSlot, lease_ms: int) -> bool:
        owner = slot.load("owner")
        if owner == 0:
            return True
        if slot.is_fenced_from(self.client_id):
            return False
        if self._state.awake.is_over(slot.load("lease_until"), lease_ms * 1_000_000):
            return True
        if (owner - 1, slot.load("owner_incarnation")) == (self.slot, self.incarnation):
            return False
        return not self._slots.is_alive(owner - 1, slot.load("owner_incarnation"))


def wake_members_of(state: SharedState, topic: str) -> None:
    """Make every consumer with a member for a topic look at the tables."""
    slots = SlotTable(state, layout.MEMBER_SLOT, layout.MEMBER_TABLE_AT, layout.MEMBER_SLOTS)
    sleeping: set[int] = set()
    for slot in range(slots.slots):
        incarnation = slots.load(slot, "incarnation")
        if incarnation == 0:
            break  # slots are taken from the first on: all slots after a never used one are unused
        if incarnation % 2 == 1 and slots.text(slot, "topic") == topic.encode():
            sleeping.add(slots.load(slot, "wake_slot"))
    state.wake_members(sleeping)
