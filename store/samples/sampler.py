"""Sampler: reads samples of a store, again and again, without opening it.

It maps the runtime file for reading, and follows when the store is closed and opened anew. It takes no lock, and
changes no byte. Of the log it reads the store time of one record for each queue with lag, once for each place. Files
that retention has removed are let go of within a minute, so that a sampler does not keep their room on the disk.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rmqclient.store import clock, layout
from rmqclient.store.clock import boottime
from rmqclient.store.errors import QueueError, StoreUnusable
from rmqclient.store.files.file_lock import BROKER_BYTE, HOUSEKEEPER_BYTE, LockFile
from rmqclient.store.inspect.view import LocalView, entry_at
from rmqclient.store.kernel._kernel import SCHEDULE_TOPIC
from rmqclient.store.log.consume_queue import Entry
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime import handling_table, shared_state
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.members import MemberInfo, MemberTable
from rmqclient.store.runtime.shared_state import SharedState, queue_slot_at, running_slot_at, schedule_slot_at
from rmqclient.store.runtime.worker_table import WorkerTable
from rmqclient.store.samples.sample import (
    CallSample,
    DiskSample,
    GroupQueueSample,
    QueueSample,
    Sample,
    TimerSample,
)
from rmqclient.store.settings.topic_table import TopicTable
from rmqclient.store.waiting.timer_bits import QUEUE as TIMER_QUEUE
from rmqclient.store.waiting.transaction import GROUP as TRANSACTION_GROUP

_RECORD = layout.RECORD_HEADER.at
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_SHIFT: Final = 12
"""Bytes by which an IPv6 address of the producer moves the store time."""
_RELEASE_S: Final = 60.0
_SILENT_NS: Final = 5_000_000_000
"""A housekeeper that has shown nothing for so long stands still; as :mod:`rmqclient.local.glance` has it."""
HISTOGRAM_BOUNDS_S: Final = tuple(bound / 1000 for bound in layout.HANDLING_BOUNDS_MS)
"""Upper bounds of the classes of every histogram."""

_GROUP_WORDS: Final = (
    "committed_offset",
    "advance_to",
    "taken_to",
    "owner",
    "owner_incarnation",
    "lease_until",
    "epoch",
    "paused",
    "flow_control",
    "held_offset",
    "held_attempts",
    "delivered",
    "bytes_out",
    "handled",
    "retried",
    "dead_lettered",
    "skipped",
    "lost",
    "failed",
)
"""As they are read. What failed is counted before it is finished, so it is read behind that."""


class Sampler:
    """Reads samples of the store in the directory ``root``; a context manager, for one thread.

    :meth:`sample` raises StoreUnusable when the directory holds no store, or nobody has opened the store since the
    machine started; ConfigMismatch for a store of another version.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._shared: _Shared | None = None

    def sample(self) -> Sample:
        """Take one look."""
        return self._attached().sample()

    def close(self) -> None:
        """Let go of the store. Closing twice does nothing."""
        if self._shared is not None:
            self._shared.lock.close()
            self._shared = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _attached(self) -> _Shared:
        """Return the runtime file as it is now; the last process that opened the store may have built a new one."""
        path = self.root / shared_state.FILE_NAME
        identity = _identity(path)
        if self._shared is None or self._shared.identity != identity:
            self.close()
            view = LocalView(self.root)  # says best what is wrong with the directory
            state = shared_state.leftover(self.root, writable=False)
            if state is None or identity is None:
                raise StoreUnusable(
                    f"{path}: no process of this version has opened the store since the machine started; start one"
                )
            self._shared = _Shared(self.root, state, view, identity)
        return self._shared


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class _Shared:
    """One runtime file, and the tables in it."""

    def __init__(self, root: Path, state: SharedState, view: LocalView, identity: tuple[int, int]) -> None:
        self.identity = identity
        self._root = root
        self._state = state
        self.lock = LockFile(root / "lock")
        self._topics = TopicTable(root, state, self.lock, 0)
        self._groups = GroupTable(state, 0)
        self._members = MemberTable(root, state, self.lock, self._topics, self._groups, 0)
        self._workers = WorkerTable(root, state, self.lock, 0)
        self._times = StoreTimes(view)
        self._ordered: list[tuple[GroupQueueSlot, str, int]] = []
        self._ordered_for = 0, 0, 0

    def sample(self) -> Sample:
        self._times.release()
        state, at_s = self._state, time.monotonic()
        queues = self._queues()
        members = tuple(self._members.all())
        return Sample(
            at_s=at_s,
            wall_ms=clock.wall_ms(),
            queues=tuple(sorted(queues)),
            group_queues=tuple(self._group_queues(queues, members)),
            members=members,
            workers=tuple(self._workers.all()),
            calls=tuple(sorted(self._calls(queues, members), key=lambda each: -each.age_s)),
            handling=tuple(handling_table.handlings(state)),
            timer=self._timer(queues),
            disk=self._disk(),
            worker_restarts=state.worker_restarts,
            is_open=self.lock.holder(BROKER_BYTE) is not None,
            has_housekeeper=self._has_housekeeper(),
        )

    def _has_housekeeper(self) -> bool:
        silent_ns = boottime() - (self._state.housekeeper_beat or boottime())
        return silent_ns < _SILENT_NS and self.lock.holder(HOUSEKEEPER_BYTE) is not None

    def _queues(self) -> list[QueueSample]:
        """Return the queues by slot."""
        count = len(self._topics)
        words = ("min_offset", "max_offset", "bytes_in")
        at, size = queue_slot_at(0), layout.QUEUE_SLOT.size
        columns = [self._state.column(at + layout.QUEUE_SLOT.at[word], size, count) for word in words]
        return [QueueSample(self._topics.queue(slot), *row) for slot, row in enumerate(zip(*columns, strict=True))]

    def _group_queues(self, queues: list[QueueSample], members: tuple[MemberInfo, ...]) -> Iterator[GroupQueueSample]:
        alive, now = {member.key: member for member in members}, boottime()
        rows = list(zip(*map(self._groups.column, _GROUP_WORDS), strict=False))
        for slot, group, queue_slot in self._in_order(len(queues)):
            if slot.number >= len(rows):
                continue  # made after the columns were read
            committed, advance_to, taken_to, number, incarnation, lease_until, *rest = rows[slot.number]
            queue = queues[queue_slot]
            owner = alive.get((number, incarnation)) if lease_until >= now else None
            committed = max(committed, advance_to)
            start, end = max(committed, queue.min_offset), queue.max_offset
            taken_to = max(start, taken_to) if number else start
            ahead = min(slot.acknowledged_bits().bit_count(), end - start) if end > start else 0
            oldest_ms = self._times.of(queue.queue, start, end)
            epoch, paused, flow_control, held_offset, held_attempts, delivered, size, handled, *finished, failed = rest
            yield GroupQueueSample(
                group,
                queue.queue,
                committed,
                end,
                max(0, end - start),
                ahead,
                max(0, taken_to - start - ahead) if owner else 0,
                max(0, end - taken_to if owner else end - start - ahead),
                oldest_ms,
                oldest_ms if taken_to == start else self._times.of(queue.queue, taken_to, end),
                owner,
                epoch,
                bool(paused),
                flow_control,
                held_attempts & 0xFFFF_FFFF if held_offset else 0,
                delivered,
                size,
                handled,
                failed,
                *finished,
            )

    def _in_order(self, queue_count: int) -> list[tuple[GroupQueueSlot, str, int]]:
        """Return slots, groups and slots of queues, by group, topic and queue id."""
        slots = list(self._groups)
        changes = self._groups.changes, len(slots), queue_count  # slots are added, forgotten, or another group's
        if changes != self._ordered_for:
            known = [(slot, slot.group, slot.queue_slot) for slot in slots]
            known = [each for each in known if each[2] < queue_count and each[1] != TRANSACTION_GROUP]
            self._ordered = sorted(known, key=lambda each: (each[1], self._topics.queue(each[2])))
            self._ordered_for = changes
        return self._ordered

    def _calls(self, queues: list[QueueSample], members: tuple[MemberInfo, ...]) -> Iterator[CallSample]:
        state, now = self._state, boottime()
        alive = {member.key: member for member in members}
        column: Callable[[str], list[int]] = lambda word: state.column(  # noqa: E731
            running_slot_at(0) + layout.RUNNING_SLOT.at[word], layout.RUNNING_SLOT.size, state.running_count
        )
        for number, began in enumerate(column("began")):
            if not began:
                continue
            fields = layout.RUNNING_SLOT.read(state.mapping, running_slot_at(number))
            member = alive.get((fields["member"], fields["incarnation"]))
            slot = self._groups.numbered(fields["group_queue"])
            if member is None or slot is None or not fields["began"]:
                continue
            if slot.queue_slot < len(queues):
                age_s = max(0, now - fields["began"]) / 1e9
                place = slot.group, queues[slot.queue_slot].queue, fields["queue_offset"], fields["last_offset"]
                yield CallSample(*place, fields["pid"], age_s, member)

    def _timer(self, queues: list[QueueSample]) -> TimerSample:
        state = self._state
        enqueued = next((each.max_offset for each in queues if each.queue == TIMER_QUEUE), 0)
        done_to = state.words.load(layout.TIMER_AT + layout.TIMER_HEADER.at["done_to"])
        waiting = max(0, enqueued - done_to - _done_between(state, done_to, enqueued))
        due_ms = [state.timer_next_due] if state.timer_next_due else []
        for level in queues:
            if level.queue.topic == SCHEDULE_TOPIC and level.queue.queue_id < layout.SCHEDULE_SLOTS:
                first = max(state.words.load(schedule_slot_at(level.queue.queue_id)), level.min_offset)
                enqueued += level.max_offset
                waiting += max(0, level.max_offset - first)
                due_ms += [due] if (due := self._times.due(level.queue, first, level.max_offset)) else []
        return TimerSample(waiting, enqueued, min(due_ms, default=None))

    def _disk(self) -> DiskSample:
        state, status = self._state, os.statvfs(self._root)
        used = status.f_blocks - status.f_bfree
        entire = used + status.f_bavail
        return DiskSample(
            min_offset=state.min_offset,
            published_to=state.published_to,
            flushed_to=state.flushed_to,
            indexed_to=state.indexed_to,
            oldest_stored_ms=self._times.at(state.min_offset) if state.published_to > state.min_offset else None,
            used_ratio=used / entire if entire else 0.0,
            free_bytes=status.f_bavail * status.f_frsize,
            is_full=bool(state.disk_full),
            poisoned=state.poisoned,
        )


def _done_between(state: SharedState, start: int, end: int) -> int:
    """Return how many bits of the timer's messages from ``start``, a multiple of 64, to ``end`` are set."""
    if end <= start:
        return 0
    bits, ring = layout.TIMER_AT + layout.TIMER_HEADER.size, layout.TIMER_BITS
    words = -(-(end - start) // 64)
    content = memoryview(state.mapping)
    first = start % ring // 8
    size = min(words * 8, ring // 8)
    part = bytes(content[bits + first : bits + min(first + size, ring // 8)])
    rest = size - len(part)
    part += bytes(content[bits : bits + rest]) if rest else b""
    return int.from_bytes(part, "little").bit_count()


class StoreTimes:
    """Store times of records, each read once for a place that stays the same."""

    def __init__(self, view: LocalView) -> None:
        self._view = view
        self._known: dict[tuple[MessageQueue, int], int | None] = {}
        self._release_at = time.monotonic() + _RELEASE_S

    def release(self) -> None:
        """Once in a minute: forget everything, and let go of files that were removed meanwhile."""
        if time.monotonic() >= self._release_at:
            self._release_at = time.monotonic() + _RELEASE_S
            self._known.clear()
            self._view.release()

    def of(self, queue: MessageQueue, queue_offset: int, end: int) -> int | None:
        """Return the store time of a message in ms; None at the end of its queue, and if it is gone."""
        if queue_offset >= end:
            return None
        key = queue, queue_offset
        if key not in self._known:
            if len(self._known) > 2 * layout.GROUP_QUEUE_SLOTS:
                self._known.clear()
            entry = self._entry(queue, queue_offset)
            self._known[key] = None if entry is None else self.at(entry.commit_log_offset)
        return self._known[key]

    def due(self, level: MessageQueue, queue_offset: int, end: int) -> int | None:
        """Return when a message of a delay level is due, in ms; None as :meth:`of`."""
        entry = self._entry(level, queue_offset) if queue_offset < end else None
        return None if entry is None else entry.tags_code  # of a level, that is the time

    def _entry(self, queue: MessageQueue, queue_offset: int) -> Entry | None:
        try:
            return entry_at(self._view, queue, queue_offset)
        except (OSError, QueueError):
            return None

    def at(self, commit_log_offset: int) -> int | None:
        """Return the store time of a record in ms; None if it is gone."""
        try:
            part = self._view.log(commit_log_offset, layout.RECORD_HEADER.size)
        except (OSError, QueueError):
            return None
        at = commit_log_offset - part.base
        (magic,) = _INT.unpack_from(part.content, at + _RECORD["magic"])
        if magic != layout.RECORD_MAGIC:
            return None
        (flags,) = _INT.unpack_from(part.content, at + _RECORD["sys_flag"])
        shift = _SHIFT if flags & layout.SYS_FLAG_BORN_HOST_V6 else 0
        (stored_ms,) = _LONG.unpack_from(part.content, at + _RECORD["store_timestamp"] + shift)
        return int(stored_ms)
