"""Worker table: the heartbeat and state of supervised worker processes, in the runtime file.

The supervisor claims a slot for one run of one worker. The slot is free again when the supervisor releases it or dies,
which the slot's byte of the lock file shows.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.clock import boottime
from rmqclient.store.errors import TableFull
from rmqclient.store.files.file_lock import MEMBER_BYTES, WORKER_BYTES, LockFile
from rmqclient.store.runtime import running
from rmqclient.store.runtime.rows import WorkerState, WorkerStatus
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.runtime.slot_table import OwnedSlots
from rmqclient.store.threads.standing import holds

_LONGEST_NAME = 52


class WorkerSlot:
    """A slot as its worker sees it."""

    def __init__(self, slots: OwnedSlots, number: int) -> None:
        self._slots = slots
        self._number = number

    def set_state(self, state: WorkerState) -> None:
        """Tell the supervisor how far the worker is."""
        self._slots.store(self._number, "state", int(state))

    def beat(self) -> None:
        """Show that the process runs and can get the GIL."""
        self._slots.store(self._number, "beat", boottime())

    def report(self, in_flight: int, handled: int, failed: int, message_started_ns: int) -> None:
        """Tell the supervisor what the worker does."""
        for name, value in (
            ("in_flight", in_flight),
            ("handled", handled),
            ("failed", failed),
            ("message_started", message_started_ns),
        ):
            self._slots.store(self._number, name, value)


class WorkerTable:
    """The worker table, as a supervisor uses it. An onlooker has an ``Observation``."""

    def __init__(self, root: Path, state: SharedState, lock: LockFile, lock_timeout_ms: int) -> None:
        self._root = root
        self._lock_path = str(lock.path)
        self._state = state
        self._lock_timeout_ms = lock_timeout_ms
        self._slots = OwnedSlots(
            state, layout.WORKER_SLOT, layout.WORKER_TABLE_AT, layout.WORKER_SLOTS, lock, WORKER_BYTES
        )
        self._own: set[int] = set()

    def claim(self, name: str = "", restarts: int = 0) -> int:
        """Take a slot for a worker that will be started. Raises TableFull when all 256 are in use, and StoreBusy.

        ``restarts`` is how often the worker of this name was started before.
        """
        with self._state.locked(self._state.table_mutex, self._lock_timeout_ms):
            for slot in range(layout.WORKER_SLOTS):
                if slot not in self._own and self._slots.own(slot):
                    self._own.add(slot)
                    self._reset(slot)
                    self._name(slot, name, restarts)
                    return slot
        raise TableFull(f"all {layout.WORKER_SLOTS} worker slots of {self._root} are in use")

    def assign(self, slot: int, pid: int) -> None:
        """Say which process runs in a claimed slot. The process may have written more by then; all else stays."""
        self._slots.store(slot, "pid", pid)

    def mark_overdue(self, slot: int, limit_s: float) -> None:
        """Say that the worker is about to be ended, because messages have been in their handler for longer than that.

        Whoever gets these messages learns of it; see :class:`rmqclient.store.runtime.running.Interrupted`.
        """
        pid = self.status(slot).pid
        running.mark_overdue(
            self._state, pid, limit_s, lambda member: holds(pid, self._lock_path, MEMBER_BYTES + member)
        )

    def release(self, slot: int) -> None:
        """Give a slot back."""
        self._slots.store(slot, "state", int(WorkerState.FREE))
        self._own.discard(slot)
        self._slots.disown(slot)

    def attach(self, slot: int) -> WorkerSlot:
        """Return the slot for the worker's own use."""
        return WorkerSlot(self._slots, slot)

    def status(self, slot: int) -> WorkerStatus:
        """Return what the worker of a slot last reported."""
        words, name = self._slots.read(slot), self._slots.text(slot, "name").decode("utf-8", "replace")
        is_here = slot in self._own or holds(words["supervisor_pid"], self._lock_path, WORKER_BYTES + slot)
        return WorkerStatus.of(slot, words, name, now=boottime(), is_here=is_here)

    def _name(self, slot: int, name: str, restarts: int) -> None:
        text = name.encode()[:_LONGEST_NAME]
        self._slots.put_text(slot, "name", text.ljust(_LONGEST_NAME, b"\0"))
        self._slots.store(slot, "name_size", len(text))
        self._slots.store(slot, "restarts", restarts)
        if restarts:
            self._state.words.add(layout.RUNTIME_HEADER.at["worker_restarts"], 1)

    def _reset(self, slot: int) -> None:
        for name in ("beat", "message_started", "in_flight", "handled", "failed", "pid"):
            self._slots.store(slot, name, 0)
        self._slots.store(slot, "supervisor_pid", os.getpid())
        self._slots.store(slot, "state", int(WorkerState.STARTING))
