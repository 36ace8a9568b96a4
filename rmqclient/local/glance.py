"""Glance: the state of a store of this host, read in passing by a program that must start in milliseconds.

It maps the runtime file for reading and asks the kernel who holds which byte of the lock file. It opens no store, takes
no lock, writes nothing, and imports neither the compiled kernel nor any package: ``rmq check`` is a new process each
time, and so is a probe of Kubernetes. The layouts come from ``store/layout.py``, which is loaded by its path, because
importing its package would load the kernel.

A word is read whole. Words are read one after the other, so a number may be a moment older than the one beside it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import stat
import struct
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from rmqclient.store.threads.standing import Holder

BROKER_BYTE = 0
HOUSEKEEPER_BYTE = 2
MEMBER_BYTES = 4096
WORKER_BYTES = 8192
"""As :mod:`rmqclient.store.files.file_lock` has them; a test compares."""

STANDS_AFTER_S = 5.0
"""A housekeeper that has shown nothing for so long stands still. Others take its role earlier, if there are any."""

DEAD_LETTER_PREFIX = "%DLQ%"
RETRY_PREFIX = "%RETRY%"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_FLOCK = struct.Struct("hhqqi0q")
_ENTRY = struct.Struct(">qiq")
_BORN_HOST_V6 = 0x10
_WORKER_STATES = ("free", "starting", "ready", "draining", "losing", "overdue")
_NS = 1e9
_LONGEST_LINE = 1 << 20
"""Of the journal of dead letters: a longer one is no line of ours."""


_LARGEST_TABLE = 64 << 20
_READABLE, _WRITABLE = 4, 2


class Unreadable(Exception):
    """There is no store, no process has opened it since it was copied here, or another version did."""


class Queue(NamedTuple):
    """One queue of a topic."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class GroupQueue(NamedTuple):
    """How a group stands in one queue."""

    group: str
    queue: Queue
    committed_offset: int
    has_owner: bool
    """Whether a living member has it."""
    paused: bool
    flow_control: int
    """Its code, as :class:`rmqclient.delivery.process_queue.FlowControl` numbers them."""
    held_attempts: int
    """Attempts of the failed message that an ordered queue waits for; 0 without one."""

    @property
    def lag(self) -> int:
        """Messages that are still there and not finished up to the committed offset."""
        return self.queue.max_offset - max(self.committed_offset, self.queue.min_offset)

    @property
    def lost(self) -> int:
        """Messages that retention removed before the group had finished them."""
        return max(0, self.queue.min_offset - self.committed_offset)


class Member(NamedTuple):
    """One living member of a group, for one topic."""

    group: str
    topic: str
    client_id: str
    pid: int


class Running(NamedTuple):
    """A message whose handler runs now."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    pid: int
    age_s: float | None
    """Since the handler began; None when the store does not tell."""


class Worker(NamedTuple):
    """One worker of a supervisor that lives."""

    slot: int
    pid: int
    supervisor_pid: int
    state: str
    beat_age_s: float | None
    """None before the first heartbeat."""
    message_age_s: float | None
    """Of the handler call that has run longest; None when no handler runs."""
    in_flight: int


class TopicUsage(NamedTuple):
    """How many queues of a topic are in use; they are the first ones."""

    written: int
    """New messages go there."""
    read: int
    """Consumers get messages from there."""


def left_behind(root: str) -> list[Holder]:
    """Return the processes that have a store open that was removed from ``root``, as far as they can be seen here."""
    found: list[Holder] = _by_path("threads/standing").left_behind(os.path.join(root, "lock"))
    return found


def renamed() -> dict[str, list[Holder]]:
    """Return the directories that were renamed while processes had their stores open, which still have them open."""
    found: dict[str, list[Holder]] = _by_path("threads/standing").in_use()
    return {root: users for root, users in found.items() if _is_renamed(root)}


def _is_renamed(root: str) -> bool:
    try:
        with Glance(root) as glance:
            return glance.is_renamed
    except Unreadable:
        return False


class Glance:
    """A store as it is now; close it, or use it as a context manager. Raises Unreadable."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._layout = _layouts()
        self._lock = -1
        try:
            descriptor = _opened(os.path.join(root, "shared"))
        except OSError as error:
            raise Unreadable(f"{root}: no store of this host is open or was open there ({error.strerror})") from error
        try:
            length = min(os.fstat(descriptor).st_size, self._layout.RUNTIME_SIZE)
            self._map = mmap.mmap(descriptor, length, prot=mmap.PROT_READ)
            self._lock = _opened(os.path.join(root, "lock"))
        except (OSError, ValueError) as error:
            raise Unreadable(f"{root} cannot be read: {error}") from error
        finally:
            os.close(descriptor)
        self._check()
        self._view = memoryview(self._map)
        self._words = self._view.cast("Q")
        self._halves = self._view.cast("I")
        self._queues: list[tuple[str, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files. Closing twice does nothing."""
        if self._lock >= 0:
            for view in (self._halves, self._words, self._view):
                view.release()
            self._map.close()
            os.close(self._lock)
            self._lock = -1

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
        return [name for bit, name in enumerate(self._layout.PASSES) if failing >> bit & 1]

    def standing(self) -> list[Holder]:
        """Return the processes that stand still and have the store open, as far as they can be seen from here."""
        found: list[Holder] = _by_path("threads/standing").standing(os.path.join(self.root, "lock"))
        return found

    def left_behind(self) -> list[Holder]:
        """Return the processes that have a store open that stood here before this one, and was removed."""
        return left_behind(self.root)

    @property
    def is_renamed(self) -> bool:
        """Whether a process that has the store open found that the directory has another name than it knows."""
        return self.is_open and bool(self.word("restricted") & self._layout.RESTRICTED["replaced"])

    def users(self) -> list[Holder]:
        """Return the processes that have the store open, as far as they can be seen from here."""
        found: dict[str, list[Holder]] = _by_path("threads/standing").in_use()
        return found.get(os.path.realpath(self.root), [])

    def word(self, name: str) -> int:
        """Return a word of the header, such as ``poisoned``, ``disk_full``, ``published_to`` and ``flushed_to``."""
        return self._word(self._layout.RUNTIME_HEADER.at[name])

    def is_locked(self, byte: int) -> bool:
        """Tell whether a process holds a byte of the lock file."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        answer = fcntl.fcntl(self._lock, fcntl.F_OFD_GETLK, asked)
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    # --- what is in it -----------------------------------------------------------------------------

    def queues(self) -> list[Queue]:
        """Return every queue of every topic, by slot."""
        layout, at = self._layout, self._layout.QUEUE_SLOT.at
        found = []
        for slot in range(self.word("queue_count")):
            begin = layout.QUEUE_TABLE_AT + slot * layout.QUEUE_SLOT.size
            if slot == len(self._queues):
                topic = self._text(begin + at["topic"], self._half(begin + at["topic_size"]))
                self._queues.append((topic, self._half(begin + at["queue_id"])))
            low, high = self._word(begin + at["min_offset"]), self._word(begin + at["max_offset"])
            found.append(Queue(*self._queues[slot], low, high))
        return found

    def group_queues(self, queues: list[Queue] | None = None) -> list[GroupQueue]:
        """Return how every group stands in every queue that it ever had, by slot; in ``queues``, if they are given."""
        return [each for each in self._by_slot(queues) if each is not None]

    def slots(self) -> dict[str, tuple[int, int]]:
        """Return how many slots of each table are in use, and how many it has, by what they are for."""
        layout = self._layout
        begins = range(layout.GROUP_QUEUE_TABLE_AT, layout.MEMBER_TABLE_AT, layout.GROUP_QUEUE_SLOT.size)
        at, count = layout.GROUP_QUEUE_SLOT.at["paused"], self.word("group_queue_count")
        groups = sum(self._word(begin + at) != layout.FORGOTTEN for begin in begins[:count])
        return {
            "group queues": (groups, layout.GROUP_QUEUE_SLOTS),
            "queues": (self.word("queue_count"), layout.QUEUE_SLOTS),
            "members": (len(self._incarnations()), layout.MEMBER_SLOTS),
        }

    def members(self) -> list[Member]:
        """Return the members of every group whose process lives."""
        at = self._layout.MEMBER_SLOT.at
        found = []
        for slot in self._incarnations():
            begin = self._layout.MEMBER_TABLE_AT + slot * self._layout.MEMBER_SLOT.size
            group, topic, client_id = (
                self._text(begin + at[name], self._half(begin + at[f"{name}_size"]))
                for name in ("group", "topic", "client_id")
            )
            found.append(Member(group, topic, client_id, self._half(begin + at["pid"])))
        return found

    def workers(self) -> list[Worker]:
        """Return the workers of every supervisor that lives."""
        layout, now = self._layout, _boottime()
        found = []
        for slot in range(layout.WORKER_SLOTS):
            begin = layout.WORKER_TABLE_AT + slot * layout.WORKER_SLOT.size
            state = self._word(begin + layout.WORKER_SLOT.at["state"])
            if 0 < state < len(_WORKER_STATES) and self.is_locked(WORKER_BYTES + slot):
                found.append(self._worker(slot, begin, _WORKER_STATES[state], now))
        return found

    def is_here(self, worker: Worker) -> bool:
        """Tell whether the supervisor of a worker can be seen, and its process ids mean the same here as there."""
        lock, byte = os.path.join(self.root, "lock"), WORKER_BYTES + worker.slot
        found: bool = _by_path("threads/standing").holds(worker.supervisor_pid, lock, byte)
        return found

    def running(self) -> list[Running]:
        """Return the messages whose handlers run now, in any process that lives."""
        layout, at, alive = self._layout, self._layout.RUNNING_SLOT.at, self._incarnations()
        groups, now = self._by_slot(), _boottime()
        found = []
        for slot in range(self.word("running_count")):
            begin = layout.RUNNING_TABLE_AT + slot * layout.RUNNING_SLOT.size
            member, number = self._word(begin + at["member"]), self._half(begin + at["group_queue"])
            group_queue = groups[number] if number < len(groups) else None
            if not self._word(begin + at["attempt"]) or group_queue is None:
                continue
            if member and alive.get(member - 1) == self._word(begin + at["incarnation"]):
                began = self._word(begin + at["began"]) if "began" in at else 0
                group, queue = group_queue[:2]
                offset, pid = self._word(begin + at["queue_offset"]), self._half(begin + at["pid"])
                age = (now - began) / _NS if began else None
                found.append(Running(group, queue.topic, queue.queue_id, offset, pid, age))
        return found

    def stored_ms(self, queue: Queue, queue_offset: int) -> int | None:
        """Return when the message at a queue offset was stored, in ms since 1970; None when it is not in the log."""
        entry = self._entry(queue, queue_offset)
        return None if entry is None else self.stored_at(entry[0])

    def stored_at(self, commit_log_offset: int) -> int | None:
        """Return when the record at a byte of the log was stored, in ms since 1970; None when none is there."""
        size = self.word("commit_log_file_bytes")
        at = self._layout.RECORD_HEADER.at
        record = self._read("commitlog", commit_log_offset, size, self._layout.RECORD_HEADER.size + 12)
        if record is None or struct.unpack_from(">q", record, at["commit_log_offset"])[0] != commit_log_offset:
            return None
        v6 = struct.unpack_from(">i", record, at["sys_flag"])[0] & _BORN_HOST_V6
        return int(struct.unpack_from(">q", record, at["store_timestamp"] + (12 if v6 else 0))[0])

    def next_delayed_ms(self, queues: list[Queue]) -> int | None:
        """Return when the next message that waits for its time is due, in ms since 1970; None when none waits."""
        due = [self.word("timer_next_due")] if "timer_next_due" in self._layout.RUNTIME_HEADER.at else []
        due = [each for each in due if each]
        for queue in queues:
            if queue.topic == SCHEDULE_TOPIC:
                at = self._layout.SCHEDULE_TABLE_AT + queue.queue_id * self._layout.SCHEDULE_SLOT.size
                entry = self._entry(queue, max(self._word(at), queue.min_offset))
                due += [entry[2]] if entry is not None else []
        return min(due, default=None)

    def dead_letters(self, queues: list[Queue]) -> dict[str, list[Queue]]:
        """Return the dead letter queues of every group that has one."""
        found: dict[str, list[Queue]] = {}
        for queue in queues:
            if queue.topic.startswith(DEAD_LETTER_PREFIX):
                found.setdefault(queue.topic.removeprefix(DEAD_LETTER_PREFIX), []).append(queue)
        return found

    def disk_used_ratio(self) -> float:
        """Return how full the file system is, from 0 to 1, as ``df`` shows it."""
        status = os.statvfs(self.root)
        used = status.f_blocks - status.f_bfree
        return used / ((used + status.f_bavail) or 1)

    # --- inside ------------------------------------------------------------------------------------

    def _check(self) -> None:
        header, size = self._layout.RUNTIME_HEADER, self._layout.RUNTIME_SIZE
        fields = header.read(self._map) if len(self._map) >= header.size else {}
        if fields.get("magic") != self._layout.RUNTIME_MAGIC or len(self._map) < size:
            raise Unreadable(f"{self.root}/shared is not whole: a process that opens the store builds it again")
        if fields["fingerprint"] != self._layout.RUNTIME_FINGERPRINT:
            raise Unreadable(f"{self.root} was opened by another version of rmqclient: use that version")

    def _by_slot(self, queues: list[Queue] | None = None) -> list[GroupQueue | None]:
        """Return what stands in each slot; None if its group was forgotten, or its queue is newer than ``queues``."""
        layout, alive = self._layout, self._incarnations()
        begins = range(layout.GROUP_QUEUE_TABLE_AT, layout.MEMBER_TABLE_AT, layout.GROUP_QUEUE_SLOT.size)
        slots = begins[: self.word("group_queue_count")]
        queues = self.queues() if queues is None else queues  # after the count: each counted slot has its queue by then
        paused = layout.GROUP_QUEUE_SLOT.at["paused"]
        return [
            None if self._word(begin + paused) == layout.FORGOTTEN else self._group_queue(begin, queues, alive)
            for begin in slots
        ]

    def _group_queue(self, begin: int, queues: list[Queue], alive: dict[int, int]) -> GroupQueue | None:
        at, word = self._layout.GROUP_QUEUE_SLOT.at, self._word
        number = self._half(begin + at["queue_slot"])
        if number >= len(queues):
            return None
        owner = word(begin + at["owner"])
        return GroupQueue(
            group=self._text(begin + at["group"], self._half(begin + at["group_size"])),
            queue=queues[number],
            committed_offset=word(begin + at["committed_offset"]),
            has_owner=owner > 0 and alive.get(owner - 1) == word(begin + at["owner_incarnation"]),
            paused=word(begin + at["paused"]) != 0,
            flow_control=word(begin + at["flow_control"]),
            held_attempts=word(begin + at["held_attempts"]) & 0xFFFF_FFFF if word(begin + at["held_offset"]) else 0,
        )

    def _worker(self, slot: int, begin: int, state: str, now: int) -> Worker:
        at = self._layout.WORKER_SLOT.at
        beat, started = self._word(begin + at["beat"]), self._word(begin + at["message_started"])
        return Worker(
            slot=slot,
            pid=self._half(begin + at["pid"]),
            supervisor_pid=self._half(begin + at["supervisor_pid"]),
            state=state,
            beat_age_s=(now - beat) / _NS if beat else None,
            message_age_s=(now - started) / _NS if started else None,
            in_flight=self._word(begin + at["in_flight"]),
        )

    def _incarnations(self) -> dict[int, int]:
        """Return the incarnation of each member that lives, by slot."""
        layout, found = self._layout, {}
        for slot in range(layout.MEMBER_SLOTS):
            incarnation = self._word(layout.MEMBER_TABLE_AT + slot * layout.MEMBER_SLOT.size)
            if incarnation == 0:
                break  # slots are taken from the first on
            if incarnation % 2 and self.is_locked(MEMBER_BYTES + slot):
                found[slot] = incarnation
        return found

    def _entry(self, queue: Queue, queue_offset: int) -> tuple[int, int, int] | None:
        if not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        directory = f"consumequeue/{queue.topic}/{queue.queue_id}"
        entry = self._read(directory, queue_offset * _ENTRY.size, self.word("consume_queue_file_bytes"), _ENTRY.size)
        found = None if entry is None else _ENTRY.unpack(entry)
        return None if found is None or found[1] <= 0 else found

    def _read(self, directory: str, position: int, file_bytes: int, size: int) -> bytes | None:
        begin = position - position % file_bytes
        try:
            descriptor = _opened(f"{self.root}/{directory}/{begin:020}")
        except OSError:
            return None
        try:
            found = os.pread(descriptor, size, position - begin)
        finally:
            os.close(descriptor)
        return found if len(found) == size else None

    def _word(self, at: int) -> int:
        return self._words[at // 8]

    def _half(self, at: int) -> int:
        return self._halves[at // 4]

    def _text(self, at: int, size: int) -> str:
        return bytes(self._view[at : at + size]).decode("utf-8", "replace")


def topic_usage(root: str) -> dict[str, TopicUsage]:
    """Return how many queues of each topic take messages and give some; empty if the file cannot be read."""
    try:
        with open(_opened(f"{root}/config/topics.json"), "rb") as file:
            table = json.loads(file.read(_LARGEST_TABLE))["topicConfigTable"]
        return {
            name: TopicUsage(
                entry.get("writeQueueNums", 16) if entry.get("perm", 6) & _WRITABLE else 0,
                entry.get("readQueueNums", 16) if entry.get("perm", 6) & _READABLE else 0,
            )
            for name, entry in table.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # `rmq store verify` says what is wrong there
        return {}


def settled_letters(root: str) -> dict[str, set[int]]:
    """Return the queue offsets of the dead letters that were replayed or purged, by topic."""
    settled: dict[str, set[int]] = {}
    for line in _journal(root):
        try:
            entry = json.loads(line)
            offsets = settled.setdefault(entry["topic"], set())
            (offsets.add if entry["done"] in ("replayed", "purged") else offsets.discard)(entry["queue_offset"])
        except (ValueError, KeyError, TypeError):  # torn by a power cut
            continue
    return settled


def _journal(root: str) -> Iterator[bytes]:
    try:
        with open(_opened(f"{root}/config/deadLetters.jsonl"), "rb") as lines:
            while len(line := lines.readline(_LONGEST_LINE)) not in (0, _LONGEST_LINE):
                yield line
    except OSError:
        return


def _opened(path: str) -> int:
    """Open a plain file to read it. A pipe would be waited for, and a link may lead out of the store: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, "not a plain file")
    return descriptor


def _boottime() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _layouts() -> ModuleType:
    return _by_path("layout")


def _by_path(room: str) -> ModuleType:
    """Return a module of the store that imports nothing of its package, which would load the kernel."""
    name = f"rmqclient.store.{room.replace('/', '.')}"
    if name in sys.modules:
        return sys.modules[name]
    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "store", f"{room}.py")
    spec = spec_from_file_location(f"_rmq_{room.rpartition('/')[2]}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
