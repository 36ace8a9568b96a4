"""Group-queue table: per (group, message queue) the owner, the epoch, the committed offset and what is acknowledged.

The slots live in the runtime file; ``config/consumerOffset.json`` keeps the committed offsets for good. Invariants:

8. ``committed_offset <= advance_to``, and they are equal unless an owner died while moving it.
9. No bit of ``acknowledged`` is set for a message below ``committed_offset``.
17. ``committed_offset`` and the bits set are together ``counted_from`` and the words of ``layout.COUNTED``, unless an
    owner died between marking messages and counting them: each message that a group has finished is counted once.

When a group is removed its slots are *forgotten*, and the next groups get them. Processes know a slot by its number, so
each use of a slot is a *generation*, which the upper bits of ``epoch`` count: a handle of an earlier one is refused,
and an acknowledgement of it has another epoch. A slot stays forgotten until everything in it is that of the new group.

A seek may move a group back, which breaks them for a while. The seek first writes its target to ``seek_to``. While
``seek_to`` is not 0, no invariant holds; the next process that takes the queue, seeks, or opens the store finishes
the seek.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

from rmqclient.store import layout
from rmqclient.store.clock import boottime
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreBusy, TableFull
from rmqclient.store.kernel._kernel import RobustMutex, commit_offset, scope, settle_counters
from rmqclient.store.native_threads import threading
from rmqclient.store.runtime.client_id import digest_of
from rmqclient.store.runtime.shared_state import SharedState, group_queue_slot_at, queue_slot_at, running_slot_at

_AT = layout.GROUP_QUEUE_SLOT.at
_SEEK_UNFINISHED = 2  # commit_offset
_WORD = (1 << 64) - 1
_MOVED = len(layout.COUNTED)
"""Of ``counting``: the difference moves ``counted_from``."""
_MOST_FENCE_NS = 60_000_000_000
_USUAL_FENCE_NS = 30_000_000_000
"""Of one that a server puts: so long before its end this process begins to run through it."""
_MEMBERSHIP_WORD = layout.RUNTIME_HEADER.at["membership_word"]
_GENERATION_AT = 48
"""The bit of ``epoch`` from which on it counts the groups that had the slot; a grant adds 1 below."""
_GENERATIONS = 1 << 15

COUNTERS = ("delivered", "bytes_out", "failed", *layout.COUNTED)
"""Words of a slot that only grow."""

_OF_A_GROUP = (
    *COUNTERS, "orphaned", "counting", "owner", "owner_incarnation", "lease_until", "taken_to", "flow_control",
    "held_offset", "held_attempts", "seek_to", "fenced_until", "fenced_for",
)  # fmt: skip
"""Words of a slot that are 0 when a group begins; its place in the queue and ``paused`` are set after them."""


class GroupQueueSlot:
    """One slot, for the rare steps that are written in Python. For display, words are read without the mutex.

    An object is for one generation, in which the group and the queue of the slot never change.
    """

    def __init__(self, state: SharedState, number: int) -> None:
        self.number = number
        self.at = group_queue_slot_at(number)
        self._state = state
        self._words = state.words
        self.generation = self.load("epoch") >> _GENERATION_AT
        """How many groups had the slot before."""
        self.mutex = RobustMutex(state.mapping, self.at + _AT["mutex"])

    @cached_property
    def group(self) -> str:
        """Name of the consumer group."""
        return self._state.text(self.at + _AT["group"], self._words.load32(self.at + _AT["group_size"]))

    @cached_property
    def queue_slot(self) -> int:
        """Slot of the message queue in the queue table."""
        return self._words.load32(self.at + _AT["queue_slot"])

    def load(self, field: str) -> int:
        """Read one word."""
        return self._words.load(self.at + _AT[field])

    def store(self, field: str, value: int) -> None:
        """Write one word. The caller holds the mutex."""
        self._words.store(self.at + _AT[field], value)

    def add(self, counter: str, count: int) -> None:
        """Add to a counter that no mutex guards: ``delivered``, ``bytes_out`` or ``failed``."""
        self._words.add(self.at + _AT[counter], count)

    def count_dead_letter(self, timeout_ms: int) -> None:
        """Count a dead letter of a client, which commits the message later like the others. Raises StoreBusy.

        So it is counted twice: as dead lettered now, and as handled then.
        """
        with self.locked(timeout_ms):
            self.store("counting", _MOVED)
            self.store("dead_lettered", self.load("dead_lettered") + 1)
            self.store("counted_from", self.load("counted_from") - 1 & _WORD)
            self.store("counting", 0)

    @scope
    def locked(self, timeout_ms: int) -> Iterator[None]:
        """Hold the mutex of this slot; what a dead owner left is settled.

        Raises StoreBusy, also when the slot belongs to another group by now.
        """
        with self._state.locked(self.mutex, timeout_ms):
            if not self._is_of_this_generation:
                raise StoreBusy(f"group {self.group!r} was removed at this moment: try again")
            settle_counters(self._state.mapping, self.at)
            yield

    @property
    def committed_offset(self) -> int:
        """Every message below it is finished."""
        return self.load("committed_offset")

    @property
    def finished_to(self) -> int:
        """As ``committed_offset``, when the next owner has finished the move that a death cut off; for display."""
        return max(self.load("committed_offset"), self.load("advance_to"))

    @property
    def is_forgotten(self) -> bool:
        """Whether the group was removed; nobody finds the slot any more, and another group may have it."""
        return self.load("paused") == layout.FORGOTTEN or not self._is_of_this_generation

    @property
    def _is_of_this_generation(self) -> bool:
        return self.load("epoch") >> _GENERATION_AT == self.generation

    def acknowledged_bits(self) -> int:
        """Return the bitmap as one number, bit ``queue_offset % 2048``."""
        at = self.at + _AT["acknowledged"]
        return int.from_bytes(memoryview(self._state.mapping)[at : at + layout.ACK_WINDOW // 8], "little")

    def unfinished(self, first: int, last: int) -> list[int]:
        """Return which messages from ``first`` to ``last``, both included, are not acknowledged."""
        finished_to, bits = self.load("advance_to"), self.acknowledged_bits()
        offsets = range(max(first, finished_to), min(last + 1, finished_to + layout.ACK_WINDOW))
        return [offset for offset in offsets if not bits >> offset % layout.ACK_WINDOW & 1]

    def counted_to(self) -> int:
        """Return how far the messages that are counted reach: invariant 17."""
        return self.load("counted_from") + sum(self.load(name) for name in layout.COUNTED) & _WORD

    def counters(self) -> dict[str, int]:
        """Return the words that count what became of messages, by name. What is marked and not counted is added.

        That is for a slot that nobody changes, after a death.
        """
        counted = {name: self.load(name) for name in COUNTERS}
        finished = self.load("advance_to") + self._finished_ahead()
        missing = finished - self.counted_to()
        why = self.load("counting")
        if why < len(layout.COUNTED) and not self.load("seek_to"):
            counted[layout.COUNTED[why]] = max(0, counted[layout.COUNTED[why]] + missing) & _WORD
        return counted

    def restore(
        self,
        committed_offset: int,
        bits: int,
        epoch: int,
        held: tuple[int, int] = (0, 0),
        *,
        fence: tuple[int, int] = (0, 0),
        paused: int = 0,
        counters: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Fill a slot, from what was kept of an earlier runtime file; its owner is dead, if it has one."""
        self.store("committed_offset", committed_offset)
        self.store("advance_to", committed_offset)
        self.store("epoch", self.generation << _GENERATION_AT | epoch & (1 << _GENERATION_AT) - 1)
        self.store("held_offset", held[0])
        self.store("held_attempts", held[1])
        self.store("paused", paused)
        if fence[0]:
            self.store("owner", layout.NOBODY)
            self.store("fenced_until", fence[0])
            self.store("fenced_for", fence[1])
        self._put_bits(bits)
        for name, value in counters.items():
            self.store(name, value)
        self._count_from(committed_offset + bits.bit_count())

    def begin_generation(self) -> None:
        """Make a forgotten slot as one that no group had. The caller holds the table mutex and that of the slot.

        A grant of before is refused from here on, and a death leaves the slot forgotten.
        """
        self.generation = (self.generation + 1) % _GENERATIONS
        self.store("epoch", self.generation << _GENERATION_AT)
        for name in _OF_A_GROUP:
            self.store(name, 0)

    def identify(self, group: str, queue_slot: int) -> None:
        """Write whose slot it is, while nobody can find it."""
        name = group.encode()
        self._state.put_bytes(self.at + _AT["group"], name.ljust(128, b"\0"))
        self._words.store32(self.at + _AT["group_size"], len(name))
        self._words.store32(self.at + _AT["queue_slot"], queue_slot)
        self.__dict__.pop("group", None)
        self.__dict__.pop("queue_slot", None)

    def seek(self, queue_offset: int) -> None:
        """Move the group to an offset, forwards or back. The caller holds the mutex. Afterwards nobody owns the queue.

        First the owner loses the queue and the epoch rises, so that no message in flight is acknowledged into the new
        position. A death before ``seek_to`` is written has moved nothing; after it, :meth:`finish_seek` completes the
        seek.
        """
        self.store("owner", 0)
        self.store("epoch", self.load("epoch") + 1)
        reach(CrashPoint.SEEK_FENCED)
        self.store("seek_to", queue_offset + 1)
        reach(CrashPoint.SEEK_ANNOUNCED)
        self.finish_seek()

    def commit(self, queue_offset: int, epoch: int, timeout_ms: int) -> bool:
        """Move the group to where a client says that it stands, forwards or back, without ending the ownership.

        Returns False and changes nothing when ``epoch`` is old. Back, the group forgets what it has finished ahead.
        Forwards, it also passes the messages that other members have finished from there on. Raises OffsetOutOfRange
        for an offset above the end of the queue, StoreBusy.
        """
        while True:
            outcome = commit_offset(
                self._state.mapping, self.at, queue_slot_at(self.queue_slot), epoch, queue_offset, timeout_ms
            )
            if outcome < _SEEK_UNFINISHED:
                return outcome == 1
            with self.locked(timeout_ms):
                self.finish_seek()

    def fence(self, client_id: str, epoch: int, fence_ms: int, timeout_ms: int) -> bool:
        """Let nobody else have the queue for so long, even when the owner's process dies. False when the epoch is old.

        This is for a server that holds the lease of an ordered queue for a client, which may run a message when the
        server has died. Only a member with this client id may go on at once; the fence stays around the queue then. A
        release and a seek end it. At most 60 s. Raises StoreBusy.
        """
        with self.locked(timeout_ms):
            if self.load("epoch") != epoch:
                return False
            self.store("fenced_for", digest_of(client_id))
            self.store("fenced_until", boottime() + min(fence_ms * 1_000_000, _MOST_FENCE_NS))
            return True

    def end_fence(self, client_id: str, timeout_ms: int) -> None:
        """Let others have the queue that this client has given up; another one's stays fenced. Raises StoreBusy."""
        with self.locked(timeout_ms):
            if self.is_fenced_for(client_id):
                self.store("fenced_until", 0)

    @property
    def fence_left_ns(self) -> int:
        """For how long the queue is kept for one client, although its owner may be dead; 0 when it is not."""
        until = self.load("fenced_until")
        if not self.load("owner") or until - boottime() > _MOST_FENCE_NS:
            return 0
        return max(0, _USUAL_FENCE_NS - self._state.awake.ran_since(until - _USUAL_FENCE_NS))

    @property
    def standing_fence(self) -> tuple[int, int]:
        """``fenced_until`` and ``fenced_for`` of a fence that is not over; zeros when there is none."""
        return (self.load("fenced_until"), self.load("fenced_for")) if self.fence_left_ns else (0, 0)

    def is_fenced_for(self, client_id: str) -> bool:
        """Tell whether the queue is kept for this client."""
        return self.fence_left_ns > 0 and self.load("fenced_for") == digest_of(client_id)

    def is_fenced_from(self, client_id: str) -> bool:
        """Tell whether a member may not take the queue yet, although its owner may be dead."""
        return self.fence_left_ns > 0 and self.load("fenced_for") != digest_of(client_id)

    def finish_seek(self) -> None:
        """Complete a seek whose process died, if there is one. The caller holds the mutex. Can be repeated."""
        seek_to = self.load("seek_to")
        if seek_to == 0:
            return
        self._put_bits(0)
        reach(CrashPoint.SEEK_CLEARED)
        self.store("held_offset", 0)
        self.store("held_attempts", 0)
        self.store("advance_to", seek_to - 1)
        reach(CrashPoint.SEEK_HALF_MOVED)
        self.store("committed_offset", seek_to - 1)
        self._count_from(seek_to - 1)
        self.store("orphaned", 0)
        self.store("seek_to", 0)

    def _count_from(self, finished: int) -> None:
        """Let the messages that a group has finished be counted from here on: it was moved to them."""
        counted = sum(self.load(name) for name in layout.COUNTED)
        self.store("counting", 0)
        self.store("counted_from", finished - counted & _WORD)

    def _finished_ahead(self) -> int:
        """Return how many messages above ``advance_to`` are finished."""
        committed, advance_to, bits = self.load("committed_offset"), self.load("advance_to"), self.acknowledged_bits()
        for offset in range(max(committed, advance_to - layout.ACK_WINDOW), advance_to):
            bits &= ~(1 << offset % layout.ACK_WINDOW)
        return bits.bit_count()

    def _put_bits(self, bits: int) -> None:
        self._state.put_bytes(self.at + _AT["acknowledged"], bits.to_bytes(layout.ACK_WINDOW // 8, "little"))


class GroupTable:
    """The group-queue table as one process knows it. It reads on as other processes add slots."""

    def __init__(self, state: SharedState, lock_timeout_ms: int) -> None:
        self._state = state
        self._lock_timeout_ms = lock_timeout_ms
        self._slots: list[GroupQueueSlot | None] = []
        self._by_key: dict[tuple[str, int], GroupQueueSlot] = {}
        self._reading = threading.Lock()
        self._read_at: int | None = None
        self.changes = 0
        """+1 whenever this process has learnt of other slots."""

    def __iter__(self) -> Iterator[GroupQueueSlot]:
        self._read_on()
        return iter([slot for slot in self._slots if slot is not None and not slot.is_forgotten])

    def find(self, group: str, queue_slot: int) -> GroupQueueSlot | None:
        """Return the slot of a group for a queue, None when the group never had the queue, or was forgotten."""
        found = self._by_key.get((group, queue_slot))
        if found is None or found.is_forgotten:
            self._read_on()
            found = self._by_key.get((group, queue_slot))
        return None if found is None or found.is_forgotten else found

    def find_or_add(self, group: str, queue_slot: int, committed_offset: int) -> GroupQueueSlot:
        """Return the slot; make it with ``committed_offset`` when the group never had the queue. Raises TableFull."""
        found = self.find(group, queue_slot)
        if found is not None:
            return found
        with self._state.locked(self._state.table_mutex, self._lock_timeout_ms):
            found = self._found(group, queue_slot)
            if found is None:
                self._add(group, {queue_slot: committed_offset})
                found = self._by_key[group, queue_slot]
            return found

    def column(self, field: str) -> list[int]:
        """Return one word of every slot in use, by slot number, as :meth:`SharedState.column`."""
        at = group_queue_slot_at(0) + _AT[field]
        return self._state.column(at, layout.GROUP_QUEUE_SLOT.size, self._state.group_queue_count)

    def begin(self, group: str, committed_offsets: Mapping[int, int]) -> bool:
        """Make the slots of a new group for all these queues, by queue slot. A death leaves all of them or not one.

        Does nothing and returns False when the group has a slot for one of the queues. Raises TableFull.
        """
        with self._state.locked(self._state.table_mutex, self._lock_timeout_ms):
            if any(self._found(group, queue_slot) for queue_slot in committed_offsets):
                return False
            self._add(group, committed_offsets)
            return True

    def forget(self, groups: Collection[str]) -> None:
        """Let nobody find the slots of these groups any more. The caller holds the table mutex, so that nobody joins.

        Groups that begin later get the slots. A death on the way leaves the group in some queues: forgetting it again
        goes on. Raises StoreBusy.
        """
        for slot in self:
            if slot.group in groups:
                with slot.locked(self._lock_timeout_ms):
                    slot.store("owner", 0)
                    slot.store("epoch", slot.load("epoch") + 1)
                    slot.store("paused", layout.FORGOTTEN)

    def groups(self) -> list[str]:
        """Return the names of all groups, sorted."""
        return sorted({slot.group for slot in self})

    def _add(self, group: str, committed_offsets: Mapping[int, int]) -> None:
        """Give a group slots for these queues, all or none. The caller holds the table mutex.

        New slots are counted together. Forgotten ones are given when the table has no others, and are found one by one:
        after a death in between, the group begins in the other queues at their first message.
        """
        count, wanted = self._state.group_queue_count, len(committed_offsets)
        new = min(wanted, layout.GROUP_QUEUE_SLOTS - count)
        forgotten = self._forgotten(wanted - new, group)
        queues = iter(committed_offsets.items())
        for number in range(count, count + new):
            _fill(self._state, number, group, *next(queues))
            reach(CrashPoint.GROUP_SLOT_FILLED)
        given = [_reused(self._state, self._lock_timeout_ms, number, group, *next(queues)) for number in forgotten]
        self._state.group_queue_count = count + new
        for slot in given:
            slot.store("paused", 0)
        if given:
            self._state.signal_membership()
            self._read_again()
        self._read_on()

    def _found(self, group: str, queue_slot: int) -> GroupQueueSlot | None:
        """Return what :meth:`find` does. The caller holds the table mutex: who gave a slot may have died with it."""
        found = self.find(group, queue_slot)
        if found is None and self._is_reused:
            self._read_again()
            found = self.find(group, queue_slot)
        return found

    def _forgotten(self, count: int, group: str) -> list[int]:
        """Return so many slots of groups that were removed. Raises TableFull."""
        if count <= 0:
            return []
        found = [number for number, paused in enumerate(self.column("paused")) if paused == layout.FORGOTTEN]
        if len(found) < count:
            raise TableFull(
                f"group {group!r}: all {layout.GROUP_QUEUE_SLOTS} (group, queue) pairs are in use; "
                "`rmq group rm` frees those of a group that nobody needs"
            )
        return found[:count]

    def _read_on(self) -> None:
        """Read the slots that are new; once the table was full, also those that other groups may have got."""
        word = self._state.words.load32(_MEMBERSHIP_WORD)
        if self._is_reused and word != self._read_at:
            self._read_again()
            self._read_at = word
        elif len(self._slots) < self._state.group_queue_count:
            with self._reading:
                for number in range(len(self._slots), self._state.group_queue_count):
                    self._slots.append(self._learnt(number))

    @property
    def _is_reused(self) -> bool:
        return self._state.group_queue_count >= layout.GROUP_QUEUE_SLOTS

    def _read_again(self) -> None:
        with self._reading:
            known = len(self._slots)
            for number, epoch in enumerate(self.column("epoch")):
                former = self._slots[number] if number < known else None
                if former is None or former.generation != epoch >> _GENERATION_AT:
                    self._slots[number : number + 1] = [self._learnt(number)]

    def _learnt(self, number: int) -> GroupQueueSlot | None:
        """Let a slot be found; None for one that is forgotten, or becomes that of another group at this moment."""
        slot = GroupQueueSlot(self._state, number)
        if slot.is_forgotten:
            return None
        key = slot.group, slot.queue_slot
        if slot.is_forgotten:
            return None
        self._by_key[key] = slot
        self.changes += 1
        return slot


def _reused(
    state: SharedState, lock_timeout_ms: int, number: int, group: str, queue_slot: int, committed_offset: int
) -> GroupQueueSlot:
    """Return a forgotten slot that is that of the group, but for the word that says so."""
    slot = GroupQueueSlot(state, number)
    with state.locked(slot.mutex, lock_timeout_ms):
        slot.begin_generation()
        slot.identify(group, queue_slot)
        slot.restore(committed_offset, 0, 0, paused=layout.FORGOTTEN)
    _forget_running(state, number)
    reach(CrashPoint.GROUP_SLOT_FILLED)
    return slot


def _forget_running(state: SharedState, number: int) -> None:
    """Let what ran in handlers of the former group mean nothing for the messages of the next one."""
    at, words = layout.RUNNING_SLOT.at, state.words
    for running in range(state.running_count):
        if words.load32(running_slot_at(running) + at["group_queue"]) == number:
            words.store(running_slot_at(running) + at["attempt"], 0)
            words.store(running_slot_at(running) + at["grant"], 0)


def _fill(state: SharedState, number: int, group: str, queue_slot: int, committed_offset: int) -> None:
    slot = GroupQueueSlot(state, number)
    slot.identify(group, queue_slot)
    slot.mutex.initialise()
    slot.restore(committed_offset, 0, 0)
