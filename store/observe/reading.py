"""Reading: the words that the processes of a store share, as an onlooker reads them, and one ``Observation`` of them.

``shared`` has the words, ``processes`` who uses them, ``records`` what is in the log. A reading opens no store, takes
no lock and writes nothing: ``rmq check`` is a new process each time, and so is a probe of Kubernetes.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from rmqclient.store import layout
from rmqclient.store.closing import Closing
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.observe.group_queues import GroupQueues
from rmqclient.store.observe.observation import Call, Disk, GroupQueue, Observation, Queue
from rmqclient.store.observe.processes import Processes
from rmqclient.store.observe.records import Records
from rmqclient.store.observe.shared_file import MEMBER_BYTES, WORKER_BYTES, SharedFile
from rmqclient.store.observe.waiting import Waiting
from rmqclient.store.runtime.rows import Handling, Histogram, MemberInfo, WorkerState, WorkerStatus
from rmqclient.store.threads.standing import held_by

if TYPE_CHECKING:
    from collections.abc import Iterator

AGES_READ = 64
"""Queues of a group in which the ages of messages are read, at most: a read of two files each."""

_NS = 1e9


class Reading(Closing):
    """A store as it is now; close it, or use it as a context manager. For one thread. Raises Unreadable."""

    def __init__(self, root: str) -> None:
        self.shared = shared = SharedFile(root)
        self.processes = Processes(shared)
        self.records = Records(root, shared.word("commit_log_file_bytes"), shared.word("consume_queue_file_bytes"))
        self._groups = GroupQueues(shared, self.records)
        self._waiting = Waiting(shared, self.records)
        self._queues: list[MessageQueue] = []
        self._members: dict[int, MemberInfo] = {}

    def close(self) -> None:
        """Let go of the files. Closing twice does nothing."""
        self.records.close()
        self.shared.close()

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
            group_queues=tuple(self._groups.rows(queues, members, ages)),
            members=tuple(members),
            workers=tuple(self.workers()),
            calls=tuple(self._calls(members)),
            handling=tuple(self.handling()),
            timer=self._waiting.look(queues),
            disk=self.disk(),
            worker_restarts=self.shared.word("worker_restarts"),
            is_open=self.processes.is_open,
            has_housekeeper=self.processes.has_housekeeper,
        )

    @property
    def is_read_only(self) -> bool:
        """Whether nobody can write to the file system of the store, as after an error of its disk."""
        if not os.statvfs(self.shared.root).f_flag & os.ST_RDONLY:
            return False
        from pathlib import Path  # noqa: PLC0415 - a check is quick, and this is rare

        from rmqclient.store.files.file_system import mount_of  # noqa: PLC0415

        mount = mount_of(Path(self.shared.root))
        return mount is not None and mount.is_read_only

    def disk(self) -> Disk:
        """Return how far the log is, and how full the file system is, as ``df`` shows it."""
        status = os.statvfs(self.shared.root)
        used = status.f_blocks - status.f_bfree
        oldest, published_to = self.shared.word("min_offset"), self.shared.word("published_to")
        return Disk(
            min_offset=oldest,
            published_to=published_to,
            flushed_to=self.shared.word("flushed_to"),
            indexed_to=self.shared.word("indexed_to"),
            oldest_stored_ms=self.records.stored_at(oldest) if published_to > oldest else None,
            used_ratio=used / ((used + status.f_bavail) or 1),
            free_bytes=status.f_bavail * status.f_frsize,
            is_full=bool(self.shared.word("disk_full")),
            poisoned=self.shared.word("poisoned"),
        )

    def slots(self) -> dict[str, tuple[int, int]]:
        """Return how many slots of each table are in use, and how many it has, by what they are for."""
        paused = self.shared.column(layout.GROUP_QUEUE_TABLE_AT, layout.GROUP_QUEUE_SLOT, "paused", self._groups.count)
        return {
            "group queues": (len(paused) - paused.count(layout.FORGOTTEN), layout.GROUP_QUEUE_SLOTS),
            "queues": (self.shared.word("queue_count"), layout.QUEUE_SLOTS),
            "members": (len(self.members()), layout.MEMBER_SLOTS),
        }

    # --- what is in it -----------------------------------------------------------------------------

    def queues(self) -> list[Queue]:
        """Return every queue of every topic, by slot."""
        slot, count = layout.QUEUE_SLOT, min(self.shared.word("queue_count"), layout.QUEUE_SLOTS)
        columns = [
            self.shared.column(layout.QUEUE_TABLE_AT, slot, word, count)
            for word in ("min_offset", "max_offset", "bytes_in")
        ]
        for number in range(len(self._queues), count):
            begin = layout.QUEUE_TABLE_AT + number * slot.size
            topic, queue_id = self.shared.text(begin, slot, "topic"), self.shared.half(begin, slot, "queue_id")
            self._queues.append(MessageQueue(topic, queue_id))
        return [Queue(self._queues[number], *row) for number, row in enumerate(zip(*columns, strict=True))]

    def members(self) -> list[MemberInfo]:
        """Return every member whose process lives, stopped or not, by slot."""
        now, slot, found = _boottime(), layout.MEMBER_SLOT, []
        beats = self.shared.column(layout.MEMBER_TABLE_AT, slot, "heartbeat", layout.MEMBER_SLOTS)
        incarnations = self.shared.column(layout.MEMBER_TABLE_AT, slot, "incarnation", layout.MEMBER_SLOTS)
        for number, incarnation in enumerate(incarnations):
            if incarnation == 0:
                break  # slots are taken from the first on
            if incarnation % 2 and self.shared.is_locked(MEMBER_BYTES + number):
                known = self._members.get(number)
                if known is None or known.incarnation != incarnation:
                    known = self._members[number] = self._member(number, incarnation)
                found.append(known._replace(heartbeat_age_ms=(now - beats[number]) / 1e6))
        return found

    def workers(self) -> list[WorkerStatus]:
        """Return the workers of every supervisor that lives, by slot."""
        slot, now, found = layout.WORKER_SLOT, _boottime(), []
        held: dict[int, set[int]] = {}
        for number, state in enumerate(self.shared.column(layout.WORKER_TABLE_AT, slot, "state", layout.WORKER_SLOTS)):
            if 0 < state < len(WorkerState) and self.shared.is_locked(WORKER_BYTES + number):
                begin = layout.WORKER_TABLE_AT + number * slot.size
                fields = {**slot.read(self.shared.view, begin), "state": state}
                supervisor = fields["supervisor_pid"]
                if supervisor not in held:
                    held[supervisor] = held_by(supervisor, os.path.join(self.shared.root, "lock"))
                is_here = WORKER_BYTES + number in held[supervisor]
                name = self.shared.text(begin, slot, "name")
                found.append(WorkerStatus.of(number, fields, name, now=now, is_here=is_here))
        return found

    def group_queues(self, ages: int = 0) -> list[GroupQueue]:
        """Return every group in every queue that it ever had, by group, topic and queue id; ``ages`` as in a look."""
        return list(self._groups.rows(self.queues(), self.members(), ages))

    def calls(self) -> list[Call]:
        """Return the messages whose handlers run now in processes that live, the longest first."""
        self.queues()  # so that their names are known
        return self._calls(self.members())

    def _calls(self, members: list[MemberInfo]) -> list[Call]:
        slot, now, found = layout.RUNNING_SLOT, _boottime(), []
        alive = {member.key: member for member in members}
        count = min(self.shared.word("running_count"), layout.RUNNING_SLOTS)
        for number, began in enumerate(self.shared.column(layout.RUNNING_TABLE_AT, slot, "began", count)):
            if not began:
                continue
            fields = slot.read(self.shared.view, layout.RUNNING_TABLE_AT + number * slot.size)
            member = alive.get((fields["member"], fields["incarnation"]))
            if member is None or not fields["began"] or self._groups.is_forgotten(fields["group_queue"]):
                continue
            group, queue_slot = self._groups.name(fields["group_queue"])
            if queue_slot < len(self._queues):
                offsets, age_s = (fields["queue_offset"], fields["last_offset"]), max(0, now - fields["began"]) / _NS
                found.append(Call(group, self._queues[queue_slot], *offsets, fields["pid"], age_s, member))
        return sorted(found, key=lambda each: -each.age_s)

    def handling(self) -> Iterator[Handling]:
        """Yield how long the messages of each handler took."""
        slot = layout.HANDLING_SLOT
        for number in range(min(self.shared.word("handling_count"), layout.HANDLING_SLOTS)):
            begin = layout.HANDLING_TABLE_AT + number * slot.size
            group, topic = self.shared.text(begin, slot, "group"), self.shared.text(begin, slot, "topic")
            times = [self._histogram(begin + slot.at[f"{name}_time"]) for name in ("handled", "failed", "waited")]
            yield Handling(group, topic, *times)

    def _member(self, number: int, incarnation: int) -> MemberInfo:
        slot, begin = layout.MEMBER_SLOT, layout.MEMBER_TABLE_AT + number * layout.MEMBER_SLOT.size
        group, topic, client_id, subscription = (
            self.shared.text(begin, slot, name) for name in ("group", "topic", "client_id", "subscription")
        )
        pid, wake_slot = self.shared.half(begin, slot, "pid"), self.shared.half(begin, slot, "wake_slot")
        return MemberInfo(number, incarnation, group, topic, client_id, pid, subscription, wake_slot)

    def _histogram(self, at: int) -> Histogram:
        *counts, nanoseconds = self.shared.words[at // 8 : at // 8 + layout.HISTOGRAM_WORDS].tolist()
        return Histogram(tuple(counts), nanoseconds / _NS)


def _boottime() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
