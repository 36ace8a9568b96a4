"""Group: membership and the granting of queues, with leases and fencing.

A member is one consumer of one topic in one group. Its slot in the runtime file is alive while its byte of the lock
file is locked, which the kernel undoes at any death, and while its heartbeat is fresh, which a stopped process fails
at. A queue is granted to one member at a time; each grant has its own epoch, and an acknowledgement that carries an
older one is refused inside the critical section that it would change.

==================  ==================================================================================
a queue is free     when nobody owns it, its owner left or died, or its lease has run out
a member is counted when its byte is locked and its heartbeat is younger than the lease
==================  ==================================================================================
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from store import MessageQueue, MessageStore, boottime, java_hash, layout
from store.errors import TableFull
from store.file_lock import MEMBER_BYTES
from store.group_table import GroupQueueSlot
from store.shared_state import member_slot_at

_AT = layout.MEMBER_SLOT.at


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member as others see it."""

    slot: int
    incarnation: int
    group: str
    topic: str
    client_id: str
    pid: int
    heartbeat_age_ms: float


class MemberTable:
    """The member table, as the members of one process use it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._words = store.state.words
        self._own: set[int] = set()

    def join(self, group: str, topic: str, client_id: str, subscription: str) -> Member:
        """Take a slot. Raises TableFull when all 1,024 are in use."""
        state = self._store.state
        with state.locked(state.table_mutex, self._store.config.lock_timeout_ms):
            slot = self._free_slot()
            self._own.add(slot)
            incarnation = self._fill(slot, group, topic, client_id, subscription)
        state.signal_membership()
        return Member(self, self._store, slot, incarnation, group, topic, client_id)

    def leave(self, slot: int) -> None:
        """Give a slot back."""
        self._words.add(member_slot_at(slot) + _AT["incarnation"], 1)
        self._own.discard(slot)
        self._store.lock.unlock(MEMBER_BYTES + slot)
        self._store.state.signal_membership()

    def is_alive(self, slot: int, incarnation: int) -> bool:
        """Tell whether the process that took the slot as ``incarnation`` still runs, stopped or not."""
        if self._words.load(member_slot_at(slot) + _AT["incarnation"]) != incarnation:
            return False
        lock = self._store.lock
        return lock.holds(MEMBER_BYTES + slot) or lock.holder(MEMBER_BYTES + slot) is not None

    def owner(self, slot: GroupQueueSlot) -> MemberInfo | None:
        """Return the member that has a queue in its group now; None when it is free."""
        number, incarnation, now = slot.load("owner") - 1, slot.load("owner_incarnation"), boottime()
        if number < 0 or slot.load("lease_until") < now or not self.is_alive(number, incarnation):
            return None
        return self._read(number, incarnation, now)

    def counted(self, group: str, topic: str, lease_ms: int) -> list[MemberInfo]:
        """Return the members that take part in the allocation of a topic's queues, sorted by client id."""
        found = [
            member
            for member in self.all()
            if (member.group, member.topic) == (group, topic) and member.heartbeat_age_ms < lease_ms
        ]
        return sorted(found, key=lambda member: member.client_id)

    def all(self) -> list[MemberInfo]:
        """Return every member whose process runs."""
        now = boottime()
        found = []
        for slot in range(layout.MEMBER_SLOTS):
            incarnation = self._words.load(member_slot_at(slot) + _AT["incarnation"])
            if incarnation == 0:
                break  # slots are taken from the first on: behind a never used one there is none
            if incarnation % 2 and self.is_alive(slot, incarnation):
                found.append(self._read(slot, incarnation, now))
        return found

    def _free_slot(self) -> int:
        for slot in range(layout.MEMBER_SLOTS):
            at = member_slot_at(slot) + _AT["incarnation"]
            incarnation = self._words.load(at)
            if slot in self._own or (incarnation % 2 == 1 and self.is_alive(slot, incarnation)):
                continue
            if incarnation % 2 == 1:  # who died in it would seem to live again as soon as its byte is locked
                self._words.store(at, incarnation + 1)
            if self._store.lock.try_exclusive(MEMBER_BYTES + slot):
                return slot
        raise TableFull(f"all {layout.MEMBER_SLOTS} member slots of {self._store.root} are in use")

    def _fill(self, slot: int, group: str, topic: str, client_id: str, subscription: str) -> int:
        at, words = member_slot_at(slot), self._words
        incarnation = words.load(at + _AT["incarnation"])
        for name, text in (("group", group), ("topic", topic), ("client_id", client_id)):
            content = text.encode()[:127]
            self._store.state.put_bytes(at + _AT[name], content.ljust(128, b"\0"))
            words.store32(at + _AT[f"{name}_size"], len(content))
        words.store32(at + _AT["pid"], os.getpid())
        words.store(at + _AT["subscription_hash"], java_hash(subscription) & 0xFFFF_FFFF)
        words.store(at + _AT["heartbeat"], boottime())
        words.store(at + _AT["incarnation"], incarnation + 1)
        return incarnation + 1

    def _read(self, slot: int, incarnation: int, now: int) -> MemberInfo:
        at, words, state = member_slot_at(slot), self._words, self._store.state

        def text(name: str) -> str:
            return state.text(at + _AT[name], min(127, words.load32(at + _AT[f"{name}_size"])))

        return MemberInfo(
            slot=slot,
            incarnation=incarnation,
            group=text("group"),
            topic=text("topic"),
            client_id=text("client_id"),
            pid=words.load32(at + _AT["pid"]),
            heartbeat_age_ms=(now - words.load(at + _AT["heartbeat"])) / 1e6,
        )


class Member:
    """One consumer in a group, of this process."""

    def __init__(
        self,
        table: MemberTable,
        store: MessageStore,
        slot: int,
        incarnation: int,
        group: str,
        topic: str,
        client_id: str,
    ) -> None:
        self.table = table
        self.slot = slot
        self.incarnation = incarnation
        self.group = group
        self.topic = topic
        self.client_id = client_id
        self._store = store
        self._timeout_ms = store.config.lock_timeout_ms

    @property
    def arrival_lane(self) -> int:
        """The futex lane that this member sleeps on."""
        return self.slot % layout.ARRIVAL_LANES

    def beat(self) -> None:
        """Show that this process runs."""
        self._store.state.words.store(member_slot_at(self.slot) + _AT["heartbeat"], boottime())

    def queue_slot(self, queue: MessageQueue) -> GroupQueueSlot:
        """Return the group's slot of a queue; a new group starts at the oldest message."""
        topics = self._store.topics
        return self._store.groups.find_or_add(self.group, topics.slot(queue), topics.min_offset(queue))

    def take(self, slot: GroupQueueSlot, lease_ms: int) -> int | None:
        """Become the owner of a queue that is free; return the epoch of the grant, None when it is not free."""
        with slot.locked(self._timeout_ms):
            if not self._is_free(slot):
                return None
            epoch = slot.load("epoch") + 1
            # In this order: a death after the first store leaves a queue that nobody owns, and no grant at all.
            slot.store("owner", 0)
            slot.store("epoch", epoch)
            slot.finish_seek()
            slot.store("lease_until", boottime() + lease_ms * 1_000_000)
            slot.store("owner_incarnation", self.incarnation)
            slot.store("owner", self.slot + 1)
            return epoch

    def renew(self, slot: GroupQueueSlot, epoch: int, lease_ms: int) -> bool:
        """Lengthen a lease. False when the queue was granted to somebody else meanwhile."""
        with slot.locked(self._timeout_ms):
            if slot.load("epoch") != epoch:
                return False
            slot.store("lease_until", boottime() + lease_ms * 1_000_000)
            return True

    def release(self, slot: GroupQueueSlot, epoch: int) -> None:
        """Give a queue back, unless somebody else has it already; others are told."""
        with slot.locked(self._timeout_ms):
            if slot.load("epoch") == epoch:
                slot.store("owner", 0)
        self._store.state.signal_membership()

    def leave(self) -> None:
        """End the membership; queues must be released before."""
        self.table.leave(self.slot)

    def _is_free(self, slot: GroupQueueSlot) -> bool:
        owner = slot.load("owner")
        if owner == 0 or slot.load("lease_until") < boottime():
            return True
        if (owner - 1, slot.load("owner_incarnation")) == (self.slot, self.incarnation):
            return False
        return not self.table.is_alive(owner - 1, slot.load("owner_incarnation"))
