"""Worker table: the heartbeat and state of supervised worker processes, in the runtime file.

A slot is claimed by the supervisor for one run of one worker. It is free again when the supervisor releases it or dies,
which its byte of the lock file tells.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass

from rmqclient.store import MessageStore, boottime, layout
from rmqclient.store.errors import TableFull
from rmqclient.store.files.file_lock import WORKER_BYTES
from rmqclient.store.runtime.shared_state import worker_slot_at

_AT = layout.WORKER_SLOT.at


class WorkerState(enum.IntEnum):
    """Alive is not ready: a worker is ready when its handlers have joined their groups."""

    FREE = 0
    STARTING = 1
    READY = 2
    DRAINING = 3


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker as its supervisor sees it."""

    slot: int
    pid: int
    supervisor_pid: int
    state: WorkerState
    beat_age_ms: float | None
    """None before the first heartbeat."""
    message_age_ms: float | None
    """How long the longest running handler call has been running; None when none runs."""
    in_flight: int
    handled: int
    failed: int


class WorkerSlot:
    """A slot as its worker sees it."""

    def __init__(self, store: MessageStore, slot: int) -> None:
        self._words = store.state.words
        self._at = worker_slot_at(slot)

    def set_state(self, state: WorkerState) -> None:
        """Tell the supervisor how far the worker is."""
        self._words.store(self._at + _AT["state"], int(state))

    def beat(self) -> None:
        """Show that the process runs and can get the GIL."""
        self._words.store(self._at + _AT["beat"], boottime())

    def report(self, in_flight: int, handled: int, failed: int, message_started_ns: int) -> None:
        """Tell the supervisor what the worker does."""
        for name, value in (
            ("in_flight", in_flight),
            ("handled", handled),
            ("failed", failed),
            ("message_started", message_started_ns),
        ):
            self._words.store(self._at + _AT[name], value)


class WorkerTable:
    """The worker table, as a supervisor or an onlooker uses it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._words = store.state.words
        self._own: set[int] = set()

    def claim(self) -> int:
        """Take a slot for a worker that will be started. Raises TableFull when all 256 are in use."""
        state = self._store.state
        with state.locked(state.table_mutex, self._store.config.lock_timeout_ms):
            for slot in range(layout.WORKER_SLOTS):
                if slot not in self._own and self._store.lock.try_exclusive(WORKER_BYTES + slot):
                    self._own.add(slot)
                    self._reset(slot)
                    return slot
        raise TableFull(f"all {layout.WORKER_SLOTS} worker slots of {self._store.root} are in use")

    def assign(self, slot: int, pid: int) -> None:
        """Say which process runs in a claimed slot. It may have told more by then, so nothing else is changed."""
        self._words.store32(worker_slot_at(slot) + _AT["pid"], pid)

    def release(self, slot: int) -> None:
        """Give a slot back."""
        self._words.store(worker_slot_at(slot) + _AT["state"], int(WorkerState.FREE))
        self._own.discard(slot)
        self._store.lock.unlock(WORKER_BYTES + slot)

    def attach(self, slot: int) -> WorkerSlot:
        """Return the slot for the worker's own use."""
        return WorkerSlot(self._store, slot)

    def status(self, slot: int) -> WorkerStatus:
        """Return what the worker of a slot last told."""
        fields = layout.WORKER_SLOT.read(self._store.state.mapping, worker_slot_at(slot))
        now = boottime()
        return WorkerStatus(
            slot=slot,
            pid=fields["pid"],
            supervisor_pid=fields["supervisor_pid"],
            state=WorkerState(fields["state"]),
            beat_age_ms=(now - fields["beat"]) / 1e6 if fields["beat"] else None,
            message_age_ms=(now - fields["message_started"]) / 1e6 if fields["message_started"] else None,
            in_flight=fields["in_flight"],
            handled=fields["handled"],
            failed=fields["failed"],
        )

    def all(self) -> list[WorkerStatus]:
        """Return the workers of every living supervisor."""
        statuses = [self.status(slot) for slot in range(layout.WORKER_SLOTS)]
        return [
            status
            for status in statuses
            if status.state is not WorkerState.FREE
            and (status.slot in self._own or self._store.lock.holder(WORKER_BYTES + status.slot) is not None)
        ]

    def _reset(self, slot: int) -> None:
        at, words = worker_slot_at(slot), self._words
        for name in ("beat", "message_started", "in_flight", "handled", "failed"):
            words.store(at + _AT[name], 0)
        words.store32(at + _AT["pid"], 0)
        words.store32(at + _AT["supervisor_pid"], os.getpid())
        words.store(at + _AT["state"], int(WorkerState.STARTING))
