"""Journal: a file of this host with the running messages of one client, to count attempts that kill the process.

A cluster does not count such attempts: the message is just delivered again. So each client writes the message that it
is about to run into a small mapped file, which survives the process and needs no system call. A member that is granted
a queue reads the files of dead processes of this host. Deaths on other hosts, and stops of the host, are not counted.

=======  =======  ====================================================================================
offset   type     field; the file has a head and up to 4,096 slots of 512 bytes, and holes for unused ones
=======  =======  ====================================================================================
0        u32      process id
4        u16      length, and the client id in UTF-8
512 n    i64      lowest queue offset of the messages that run in slot n
512 n+8  i64      highest one; messages of one batch are neighbours
512 n+16 u32      attempts of the message from this queue; 0 while the slot is idle
512 n+20 u16      length, and group, topic, broker name and queue id in UTF-8, with a blank between each
=======  =======  ====================================================================================

The process holds a lock of the file (``flock``) while it lives, so an unlocked file belongs to a dead process. The
first reader renames it from ``.journal`` to ``.dead``. It is removed when all its messages are finished and brokers'
locks of the dead client have expired, or after a week.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rmqclient.cluster.address.state_directory import is_locked
from rmqclient.message import ReceivedMessage
from rmqclient.store import CallContext, MessageQueue
from rmqclient.store.errors import TableFull, store_errors

SLOTS = 4_096
_SLOT_BYTES = 512
_RUNS = struct.Struct("<qqI")
_TEXT = struct.Struct("<H")
_HEAD = struct.Struct("<IH")

_LOCKS_END_S = 120.0
"""Seconds after a death until brokers' locks have expired for sure: 60 s after their last renewal."""
_KEPT_S = 7 * 86_400.0
_LOOK_AGAIN_S = 0.5

_FileState: TypeAlias = tuple[str, int, int, int]
"""Name, inode, time of the last change (ns) and size."""


@dataclass(frozen=True, slots=True)
class DiedWith:
    """The death of a process while it ran a message. Implements :class:`rmqclient.backend.group_protocols.Death`."""

    begun: int
    client_id: str
    pid: int
    overdue_s: float | None = None
    """Always None: a supervisor tells a store alone why it ended a process."""


class JournalSlot:
    """The running messages of one thread or one ordered queue. Implements RunningSlot."""

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal = journal
        self._number = number
        self._at = number * _SLOT_BYTES
        self._map = journal.map
        self._served = ""
        self._context = CallContext()
        self.rest()

    def serve(self, group_queue: int, epoch: int) -> None:
        """Set the queue of the next messages, by its number."""
        del epoch  # no other member inherits what runs here
        self.serve_queue(*self._journal.queue_of(group_queue))

    def serve_queue(self, group: str, queue: MessageQueue) -> None:
        """Set the group and the queue of the next messages."""
        text = _text_of(group, queue)
        if text != self._served:
            self._served = text
            data = text.encode()
            _TEXT.pack_into(self._map, self._at + _RUNS.size, len(data))
            start = self._at + _RUNS.size + _TEXT.size
            self._map[start : start + len(data)] = data

    def begin(self, message: ReceivedMessage) -> None:
        """Note that the handler of this message is about to run, in a context of its own."""
        self._context.renew()
        self.note(message)

    def note(self, message: ReceivedMessage) -> None:
        """Note that this message is about to run, in a context that is entered already."""
        offset = message.queue_offset
        begun = message.delivery_attempt - message.reconsume_times
        _RUNS.pack_into(self._map, self._at, offset, offset, begun)

    def begin_batch(self, messages: list[ReceivedMessage]) -> None:
        """Note that the handler of these messages is about to run, in a context of its own."""
        self._context.renew()
        first, last = messages[0], messages[-1]
        begun = first.delivery_attempt - first.reconsume_times
        _RUNS.pack_into(self._map, self._at, first.queue_offset, last.queue_offset, begun)

    def show(self, messages: list[ReceivedMessage]) -> None:
        """Enter a context: the grant of an ordered queue has a slot of its own for the messages."""
        del messages
        self._context.renew()

    def fail(self, messages: int) -> None:
        """Do nothing: only stores keep counts and times."""

    def add_up(self) -> None:
        """Do nothing, as :meth:`fail`."""

    def forgive(self) -> None:
        """Note that a death of the process from now on does not count as an attempt."""
        _RUNS.pack_into(self._map, self._at, 0, 0, 0)

    def rest(self) -> None:
        """Note that no handler runs, and leave its context."""
        self._context.leave()
        self.forgive()

    def release(self) -> None:
        """Give the slot back."""
        self.rest()
        self._journal.give_back(self._number)


class Journal:
    """The journal of one client, and those of dead clients in the same directory. Safe for threads.

    ``queue_of(number)`` returns the group and the queue with a number. Raises OSError if the directory or the file
    cannot be made, StoreFull on a full disk.
    """

    def __init__(self, directory: Path, client_id: str, queue_of: Callable[[int], tuple[str, MessageQueue]]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.queue_of = queue_of
        self._lock = threading.Lock()
        self._free: list[int] = []
        self._used = 0
        self._dead: list[DeadJournal] = []
        self._known: dict[_FileState, DeadJournal] = {}
        self._looked_at = -_LOOK_AGAIN_S
        name = f"{os.getpid()}-{secrets.token_hex(6)}"
        new = directory / f"{name}.new"
        self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # before the file gets a name that others can find
        os.ftruncate(self._file, (1 + SLOTS) * _SLOT_BYTES)
        try:
            self._reserve(new, 0)
        except BaseException:
            os.close(self._file)
            new.unlink()
            raise
        self.map = mmap.mmap(self._file, (1 + SLOTS) * _SLOT_BYTES)
        data = client_id.encode()
        _HEAD.pack_into(self.map, 0, os.getpid(), len(data))
        self.map[_HEAD.size : _HEAD.size + len(data)] = data
        self._path = new.rename(directory / f"{name}.journal")

    def slot(self) -> JournalSlot:
        """Return a slot for one thread or one queue. Raises TableFull, StoreFull."""
        with self._lock:
            if not self._free and self._used == SLOTS:
                raise TableFull(f"all {SLOTS} slots of {self._path} are in use: run more processes with less threads")
            if self._free:
                number = self._free.pop()
            else:
                number = self._used + 1
                self._reserve(self._path, number)
                self._used = number
        return JournalSlot(self, number)

    def _reserve(self, path: Path, number: int) -> None:
        """Reserve the blocks of a slot: a mapped store into a hole is a SIGBUS on a full disk. Raises StoreFull."""
        with store_errors(f"{path} cannot have a slot more"):
            os.posix_fallocate(self._file, number * _SLOT_BYTES, _SLOT_BYTES)

    def give_back(self, number: int) -> None:
        """Free a slot."""
        with self._lock:
            self._free.append(number)

    def dead_clients(self) -> set[str]:
        """Return the client ids of dead processes of this host."""
        return {dead.client_id for dead in self._dead_ones()}

    def deaths(self, group: str, queue: MessageQueue, committed_offset: int) -> dict[int, list[DiedWith]]:
        """Return the deaths with unfinished messages by queue offset, the oldest first."""
        found: dict[int, list[DiedWith]] = {}
        for dead in self._dead_ones():
            for first, last, begun in dead.running(group, queue):
                for offset in range(max(first, committed_offset), last + 1):
                    found.setdefault(offset, []).append(DiedWith(begun, dead.client_id, dead.pid))
        for deaths in found.values():
            deaths.sort(key=lambda death: death.begun)
        return found

    def forget(self, group: str, queue: MessageQueue, committed_offset: int) -> None:
        """Forget deaths with messages below an offset, which are finished."""
        for dead in self._dead_ones():
            dead.forget(group, queue, committed_offset)

    def close(self) -> None:
        """Remove the file, unless a message still runs."""
        with self._lock, contextlib.suppress(OSError):
            runs = (_RUNS.unpack_from(self.map, number * _SLOT_BYTES)[2] for number in range(1, self._used + 1))
            if not any(runs):
                self._path.unlink(missing_ok=True)
            os.close(self._file)

    def _dead_ones(self) -> list[DeadJournal]:
        with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
                self._known = dead_journals(self._path.parent, self._known)
                self._dead = list(self._known.values())
                self._looked_at = time.monotonic()
            return self._dead


class DeadJournal:
    """The journal of a dead process. Raises OSError if it cannot be read, ValueError if it is damaged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes()
        if len(data) < _SLOT_BYTES:
            raise ValueError(f"{path} has {len(data)} bytes")
        self.pid, size = _HEAD.unpack_from(data)
        self.client_id = data[_HEAD.size : _HEAD.size + size].decode("utf-8", "replace")
        self._slots: dict[int, tuple[str, int, int, int]] = {}
        for at in range(_SLOT_BYTES, len(data) - _SLOT_BYTES + 1, _SLOT_BYTES):
            first, last, begun = _RUNS.unpack_from(data, at)
            if begun:
                (size,) = _TEXT.unpack_from(data, at + _RUNS.size)
                start = at + _RUNS.size + _TEXT.size
                self._slots[at] = data[start : start + size].decode("utf-8", "replace"), first, last, begun

    @property
    def is_over(self) -> bool:
        """Whether the file can be removed."""
        age_s = time.time() - self._path.stat().st_ctime
        return age_s > _KEPT_S or (not self._slots and age_s > _LOCKS_END_S)

    def running(self, group: str, queue: MessageQueue) -> list[tuple[int, int, int]]:
        """Return what ran of a queue, as tuples of first offset, last offset, and attempts."""
        wanted = _text_of(group, queue)
        slots = list(self._slots.values())
        return [(first, last, begun) for text, first, last, begun in slots if text == wanted]

    def forget(self, group: str, queue: MessageQueue, committed_offset: int) -> None:
        """Clear the slots of a queue whose messages are all below an offset."""
        wanted = _text_of(group, queue)
        slots = list(self._slots.items())
        over = [at for at, (text, _, last, _) in slots if text == wanted and last < committed_offset]
        if over:
            with contextlib.suppress(OSError), self._path.open("rb+") as file:
                for at in over:
                    self._slots.pop(at, None)
                    file.seek(at)
                    file.write(bytes(_RUNS.size))


def dead_journals(directory: Path, known: Mapping[_FileState, DeadJournal]) -> dict[_FileState, DeadJournal]:
    """Return the journals of dead processes in a directory; removes those that are no longer needed.

    ``known`` is the last result: a file of 2 MiB is read again only if it has changed.
    """
    found: dict[_FileState, DeadJournal] = {}
    for path in sorted(directory.iterdir()):
        with contextlib.suppress(OSError, ValueError):
            if path.suffix == ".journal" and not is_locked(path):
                path = path.rename(path.with_suffix(".dead"))  # noqa: PLW2901 - the same file under its other name
            if path.suffix == ".dead":
                state = _state_of(path)
                dead = known.get(state) or DeadJournal(path)
                if dead.is_over:
                    path.unlink(missing_ok=True)
                else:
                    found[state] = dead
    return found


def _state_of(path: Path) -> _FileState:
    status = path.stat()
    return path.name, status.st_ino, status.st_mtime_ns, status.st_size


def _text_of(group: str, queue: MessageQueue) -> str:
    return f"{group} {queue.topic} {queue.broker_name} {queue.queue_id}"
