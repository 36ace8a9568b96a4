"""Reading: the words that the processes of a store share, as an onlooker reads them, and one ``Observation`` of them.

A reading maps the runtime file, and asks the kernel who holds which byte of the lock file. It opens no store, takes no
lock, writes nothing, and imports neither the compiled kernel nor any package: ``rmq check`` is a new process each time,
and so is a probe of Kubernetes.

A word is read whole. Words are read one after the other, so a number may be a moment older than the one beside it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from typing import TYPE_CHECKING

from rmqclient.store import layout
from rmqclient.store.closing import Closing
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.observe.config import opened
from rmqclient.store.observe.observation import Call, Disk, GroupQueue, Observation, Queue, Waits
from rmqclient.store.observe.records import Records
from rmqclient.store.runtime.rows import Handling, Histogram, MemberInfo, WorkerState, WorkerStatus
from rmqclient.store.threads import standing as processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqclient.store.layout import Layout

BROKER_BYTE = 0
HOUSEKEEPER_BYTE = 2
MEMBER_BYTES = 4096
WORKER_BYTES = 8192
"""As :mod:`rmqclient.store.files.file_lock` has them; a test compares."""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
OWN_GROUP = "CID_RMQ_SYS_TRANS"
"""By which the store says how far it is with transactions."""

STANDS_AFTER_S = 5.0
"""A housekeeper that has shown nothing for so long stands still. Others take its role earlier, if there are any."""

RETRIES_READ = 10_000
"""Waits messages that are read in one look, at most, to learn for which groups they are."""

_TIMER_QUEUE = MessageQueue(TIMER_TOPIC, 0)
AGES_READ = 64
"""Queues of a group in which the ages of messages are read, at most: a read of two files each."""

_FLOCK = struct.Struct("hhqqi0q")
_NS = 1e9
_GENERATION_AT = 48
"""The bit of ``epoch`` from which on it counts the groups that had the slot; as in ``runtime/group_table.py``."""
_EPOCH = (1 << _GENERATION_AT) - 1
_ALL_DONE = (1 << 64) - 1
_COUNTERS = ("delivered", "bytes_out", "handled", "failed", "retried", "dead_lettered", "skipped", "lost")
_GROUP_WORDS = (
    "paused", "epoch", "committed_offset", "advance_to", "taken_to", "owner", "owner_incarnation", "lease_until",
    "flow_control", "held_offset", "held_attempts", "delivered", "bytes_out", "handled", "retried", "dead_lettered",
    "skipped", "lost", "failed",
)  # fmt: skip
"""As they are read. What failed is counted before it is finished, so it is read behind that."""


class Unreadable(Exception):
    """There is no store, no process has opened it since it was copied here, or another version did."""


class Reading(Closing):
    """A store as it is now; close it, or use it as a context manager. For one thread. Raises Unreadable."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._lock = -1
        try:
            descriptor = opened(os.path.join(root, "shared"))
        except OSError as error:
            raise Unreadable(f"{root}: no store of this host is open or was open there ({error.strerror})") from error
        try:
            status = os.fstat(descriptor)
            self.identity = status.st_dev, status.st_ino
            self._map = mmap.mmap(descriptor, min(status.st_size, layout.RUNTIME_SIZE), prot=mmap.PROT_READ)
            self._lock = opened(os.path.join(root, "lock"))
        except (OSError, ValueError) as error:
            raise Unreadable(f"{root} cannot be read: {error}") from error
        finally:
            os.close(descriptor)
        self._check()
        self._view = memoryview(self._map)
        self._words = self._view.cast("Q")
        self._halves = self._view.cast("I")
        self.records = Records(root, self.word("commit_log_file_bytes"), self.word("consume_queue_file_bytes"))
        self._queues: list[MessageQueue] = []
        self._names: dict[int, tuple[str, int]] = {}
        self._order: list[int] = []
        self._ordered_for: tuple[list[int], int] = [], 0
        self._members: dict[int, MemberInfo] = {}

    def close(self) -> None:
        """Let go of the files. Closing twice does nothing."""
        if self._lock >= 0:
            self.records.close()
            for view in (self._halves, self._words, self._view):
                view.release()
            self._map.close()
            os.close(self._lock)
            self._lock = -1

    def observe(self, *, wall_ms: int | None = None, ages: int = AGES_READ) -> Observation:
        """Take one look. Of each group, the ages of messages are read in at most ``ages`` of the queues with lag.

        ``wall_ms`` is the time of day, of a clock that tests move; without it, that of the host.
        """
        self.records.release()
        at_s = time.monotonic()
        queues, members = self.queues(), self.members()
        return Observation(
            at_s=at_s,
            wall_ms=time.time_ns() // 1_000_000 if wall_ms is None else wall_ms,
            queues=tuple(sorted(queues)),
            group_queues=tuple(self._group_queues(queues, members, ages)),
            members=tuple(members),
            workers=tuple(self.workers()),
            calls=tuple(self._calls(members)),
            handling=tuple(self.handling()),
            timer=self._waiting(queues),
            disk=self.disk(),
            worker_restarts=self.word("worker_restarts"),
            is_open=self.is_open,
            has_housekeeper=self.has_housekeeper,
        )

    # --- the store ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether some process has the store open. Otherwise all else is how the last one left it."""
        return self.is_locked(BROKER_BYTE)

    @property
    def has_housekeeper(self) -> bool:
        """Whether a process flushes, removes old files and delivers what waits."""
        return self.is_locked(HOUSEKEEPER_BYTE) and self.housekeeper_silent_s <= STANDS_AFTER_S

    @property
    def housekeeper_silent_s(self) -> float:
        """Seconds since the housekeeper last showed that it is at work; 0 while it has shown nothing yet."""
        beat = self.word("housekeeper_beat")
        return (_boottime() - beat) / _NS if beat else 0.0

    def failing_passes(self) -> list[str]:
        """Return what of the housekeeper's work failed when it last ran, in words."""
        failing = self.word("failing")
        return [name for bit, name in enumerate(layout.PASSES) if failing >> bit & 1]

    def standing(self) -> list[processes.Holder]:
        """Return the processes that stand still and have the store open, as far as they can be seen from here."""
        return processes.standing(os.path.join(self.root, "lock"))

    @property
    def is_present(self) -> bool:
        """Whether the words are of this boot and of this file: a copy has those of the original."""
        fields = layout.RUNTIME_HEADER.read(self._map)
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot_id = file.read(len(fields["boot_id"]))
        return (fields["device"], fields["inode"], fields["boot_id"]) == (*self.identity, boot_id)

    @property
    def is_renamed(self) -> bool:
        """Whether a process that has the store open found that the directory has another name than it knows."""
        return self.is_open and bool(self.word("restricted") & layout.RESTRICTED["replaced"])

    def users(self) -> list[processes.Holder]:
        """Return the processes that have the store open, as far as they can be seen from here."""
        return processes.in_use().get(os.path.realpath(self.root), [])

    def word(self, name: str) -> int:
        """Return a word of the header, such as ``poisoned``, ``disk_full``, ``published_to`` and ``flushed_to``."""
        return self._word(layout.RUNTIME_HEADER.at[name])

    def is_locked(self, byte: int) -> bool:
        """Tell whether a process holds a byte of the lock file."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        answer = fcntl.fcntl(self._lock, fcntl.F_OFD_GETLK, asked)
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    @property
    def is_read_only(self) -> bool:
        """Whether nobody can write to the file system of the store, as after an error of its disk."""
        if not os.statvfs(self.root).f_flag & os.ST_RDONLY:
            return False
        from pathlib import Path  # noqa: PLC0415 - a check is quick, and this is rare

        from rmqclient.store.files.file_system import mount_of  # noqa: PLC0415

        mount = mount_of(Path(self.root))
        return mount is not None and mount.is_read_only

    def disk(self) -> Disk:
        """Return how far the log is, and how full the file system is, as ``df`` shows it."""
        status = os.statvfs(self.root)
        used = status.f_blocks - status.f_bfree
        oldest, published_to = self.word("min_offset"), self.word("published_to")
        return Disk(
            min_offset=oldest,
            published_to=published_to,
            flushed_to=self.word("flushed_to"),
            indexed_to=self.word("indexed_to"),
            oldest_stored_ms=self.records.stored_at(oldest) if published_to > oldest else None,
            used_ratio=used / ((used + status.f_bavail) or 1),
            free_bytes=status.f_bavail * status.f_frsize,
            is_full=bool(self.word("disk_full")),
            poisoned=self.word("poisoned"),
        )

    def slots(self) -> dict[str, tuple[int, int]]:
        """Return how many slots of each table are in use, and how many it has, by what they are for."""
        paused = self._column(layout.GROUP_QUEUE_TABLE_AT, layout.GROUP_QUEUE_SLOT, "paused", self._group_queue_count)
        return {
            "group queues": (len(paused) - paused.count(layout.FORGOTTEN), layout.GROUP_QUEUE_SLOTS),
            "queues": (self.word("queue_count"), layout.QUEUE_SLOTS),
            "members": (len(self.members()), layout.MEMBER_SLOTS),
        }

    # --- what is in it -----------------------------------------------------------------------------

    def queues(self) -> list[Queue]:
        """Return every queue of every topic, by slot."""
        slot, count = layout.QUEUE_SLOT, min(self.word("queue_count"), layout.QUEUE_SLOTS)
        columns = [
            self._column(layout.QUEUE_TABLE_AT, slot, word, count) for word in ("min_offset", "max_offset", "bytes_in")
        ]
        for number in range(len(self._queues), count):
            begin = layout.QUEUE_TABLE_AT + number * slot.size
            self._queues.append(MessageQueue(self._text(begin, slot, "topic"), self._half(begin, slot, "queue_id")))
        return [Queue(self._queues[number], *row) for number, row in enumerate(zip(*columns, strict=True))]

    def members(self) -> list[MemberInfo]:
        """Return every member whose process lives, stopped or not, by slot."""
        now, slot, found = _boottime(), layout.MEMBER_SLOT, []
        beats = self._column(layout.MEMBER_TABLE_AT, slot, "heartbeat", layout.MEMBER_SLOTS)
        incarnations = self._column(layout.MEMBER_TABLE_AT, slot, "incarnation", layout.MEMBER_SLOTS)
        for number, incarnation in enumerate(incarnations):
            if incarnation == 0:
                break  # slots are taken from the first on
            if incarnation % 2 and self.is_locked(MEMBER_BYTES + number):
                known = self._members.get(number)
                if known is None or known.incarnation != incarnation:
                    known = self._members[number] = self._member(number, incarnation)
                found.append(known._replace(heartbeat_age_ms=(now - beats[number]) / 1e6))
        return found

    def workers(self) -> list[WorkerStatus]:
        """Return the workers of every supervisor that lives, by slot."""
        slot, now, found = layout.WORKER_SLOT, _boottime(), []
        held: dict[int, set[int]] = {}
        for number, state in enumerate(self._column(layout.WORKER_TABLE_AT, slot, "state", layout.WORKER_SLOTS)):
            if 0 < state < len(WorkerState) and self.is_locked(WORKER_BYTES + number):
                begin = layout.WORKER_TABLE_AT + number * slot.size
                fields = {**slot.read(self._view, begin), "state": state}
                supervisor = fields["supervisor_pid"]
                if supervisor not in held:
                    held[supervisor] = processes.held_by(supervisor, os.path.join(self.root, "lock"))
                is_here = WORKER_BYTES + number in held[supervisor]
                found.append(WorkerStatus.of(number, fields, self._text(begin, slot, "name"), now=now, is_here=is_here))
        return found

    def group_queues(self, ages: int = 0) -> list[GroupQueue]:
        """Return every group in every queue that it ever had, by group, topic and queue id; ``ages`` as in a look."""
        return list(self._group_queues(self.queues(), self.members(), ages))

    def calls(self) -> list[Call]:
        """Return the messages whose handlers run now in processes that live, the longest first."""
        self.queues()  # so that their names are known
        return self._calls(self.members())

    def _calls(self, members: list[MemberInfo]) -> list[Call]:
        slot, now, found = layout.RUNNING_SLOT, _boottime(), []
        alive = {member.key: member for member in members}
        count = min(self.word("running_count"), layout.RUNNING_SLOTS)
        for number, began in enumerate(self._column(layout.RUNNING_TABLE_AT, slot, "began", count)):
            if not began:
                continue
            fields = slot.read(self._view, layout.RUNNING_TABLE_AT + number * slot.size)
            member = alive.get((fields["member"], fields["incarnation"]))
            if member is None or not fields["began"] or self._is_forgotten(fields["group_queue"]):
                continue
            group, queue_slot = self._name(fields["group_queue"])
            if queue_slot < len(self._queues):
                offsets, age_s = (fields["queue_offset"], fields["last_offset"]), max(0, now - fields["began"]) / _NS
                found.append(Call(group, self._queues[queue_slot], *offsets, fields["pid"], age_s, member))
        return sorted(found, key=lambda each: -each.age_s)

    # --- groups ------------------------------------------------------------------------------------

    @property
    def _group_queue_count(self) -> int:
        return min(self.word("group_queue_count"), layout.GROUP_QUEUE_SLOTS)

    def _group_queues(self, queues: list[Queue], members: list[MemberInfo], ages: int) -> Iterator[GroupQueue]:
        """Yield what stands in each slot, but for queues that are newer than ``queues``."""
        slot, count = layout.GROUP_QUEUE_SLOT, self._group_queue_count
        columns = [self._column(layout.GROUP_QUEUE_TABLE_AT, slot, word, count) for word in _GROUP_WORDS]
        rows, now = list(zip(*columns, strict=True)), _boottime()
        alive = {member.key: member for member in members}
        aged: dict[str, int] = {}
        for number in self._in_order(columns[0], columns[1], len(queues)):
            paused, epoch, committed, advance_to, taken_to, owner, incarnation, lease_until, *rest = rows[number]
            group, queue_slot = self._names[number]
            flow_control, held_offset, held_attempts, delivered, size, handled, *finished, failed = rest
            queue, committed = queues[queue_slot], max(committed, advance_to)
            has = alive.get((owner, incarnation)) if lease_until >= now else None
            start, end = max(committed, queue.min_offset), queue.max_offset
            taken_to = max(start, taken_to) if owner else start
            ahead = min(self._acknowledged(number), end - start) if end > start else 0
            oldest_ms = next_ms = None
            if start < end and aged.get(group, 0) < ages:
                aged[group] = aged.get(group, 0) + 1
                oldest_ms = self.records.stored_ms(queue.queue, start)
                next_ms = oldest_ms if taken_to == start else self._stored_ms(queue, taken_to)
            yield GroupQueue(
                group,
                queue.queue,
                committed,
                queue.min_offset,
                end,
                has,
                epoch & _EPOCH,
                bool(paused),
                flow_control,
                held_attempts & 0xFFFF_FFFF if held_offset else 0,
                ahead,
                max(0, taken_to - start - ahead) if has else 0,
                max(0, end - taken_to if has else end - start - ahead),
                oldest_ms,
                next_ms,
                delivered,
                size,
                handled,
                failed,
                *finished,
            )

    def _in_order(self, paused: list[int], epochs: list[int], queue_count: int) -> list[int]:
        """Return the slots by group, topic and queue id. A slot is added, forgotten, or another group's by then."""
        generations = [
            -1 if state == layout.FORGOTTEN else epoch >> _GENERATION_AT
            for state, epoch in zip(paused, epochs, strict=True)
        ]
        if (generations, queue_count) != self._ordered_for:
            before, _ = self._ordered_for
            for number, generation in enumerate(generations):
                if generation >= 0 and (number >= len(before) or before[number] != generation):
                    self._names[number] = self._name(number)
            known = [
                (group, self._queues[queue_slot], number)
                for number, (group, queue_slot) in self._names.items()
                if generations[number] >= 0 and group != OWN_GROUP and queue_slot < queue_count
            ]
            self._order = [number for _, _, number in sorted(known)]
            self._ordered_for = generations, queue_count
        return self._order

    def _name(self, number: int) -> tuple[str, int]:
        """Return the group of a slot, and the slot of its queue."""
        slot, begin = layout.GROUP_QUEUE_SLOT, layout.GROUP_QUEUE_TABLE_AT + number * layout.GROUP_QUEUE_SLOT.size
        return self._text(begin, slot, "group"), self._half(begin, slot, "queue_slot")

    def _is_forgotten(self, number: int) -> bool:
        at = layout.GROUP_QUEUE_TABLE_AT + number * layout.GROUP_QUEUE_SLOT.size + layout.GROUP_QUEUE_SLOT.at["paused"]
        return number >= self._group_queue_count or self._word(at) == layout.FORGOTTEN

    def _acknowledged(self, number: int) -> int:
        """Return how many messages are finished out of order."""
        slot = layout.GROUP_QUEUE_SLOT
        begin = layout.GROUP_QUEUE_TABLE_AT + number * slot.size + slot.at["acknowledged"]
        return int.from_bytes(self._view[begin : begin + layout.ACK_WINDOW // 8], "little").bit_count()

    def _stored_ms(self, queue: Queue, queue_offset: int) -> int | None:
        return self.records.stored_ms(queue.queue, queue_offset) if queue_offset < queue.max_offset else None

    # --- what waits --------------------------------------------------------------------------------

    def _waiting(self, queues: list[Queue]) -> Waits:
        levels = {
            each.queue: (max(self._next_of_level(each.queue.queue_id), each.min_offset), each.max_offset)
            for each in queues
            if each.queue.topic == SCHEDULE_TOPIC and each.queue.queue_id < layout.SCHEDULE_SLOTS
        }
        in_timer = next((each.max_offset for each in queues if each.queue == _TIMER_QUEUE), 0)
        undone = self._undone(in_timer)
        count = sum(64 - word.bit_count() for _, word in undone) + sum(max(0, end - at) for at, end in levels.values())
        due_ms = [self.word("timer_next_due")] if self.word("timer_next_due") else []
        for queue, (first, end) in levels.items():
            due_ms += [entry[2] for entry in self.records.entries(queue, first, min(first + 1, end))]
        step = -(-count // RETRIES_READ) or 1
        entries = list(self._entries_of(undone[::step]))
        for queue, (first, end) in levels.items():
            entries += self.records.entries(queue, first, end, step)
        retries: dict[str, int] = {}
        for group in self.records.retry_groups(entries):
            if group:
                retries[group] = retries.get(group, 0) + step
        return Waits(
            waiting=count,
            enqueued=in_timer + sum(end for _, end in levels.values()),
            next_due_ms=min(due_ms, default=None),
            retries=retries,
        )

    def _next_of_level(self, queue_id: int) -> int:
        return self._word(layout.SCHEDULE_TABLE_AT + queue_id * layout.SCHEDULE_SLOT.size)

    def _undone(self, end: int) -> list[tuple[int, int]]:
        """Return where messages of the timer wait: queue offsets, and bits of which of the next 64 do not."""
        done_to = self._word(layout.TIMER_AT + layout.TIMER_HEADER.at["done_to"])
        if end <= done_to:
            return []
        bits, ring = (layout.TIMER_AT + layout.TIMER_HEADER.size) // 8, layout.TIMER_BITS // 64
        first, count = done_to // 64 % ring, min(-(-(end - done_to) // 64), ring)
        words = self._words[bits + first : bits + min(first + count, ring)].tolist()
        words += self._words[bits : bits + count - len(words)].tolist()
        if end % 64:
            words[-1] |= _ALL_DONE << end % 64 & _ALL_DONE
        return [(done_to + 64 * number, word) for number, word in enumerate(words) if word != _ALL_DONE]

    def _entries_of(self, undone: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
        for begin, word in undone:
            last = begin + (~word & _ALL_DONE).bit_length()
            entries = self.records.entries(_TIMER_QUEUE, begin, last)
            if len(entries) == last - begin:  # else a file was removed meanwhile
                yield from (entry for bit, entry in enumerate(entries) if not word >> bit & 1)

    # --- inside ------------------------------------------------------------------------------------

    def _check(self) -> None:
        header = layout.RUNTIME_HEADER
        fields = header.read(self._map) if len(self._map) >= header.size else {}
        if fields.get("magic") != layout.RUNTIME_MAGIC or len(self._map) < layout.RUNTIME_SIZE:
            raise Unreadable(f"{self.root}/shared is not whole: a process that opens the store builds it again")
        if fields["fingerprint"] != layout.RUNTIME_FINGERPRINT:
            raise Unreadable(f"{self.root} was opened by another version of rmqclient: use that version")

    def _member(self, number: int, incarnation: int) -> MemberInfo:
        slot, begin = layout.MEMBER_SLOT, layout.MEMBER_TABLE_AT + number * layout.MEMBER_SLOT.size
        group, topic, client_id, subscription = (
            self._text(begin, slot, name) for name in ("group", "topic", "client_id", "subscription")
        )
        pid, wake_slot = self._half(begin, slot, "pid"), self._half(begin, slot, "wake_slot")
        return MemberInfo(number, incarnation, group, topic, client_id, pid, subscription, wake_slot)

    def handling(self) -> Iterator[Handling]:
        """Yield how long the messages of each handler took."""
        slot = layout.HANDLING_SLOT
        for number in range(min(self.word("handling_count"), layout.HANDLING_SLOTS)):
            begin = layout.HANDLING_TABLE_AT + number * slot.size
            group, topic = self._text(begin, slot, "group"), self._text(begin, slot, "topic")
            times = [self._histogram(begin + slot.at[f"{name}_time"]) for name in ("handled", "failed", "waited")]
            yield Handling(group, topic, *times)

    def _histogram(self, at: int) -> Histogram:
        *counts, nanoseconds = self._words[at // 8 : at // 8 + layout.HISTOGRAM_WORDS].tolist()
        return Histogram(tuple(counts), nanoseconds / _NS)

    def _column(self, at: int, slot: Layout, word: str, count: int) -> list[int]:
        """Return one word of each of the first ``count`` slots of a table."""
        begin, step = (at + slot.at[word]) // 8, slot.size // 8
        return self._words[begin : begin + count * step : step].tolist()

    def _word(self, at: int) -> int:
        return self._words[at // 8]

    def _half(self, begin: int, slot: Layout, name: str) -> int:
        return self._halves[(begin + slot.at[name]) // 4]

    def _text(self, begin: int, slot: Layout, name: str) -> str:
        at = begin + slot.at[name]
        return bytes(self._view[at : at + self._half(begin, slot, f"{name}_size")]).decode("utf-8", "replace")


def left_behind(root: str) -> list[processes.Holder]:
    """Return the processes that have a store open that was removed from ``root``, as far as they can be seen here."""
    return processes.left_behind(os.path.join(root, "lock"))


def renamed() -> dict[str, list[processes.Holder]]:
    """Return the directories that were renamed while processes had their stores open, which still have them open."""
    return {root: users for root, users in processes.in_use().items() if _is_renamed(root)}


def _is_renamed(root: str) -> bool:
    try:
        with Reading(root) as reading:
            return reading.is_renamed
    except Unreadable:
        return False


def _boottime() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
