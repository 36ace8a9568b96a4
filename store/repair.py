"""Repair: recovery by hand, for a store that nobody has open.

What the first process that opens a store does by itself is done here by a command, so that somebody can look at the
plan before: first without a change, then with one.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqclient.store.errors import StoreInUse
from rmqclient.store.files.file_lock import BROKER_BYTE, LockFile
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.layout import IDLE, RECORDED
from rmqclient.store.log import shape
from rmqclient.store.message_store import open_store
from rmqclient.store.recovery import recovery
from rmqclient.store.runtime.shared_state import SharedState


def planned(root: Path) -> list[str]:
    """Return in words, one step a line, what the next opening of the store in ``root`` does. Nothing is changed.

    Raises StoreInUse when a process has it open, and as :func:`rmqclient.store.inspect.reading.open_reader`.
    """
    check_nobody_has_it_open(root)
    reader = open_reader(root)
    odd = shape.odd_files(reader.log_files, reader.consume_queues)
    state = reader.state if reader.state is not None and recovery.fits_together(reader.state) else None
    found = recovery.survey(root, reader.log_files, reader.consume_queues, state, odd, check_entries=False)
    return [*(file.line() for file in odd), *_interrupted(state), *recovery.plan(found).lines()]


def repair(root: Path) -> None:
    """Recover the store in ``root`` as its first opener does, and close it again. Raises as ``open_store``."""
    open_store(root, create=False, housekeeping=False).close()


def check_nobody_has_it_open(root: Path) -> None:
    """Raise StoreInUse when a process of this library, or a RocketMQ broker, has the store open."""
    path = root / "lock"
    if not path.exists() or path.stat().st_size == 0:  # made by whoever opens a store
        return
    if not os.access(path, os.W_OK):  # nobody can have it open but to look at it
        return
    lock = LockFile(path)
    try:
        if lock.holder(BROKER_BYTE) is not None:
            raise StoreInUse(f"{root} is open in another process: stop all that use it first")
    finally:
        lock.close()


def _interrupted(state: SharedState | None) -> list[str]:
    if state is None or state.append_stage == IDLE:
        return []
    done = "finish" if state.append_stage == RECORDED else "undo"
    return [f"{done} the append of a killed process, bytes {state.append_from} to {state.written_to}"]
