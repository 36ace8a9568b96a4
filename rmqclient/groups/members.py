"""Group: membership and the granting of queues, with leases and fencing.

A member is one consumer of one topic in one group. Its slot in the runtime file is alive while its byte of the lock
file is locked, which the kernel undoes at any death, and while its heartbeat is fresh, which a stopped process fails
at. A queue is granted to one member at a time; each grant has its own epoch, and an acknowledgement that carries an
older one is refused inside the critical section that it would change.

==================  ==================================================================================
a queue is free     when nobody owns it, its owner left or died, or its lease has run out
a member is counted when its slot says so and its heartbeat is younger than the lease
==================  ==================================================================================

A slot of the dead says that it is in use until somebody finds its byte free. To probe the byte of every other member
at each look would cost the square of their number, so each member *watches* the next one behind it, and the one behind
that if it is dead or too quiet to watch anybody itself; whoever finds a dead one frees its slot and wakes everybody.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rmqclient.groups.running import RunningTable
from rmqclient.store import MessageQueue, MessageStore, boottime, java_hash, layout
from rmqclient.store.errors import ClientIdInUse, InvalidName, SubscriptionMismatch, TableFull
from rmqclient.store.files.file_lock import MEMBER_BYTES
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.shared_state import member_slot_at

_AT = layout.MEMBER_SLOT.at
_CLIENT_ID_BYTES = 127
_SUBSCRIPTION_BYTES = 512
_WATCHES_NS = 1_000_000_000
"""A member whose heartbeat is older may be stopped, and the one behind it unwatched. Four beats by default."""


class Seat(NamedTuple):
    """What does not change while a member has its slot."""

    slot: int
    incarnation: int
    group: str
    topic: str
    client_id: str
    pid: int
    subscription: str
    wake_slot: int


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member as others see it."""

    slot: int
    incarnation: int
    group: str
    topic: str
    client_id: str
    pid: int
    subscription: str
    heartbeat_age_ms: float


class MemberTable:
    """The member table, as one consumer uses it: its members have one thread, which sleeps at :attr:`wake_at`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._words = store.state.words
        self.running = RunningTable(store, self.is_alive)
        """What the handler threads of all members run."""
        self._wake_slot: int | None = None
        self._incarnations: list[int] = []
        self._seats: dict[int, Seat] = {}
        self._by_topic: dict[tuple[str, str], tuple[Seat, ...]] = {}

    def join(self, group: str, topic: str, client_id: str, subscription: str) -> Member:
        """Take a slot. ``subscription`` is what all members of the group must have the same for this topic.

        Raises SubscriptionMismatch when a living member has another one, ClientIdInUse when one has the same client
        id, InvalidName for a client id that is empty or longer than 127 bytes, TableFull when all 1,024 slots are in
        use, and StoreBusy.
        """
        check_client_id(client_id)
        subscription = _fitted(subscription)
        state = self._store.state
        with state.locked(state.table_mutex, self._store.config.lock_timeout_ms):  # nobody else joins meanwhile
            self._check(group, topic, client_id, subscription)
            slot = self._free_slot()
            if self._wake_slot is None:
                self._wake_slot = slot
            incarnation = self._fill(slot, group, topic, client_id, subscription)
        state.signal_membership()
        return Member(self, self._store, slot, incarnation, group, topic, client_id)

    def leave(self, slot: int) -> None:
        """Give a slot back."""
        self._words.add(member_slot_at(slot) + _AT["incarnation"], 1)
        self._store.lock.unlock(MEMBER_BYTES + slot)
        self._store.state.signal_membership()

    @property
    def wake_at(self) -> int | None:
        """Byte of the word that signals a member, None before a join.

        See :meth:`~rmqclient.store.runtime.shared_state.SharedState.wake_members`.
        """
        return None if self._wake_slot is None else member_slot_at(self._wake_slot) + _AT["wake_word"]

    def is_alive(self, slot: int, incarnation: int) -> bool:
        """Tell whether the process that took the slot as ``incarnation`` still runs, stopped or not."""
        if self._words.load(member_slot_at(slot) + _AT["incarnation"]) != incarnation:
            return False
        lock = self._store.lock
        return lock.holds(MEMBER_BYTES + slot) or lock.holder(MEMBER_BYTES + slot) is not None

    def counted(self, group: str, topic: str, lease_ms: int) -> tuple[Seat, ...]:
        """Return the members that take part in the allocation of a topic's queues, sorted by client id.

        No lock is probed: one that died is counted until somebody who watches it has found that out.
        """
        self._read_on()
        seats = self._by_topic.get((group, topic), ())
        oldest = boottime() - lease_ms * 1_000_000
        beats = self._column("heartbeat")
        if all(beats[seat.slot] >= oldest for seat in seats):
            return seats
        return tuple(seat for seat in seats if beats[seat.slot] >= oldest)

    def watch(self, slot: int) -> bool:
        """Look whether the next member behind ``slot`` lives, and further up to one that watches the rest.

        True when one was found dead; everybody is woken then.
        """
        self._read_on()
        slots, now = sorted(self._seats), boottime()
        behind = slots.index(slot) + 1 if slot in self._seats else 0
        for other in slots[behind:] + slots[:behind]:
            if not self.is_alive(other, self._seats[other].incarnation):
                self._bury_dead()  # all: the members of one process die together, and others then look once
                self._store.state.signal_membership()
                return True
            if now - self._words.load(member_slot_at(other) + _AT["heartbeat"]) < _WATCHES_NS:
                break
        return False

    def all(self) -> list[MemberInfo]:
        """Return every member whose process runs, by slot."""
        self._read_on()
        seats = [seat for _, seat in sorted(self._seats.items())]
        return [self._info(seat) for seat in seats if self.is_alive(seat.slot, seat.incarnation)]

    def owner(self, slot: GroupQueueSlot) -> MemberInfo | None:
        """Return the member that has a queue in its group now; None when it is free."""
        number, incarnation = slot.load("owner") - 1, slot.load("owner_incarnation")
        if number < 0 or slot.load("lease_until") < boottime() or not self.is_alive(number, incarnation):
            return None
        seat = self._read(number, incarnation)
        return None if seat is None else self._info(seat)

    def _info(self, seat: Seat) -> MemberInfo:
        beat = self._words.load(member_slot_at(seat.slot) + _AT["heartbeat"])
        return MemberInfo(
            slot=seat.slot,
            incarnation=seat.incarnation,
            group=seat.group,
            topic=seat.topic,
            client_id=seat.client_id,
            pid=seat.pid,
            subscription=seat.subscription,
            heartbeat_age_ms=(boottime() - beat) / 1e6,
        )

    def _check(self, group: str, topic: str, client_id: str, subscription: str) -> None:
        """Let nobody in who differs; under the table mutex. Who died is no hindrance, and is not counted any more."""
        self._read_on()
        for seat in self._by_topic.get((group, topic), ()):
            if not self.is_alive(seat.slot, seat.incarnation):
                self._bury(seat)
            elif seat.client_id == client_id:
                raise ClientIdInUse(
                    f"group {group!r}, topic {topic!r}: process {seat.pid} is a member as {client_id!r} already; give "
                    "each consumer its own client id, or none: the default has host, pid and a random part"
                )
            elif seat.subscription != subscription:
                raise SubscriptionMismatch(
                    f"group {group!r}, topic {topic!r}: {client_id!r} subscribes to ({subscription}), but "
                    f"{seat.client_id!r} (pid {seat.pid}) subscribes to ({seat.subscription}): all members of a group "
                    "must be the same, or messages are lost. Use a new group, or stop the old workers first"
                )

    def _bury_dead(self) -> None:
        for seat in self._seats.values():
            if not self.is_alive(seat.slot, seat.incarnation):
                self._bury(seat)

    def _bury(self, seat: Seat) -> None:
        """Free the slot of a dead member, unless somebody was quicker."""
        self._words.replace(member_slot_at(seat.slot) + _AT["incarnation"], seat.incarnation, seat.incarnation + 1)

    def _column(self, field: str) -> list[int]:
        count = len(self._incarnations)
        return self._store.state.column(member_slot_at(0) + _AT[field], layout.MEMBER_SLOT.size, count)

    def _read_on(self) -> None:
        """Read the slots that have another incarnation than at the last look."""
        count = len(self._incarnations)
        while count < layout.MEMBER_SLOTS and self._words.load(member_slot_at(count) + _AT["incarnation"]):
            count += 1  # slots are taken from the first on: behind a never used one there is none
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
        by_topic: dict[tuple[str, str], list[Seat]] = {}
        for seat in self._seats.values():
            by_topic.setdefault((seat.group, seat.topic), []).append(seat)
        self._by_topic = {
            key: tuple(sorted(seats, key=lambda seat: (seat.client_id, seat.slot))) for key, seats in by_topic.items()
        }

    def _free_slot(self) -> int:
        """Lock the first slot that is not in use; under the table mutex."""
        for only_now_found_dead in (False, True):
            if only_now_found_dead:
                self._bury_dead()
            for slot in range(layout.MEMBER_SLOTS):
                in_use = self._words.load(member_slot_at(slot) + _AT["incarnation"]) % 2 == 1
                # One of this handle that is even is about to be left by another thread.
                if in_use or self._store.lock.holds(MEMBER_BYTES + slot):
                    continue
                if self._store.lock.try_exclusive(MEMBER_BYTES + slot):
                    return slot
        raise TableFull(f"all {layout.MEMBER_SLOTS} member slots of {self._store.root} are in use")

    def _fill(self, slot: int, group: str, topic: str, client_id: str, subscription: str) -> int:
        at, words = member_slot_at(slot), self._words
        incarnation = words.load(at + _AT["incarnation"])
        texts = (("group", group), ("topic", topic), ("client_id", client_id), ("subscription", subscription))
        for name, text in texts:
            content = text.encode()
            self._store.state.put_bytes(at + _AT[name], content)
            words.store32(at + _AT[f"{name}_size"], len(content))
        words.store32(at + _AT["pid"], os.getpid())
        words.store32(at + _AT["wake_slot"], slot if self._wake_slot is None else self._wake_slot)
        words.store(at + _AT["subscription_hash"], java_hash(subscription) & 0xFFFF_FFFF)
        words.store(at + _AT["heartbeat"], boottime())
        words.store(at + _AT["incarnation"], incarnation + 1)
        return incarnation + 1

    def _read(self, slot: int, incarnation: int) -> Seat | None:
        """Return what a slot says, None when it was given to somebody else meanwhile."""
        at, words, state = member_slot_at(slot), self._words, self._store.state

        def content(name: str, limit: int) -> bytes:
            size = min(limit, words.load32(at + _AT[f"{name}_size"]))
            return bytes(memoryview(state.mapping)[at + _AT[name] : at + _AT[name] + size])

        names = [content(name, 127) for name in ("group", "topic", "client_id")]
        subscription = content("subscription", _SUBSCRIPTION_BYTES)
        pid, wake_slot = words.load32(at + _AT["pid"]), words.load32(at + _AT["wake_slot"])
        if words.load(at + _AT["incarnation"]) != incarnation:
            return None
        group, topic, client_id = (name.decode() for name in names)
        return Seat(slot, incarnation, group, topic, client_id, pid, subscription.decode(), wake_slot)


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
        topics, groups = self._store.topics, self._store.groups
        number = topics.slot(queue)
        return groups.find(self.group, number) or groups.find_or_add(self.group, number, topics.min_offset(queue))

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
        """Give a queue back, unless somebody else has it already. Others see that at their next look: :meth:`tell`."""
        with slot.locked(self._timeout_ms):
            if slot.load("epoch") == epoch:
                slot.store("owner", 0)

    def tell(self, seats: Iterable[Seat]) -> None:
        """Make the consumers of these members look at once. All members are told of a join or a leave."""
        self._store.state.wake_members({seat.wake_slot for seat in seats})

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


def default_client_id() -> str:
    """Host, pid and a random part: two containers may have the same host name and the same pid."""
    return f"{os.uname().nodename}@{os.getpid()}#{secrets.token_hex(4)}"


def check_client_id(client_id: str) -> str:
    """Return a client id that can be one. Raises InvalidName."""
    size = len(client_id.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= _CLIENT_ID_BYTES or not client_id.isprintable():
        raise InvalidName(
            f"client id {client_id[:200]!r} has {size} bytes: give 1 to {_CLIENT_ID_BYTES}, all printable"
        )
    return client_id


def _fitted(subscription: str) -> str:
    """Return a text that has room in a slot; one that is too long ends with its digest, so that it still differs."""
    content = subscription.encode()
    if len(content) <= _SUBSCRIPTION_BYTES:
        return subscription
    ending = f" ... sha256 {hashlib.sha256(content).hexdigest()}"
    return content[: _SUBSCRIPTION_BYTES - len(ending)].decode(errors="ignore") + ending
