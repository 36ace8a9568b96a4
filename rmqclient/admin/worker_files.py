"""Worker files: the heartbeats of supervised worker processes of this host, when the messages are on a cluster.

There is a directory for each cluster in the state directory, and in it a file of 160 bytes for each worker, mapped by
its supervisor and by itself. The supervisor holds a lock of the file (``flock``); a file whose lock is free is unused.

======  ======  ===========================================================
offset  type    field
======  ======  ===========================================================
0       i64     process id of the worker
8       i64     process id of its supervisor
16      i64     state, see :class:`rmqclient.store.WorkerState`
24      i64     CLOCK_BOOTTIME in ns of the last beat; 0 before the first
32      i64     and of the longest running call of a handler; 0 for none
40      i64     messages whose handler runs now
48      i64     messages handled so far
56      i64     failed attempts so far
64      i64     how often the worker of this name was started again
72      i64     messages that earlier workers of this name had handled, under this supervisor
80      i64     and their failed attempts
88      i64     bytes of its name
96      text    its name
======  ======  ===========================================================
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from pathlib import Path

from rmqclient.cluster.address.state_directory import is_locked
from rmqclient.store import WorkerState, WorkerStatus, boottime
from rmqclient.store.errors import TableFull, store_errors
from rmqclient.store.threads.standing import has_open

SLOTS = 256

_BYTES = 160
_LONGEST_NAME = 64
_WORD = struct.Struct("<q")
_WORDS = (
    "pid", "supervisor_pid", "state", "beat", "message_started", "in_flight", "handled", "failed", "restarts",
    "handled_before", "failed_before", "name_size",
)  # fmt: skip
_AT = {name: number * _WORD.size for number, name in enumerate(_WORDS)}
_NAME = len(_WORDS) * _WORD.size


class WorkerFile:
    """The file of one worker, as the worker uses it."""

    def __init__(self, path: Path) -> None:
        with path.open("rb+") as file:
            self._map = mmap.mmap(file.fileno(), _BYTES)

    def set_state(self, state: WorkerState) -> None:
        """Tell the supervisor how far the worker is."""
        self.store("state", int(state))

    def beat(self) -> None:
        """Show that the process runs and can get the GIL."""
        self.store("beat", boottime())

    def report(self, in_flight: int, handled: int, failed: int, message_started_ns: int) -> None:
        """Tell the supervisor what the worker does."""
        self.store("in_flight", in_flight)
        self.store("handled", handled)
        self.store("failed", failed)
        self.store("message_started", message_started_ns)

    def store(self, word: str, value: int) -> None:
        """Set a field."""
        _WORD.pack_into(self._map, _AT[word], value)

    def set_name(self, name: str) -> None:
        """Set the worker's name; what does not fit is cut off."""
        text = name.encode()[:_LONGEST_NAME]
        self._map[_NAME : _NAME + len(text)] = text
        self.store("name_size", len(text))

    @property
    def name(self) -> str:
        """The worker's name."""
        return self._map[_NAME : _NAME + self.load("name_size")].decode("utf-8", "replace")

    def load(self, word: str) -> int:
        """Return a field."""
        return int(_WORD.unpack_from(self._map, _AT[word])[0])


class WorkerFiles:
    """The workers of one cluster on this host, as a supervisor or an onlooker sees them. Raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own: dict[int, tuple[int, WorkerFile]] = {}
        self._before: dict[str, tuple[int, int]] = {}
        """Messages handled and failed attempts of the workers that had a name and have ended."""

    def claim(self, name: str = "", restarts: int = 0) -> int:
        """Take a slot for a worker that will be started. Raises TableFull when all 256 are in use, StoreFull.

        ``restarts`` is how often the worker of this name was started before.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        for slot in range(SLOTS):
            if slot not in self._own and (file := _locked(self._path(slot))) is not None:
                words = self._made(slot, file)
                words.store("supervisor_pid", os.getpid())
                words.set_name(name)
                words.store("restarts", restarts)
                handled, failed = self._before.get(words.name, (0, 0))
                words.store("handled_before", handled)
                words.store("failed_before", failed)
                words.set_state(WorkerState.STARTING)
                self._own[slot] = file, words
                return slot
        raise TableFull(f"all {SLOTS} worker slots of {self._directory} are in use")

    def _made(self, slot: int, file: int) -> WorkerFile:
        """Make a file of zeros that has its block: a mapped store into a hole is a SIGBUS on a full disk."""
        try:
            with store_errors(f"{self._path(slot)} cannot be made"):
                os.ftruncate(file, 0)
                os.posix_fallocate(file, 0, _BYTES)
                return WorkerFile(self._path(slot))
        except BaseException:
            self._path(slot).unlink(missing_ok=True)
            os.close(file)
            raise

    def assign(self, slot: int, pid: int) -> None:
        """Say which process runs in a claimed slot. The process may have written more by then; all else stays."""
        self._own[slot][1].store("pid", pid)

    def mark_overdue(self, slot: int, limit_s: float) -> None:
        """Do nothing: brokers do not keep what was running when a member died."""

    def release(self, slot: int) -> None:
        """Give a slot back."""
        status = self.status(slot)
        file, words = self._own.pop(slot)
        self._before[status.name] = status.handled_before + status.handled, status.failed_before + status.failed
        words.set_state(WorkerState.FREE)
        self._path(slot).unlink(missing_ok=True)
        os.close(file)

    def close(self) -> None:
        """Give every slot back."""
        for slot in list(self._own):
            self.release(slot)

    def attach(self, slot: int) -> WorkerFile:
        """Return the slot for the worker's own use."""
        return WorkerFile(self._path(slot))

    def status(self, slot: int) -> WorkerStatus:
        """Return what the worker of a slot last reported."""
        words = self._own[slot][1] if slot in self._own else WorkerFile(self._path(slot))
        found = {word: words.load(word) for word in _WORDS}
        is_here = slot in self._own or has_open(found["supervisor_pid"], str(self._path(slot)))
        return WorkerStatus.of(slot, found, words.name, now=boottime(), is_here=is_here)

    def all(self) -> list[WorkerStatus]:
        """Return the workers of every living supervisor of this host."""
        found = []
        for path in self._directory.glob("*.worker"):
            slot = int(path.stem)
            try:
                if slot in self._own or is_locked(path):
                    found.append(self.status(slot))
            except (OSError, ValueError):  # it was released meanwhile
                continue
        return sorted((each for each in found if each.state is not WorkerState.FREE), key=lambda each: each.slot)

    def _path(self, slot: int) -> Path:
        return self._directory / f"{slot}.worker"


def _locked(path: Path) -> int | None:
    """Open a file and lock it; None when another process has the lock, or has just removed the file."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file), path.stat()):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(file)
    return None
