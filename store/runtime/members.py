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
from typing import Protocol

from rmqclient.store import layout
from rmqclient.store.clock import boottime
from rmqclient.store.errors import ClientIdInUse, QueueOwned, SubscriptionMismatch, TableFull
from rmqclient.store.files.file_lock import MEMBER_BYTES, LockFile
from rmqclient.store.kernel._kernel import java_hash
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.arrivals import Bell
from rmqclient.store.runtime.client_id import check_client_id
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.rows import NOT_STRAINED, MemberInfo, Strained
from rmqclient.store.runtime.running import RunningTable
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.runtime.slot_table import OwnedSlots, SlotTable
from rmqclient.store.runtime.subscription import REMOTE, agree, fitted

_WATCHES_NS = 1_000_000_000
"""A member whose heartbeat is older may be stopped, and the one after it unwatched. Four beats by default."""

_KEPT_NS = 2_000_000_000
"""A member whose threads were all kept by long calls a shorter time ago has no room for the queues of a busy one."""


class StoredQueues(Protocol):
    """The queue table, which is read above this folder."""

    def slot(self, queue: MessageQueue) -> int:
        """Return the slot of a queue. Raises UnknownTopic."""

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message."""


class MemberTable:
    """The member table, as one consumer uses it.

    All members of a consumer share one thread, which sleeps by :attr:`bell`.
    """

    def __init__(
        self,
        root: Path,
        state: SharedState,
        lock: LockFile,
        queues: StoredQueues,
        groups: GroupTable,
        lock_timeout_ms: int,
    ) -> None:
        self._root = root
        self._state = state
        self._queues = queues
        self._groups = groups
        self.lock_timeout_ms = lock_timeout_ms
        self._slots = OwnedSlots(
            state, layout.MEMBER_SLOT, layout.MEMBER_TABLE_AT, layout.MEMBER_SLOTS, lock, MEMBER_BYTES
        )
        self.running = RunningTable(root, state, self._slots, lock_timeout_ms)
        """The messages that the handler threads of all members run."""
        self._wake_slot: int | None = None
        self._incarnations: list[int] = []
        self._seats: dict[int, MemberInfo] = {}
        self._by_topic: dict[tuple[str, str], tuple[MemberInfo, ...]] = {}

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
        return Member(self, slot, incarnation, group, topic, client_id)

    def leave(self, slot: int) -> None:
        """Give a slot back."""
        self._state.words.add(self._slots.at(slot, "incarnation"), 1)
        self._slots.disown(slot)
        self._state.signal_membership()

    def forget(self, groups: Collection[str]) -> None:
        """Forget groups, with their places in all queues. Raises QueueOwned while one has a member, StoreBusy."""
        state = self._state
        with state.locked(state.table_mutex, self.lock_timeout_ms):  # nobody joins meanwhile
            for member in self.all():
                if member.group in groups:
                    raise QueueOwned(
                        f"group {member.group!r} has a member that runs, {member.client_id!r} of process {member.pid}: "
                        "stop it first"
                    )
            self._groups.forget(groups)
        state.signal_membership()

    def beat(self, slot: int) -> None:
        """Show that this process runs."""
        self._slots.store(slot, "heartbeat", boottime())

    def retire(self, slot: int) -> None:
        """Let a member count no more, as if it had been silent for ever, and wake everybody."""
        if self._slots.load(slot, "heartbeat"):
            self._slots.store(slot, "heartbeat", 0)
            self._state.signal_membership()

    def group_queue(self, group: str, queue: MessageQueue) -> GroupQueueSlot:
        """Return the group's slot of a queue; a new group starts at the oldest message. Raises UnknownTopic."""
        number = self._queues.slot(queue)
        found = self._groups.find(group, number)
        return found or self._groups.find_or_add(group, number, self._queues.min_offset(queue))

    def tell(self, seats: Iterable[MemberInfo]) -> None:
        """Make the consumers of these members look at once."""
        self._state.wake_members({seat.wake_slot for seat in seats})

    @property
    def bell(self) -> Bell:
        """The bell that rings when this consumer shall look at the tables; see :meth:`SharedState.wake_members`.

        Before the first join it is the bell of all members, which rings at every change of members or topics.
        """
        if self._wake_slot is None:
            return Bell(self._state.words, layout.RUNTIME_HEADER.at["membership_word"])
        return Bell(self._state.words, self._slots.at(self._wake_slot, "wake_word"))

    def is_alive(self, slot: int, incarnation: int) -> bool:
        """Tell whether the process that took the slot as ``incarnation`` still runs, stopped or not."""
        return self._slots.is_alive(slot, incarnation)

    def counted(self, group: str, topic: str, lease_ms: int) -> tuple[MemberInfo, ...]:
        """Return the members that take part in the allocation of a topic's queues, sorted by client id.

        No lock is probed: a dead member is counted until its watcher has found it dead.
        """
        self._read_on()
        seats = self._by_topic.get((group, topic), ())
        oldest = boottime() - lease_ms * 1_000_000
        beats = self._column("heartbeat")
        if all(beats[seat.slot] >= oldest for seat in seats):
            return seats
        return tuple(seat for seat in seats if beats[seat.slot] >= oldest)

    def strained(self, group: str, topic: str, lease_ms: int) -> Strained:
        """Return which of the :meth:`counted` members are busy, and which can help them.

        Nobody is busy in a group with members of other languages: these share queues without such words.
        """
        seats = self.counted(group, topic, lease_ms)
        busy = self._column("busy")
        if not any(busy[seat.slot] for seat in seats) or self._has_remote(group):
            return NOT_STRAINED
        kept, now = self._column("kept_at"), boottime()
        helpers = [seat for seat in seats if not busy[seat.slot] and kept[seat.slot] < now - _KEPT_NS]
        return Strained(
            frozenset(seat.client_id for seat in seats if busy[seat.slot]), tuple(seat.client_id for seat in helpers)
        )

    def show_kept(self, slot: int, *, busy: bool) -> None:
        """Show that long calls keep all threads of a member now; ``busy`` if other members are to have its queues."""
        self._slots.store(slot, "kept_at", boottime())
        self._show_busy(slot, int(busy))

    def show_free(self, slot: int) -> None:
        """Show that a thread of a member is free."""
        self._show_busy(slot, 0)

    def _show_busy(self, slot: int, busy: int) -> None:
        if self._slots.load(slot, "busy") != busy:
            self._slots.store(slot, "busy", busy)
            self._state.signal_membership()

    def _has_remote(self, group: str) -> bool:
        return any(seat.group == group and seat.subscription.endswith(REMOTE) for seat in self._seats.values())

    def everybody(self, lease_ms: int) -> list[MemberInfo]:
        """Return the members of all groups for all topics, each as :meth:`counted`, in no order."""
        self._read_on()
        return [seat for group, topic in list(self._by_topic) for seat in self.counted(group, topic, lease_ms)]

    def watch(self, slot: int) -> bool:
        """Check that the member after ``slot`` lives, and the ones after it up to one that watches the rest.

        Returns True when one was found dead; everybody is woken then.
        """
        self._read_on()
        slots, now = sorted(self._seats), boottime()
        behind = slots.index(slot) + 1 if slot in self._seats else 0
        for other in slots[behind:] + slots[:behind]:
            if not self.is_alive(other, self._seats[other].incarnation):
                self._bury_dead()  # all: the members of one process die together, and others then look once
                self._state.signal_membership()
                return True
            if now - self._slots.load(other, "heartbeat") < _WATCHES_NS:
                break
        return False

    def watch_behind(self, own: Collection[int]) -> bool:
        """Check, as :meth:`watch`, the members behind those of this process: ``own`` has their slots."""
        self._read_on()
        slots = sorted(self._seats)
        last = [
            slot for slot, behind in zip(slots, slots[1:] + slots[:1], strict=True) if slot in own and behind not in own
        ]
        return any(self.watch(slot) for slot in last)

    def all(self) -> list[MemberInfo]:
        """Return every member whose process runs, by slot."""
        self._read_on()
        seats = [seat for _, seat in sorted(self._seats.items())]
        return [self._info(seat) for seat in seats if self.is_alive(seat.slot, seat.incarnation)]

    def owner(self, slot: GroupQueueSlot) -> MemberInfo | None:
        """Return the member that owns a queue in its group now; None when the queue is free."""
        number, incarnation = slot.load("owner") - 1, slot.load("owner_incarnation")
        if number < 0 or slot.load("lease_until") < boottime() or not self.is_alive(number, incarnation):
            return None
        seat = self._read(number, incarnation)
        return None if seat is None else self._info(seat)

    def wake_slot_in(self, slot: int) -> int:
        """Return the ``wake_slot`` of the member that has, or had last, a slot: one for all members of a consumer."""
        return self._slots.load(slot, "wake_slot")

    def _info(self, seat: MemberInfo) -> MemberInfo:
        return seat._replace(heartbeat_age_ms=(boottime() - self._slots.load(seat.slot, "heartbeat")) / 1e6)

    def _check(self, group: str, topic: str, client_id: str, subscription: str) -> None:
        """Reject a member whose subscription differs. Free the slots of dead members on the way.

        The caller holds the table mutex.
        """
        self._read_on()
        for seat in self._by_topic.get((group, topic), ()):
            if not self.is_alive(seat.slot, seat.incarnation):
                self._slots.free(seat.slot, seat.incarnation)
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
        for seat in self._seats.values():
            if not self.is_alive(seat.slot, seat.incarnation):
                self._slots.free(seat.slot, seat.incarnation)

    def _column(self, field: str) -> list[int]:
        return self._slots.column(field, len(self._incarnations))

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

    def _free_slot(self) -> int:
        """Lock the first slot that is not in use. The caller holds the table mutex."""
        for only_now_found_dead in (False, True):
            if only_now_found_dead:
                self._bury_dead()
            for slot in range(layout.MEMBER_SLOTS):
                in_use = self._slots.load(slot, "incarnation") % 2 == 1
                # A slot with an even incarnation that this handle owns is about to be left by another thread.
                if not in_use and not self._slots.owns(slot) and self._slots.own(slot):
                    return slot
        raise TableFull(f"all {layout.MEMBER_SLOTS} member slots of {self._root} are in use")

    def _fill(self, slot: int, group: str, topic: str, client_id: str, subscription: str) -> int:
        slots, incarnation = self._slots, self._slots.load(slot, "incarnation")
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

    def _read(self, slot: int, incarnation: int) -> MemberInfo | None:
        """Return the seat in a slot, None when the slot has gone to another member meanwhile."""
        slots = self._slots
        names = [slots.text(slot, name) for name in ("group", "topic", "client_id", "subscription")]
        pid, wake_slot = slots.load(slot, "pid"), slots.load(slot, "wake_slot")
        if slots.load(slot, "incarnation") != incarnation:
            return None
        group, topic, client_id, subscription = (name.decode() for name in names)
        return MemberInfo(slot, incarnation, group, topic, client_id, pid, subscription, wake_slot)


class Member:
    """One consumer in a group, of this process."""

    def __init__(self, table: MemberTable, slot: int, incarnation: int, group: str, topic: str, client_id: str) -> None:
        self.table = table
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
        self.table.beat(self.slot)

    def queue_slot(self, queue: MessageQueue) -> GroupQueueSlot:
        """Return the group's slot of a queue; a new group starts at the oldest message."""
        return self.table.group_queue(self.group, queue)

    def take(self, slot: GroupQueueSlot, lease_ms: int, *, lends: bool = False) -> int | None:
        """Become the owner of a queue; return the epoch of the grant, None when the queue is not free.

        ``lends`` leaves the messages that run in other members to them: see :mod:`rmqclient.store.runtime.running`.
        """
        with slot.locked(self.table.lock_timeout_ms):
            if not self._is_free(slot):
                return None
            epoch = slot.load("epoch") + 1
            stays_fenced = slot.is_fenced_for(self.client_id)  # its client trusts a lock that it has of a dead owner
            self.table.running.lend(slot, epoch, lease_ms, self._loser(slot), lends=lends)
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

    def tell(self, seats: Iterable[MemberInfo]) -> None:
        """Make the consumers of these members look at once. All members are told of a join or a leave."""
        self.table.tell(seats)

    def show_kept(self, *, busy: bool) -> None:
        """Show that long calls keep all threads; ``busy`` if other members are to have the queues."""
        self.table.show_kept(self.slot, busy=busy)

    def show_free(self) -> None:
        """Show that a thread is free."""
        self.table.show_free(self.slot)

    def retire(self) -> None:
        """Be counted no more, and keep the slot and what it owns. Retiring twice does nothing."""
        self.table.retire(self.slot)

    def leave(self) -> None:
        """End the membership; queues must be released before."""
        self.table.leave(self.slot)

    def _loser(self, slot: GroupQueueSlot) -> int | None:
        """Return the ``wake_slot`` of the living consumer that owns a queue which it has not released; else None."""
        owner, table = slot.load("owner") - 1, self.table
        if not 0 <= owner < layout.MEMBER_SLOTS or not table.is_alive(owner, slot.load("owner_incarnation")):
            return None
        return table.wake_slot_in(owner)

    def _is_free(self, slot: GroupQueueSlot) -> bool:
        owner = slot.load("owner")
        if owner == 0:
            return True
        if slot.is_fenced_from(self.client_id):
            return False
        if slot.load("lease_until") < boottime():
            return True
        if (owner - 1, slot.load("owner_incarnation")) == (self.slot, self.incarnation):
            return False
        return not self.table.is_alive(owner - 1, slot.load("owner_incarnation"))


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
