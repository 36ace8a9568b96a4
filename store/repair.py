"""Repair: recovery by hand, for a store that no process has open.

The first process that opens a store recovers it anyway. This command does the same, and can print the plan first
without changing anything.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqclient.store.errors import StoreInUse
from rmqclient.store.files.file_lock import BROKER_BYTE, LockFile
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.message_store import open_store
from rmqclient.store.recovery import recovery


def planned(root: Path) -> list[str]:
    """Return in words, one step a line, what the next opening of the store in ``root`` does. Changes nothing.

    Raises StoreInUse if a process has the store open, and as :func:`rmqclient.store.inspect.reading.open_reader`.
    """
    check_nobody_has_it_open(root)
    reader = open_reader(root)
    first = recovery.first_steps(root, reader.log_files, reader.consume_queues, reader.state)
    chosen = recovery.plan_for(root, reader.log_files, reader.consume_queues, first, check_entries=False)
    return chosen.lines()


def repair(root: Path) -> None:
    """Recover the store in ``root`` as the first opener does, and close it again. Raises as ``open_store``."""
    open_store(root, create=False, housekeeping=False).close()


def check_nobody_has_it_open(root: Path) -> None:
    """Raise StoreInUse if a process of this library, or a RocketMQ broker, has the store open."""
    path = root / "lock"
    if not path.exists() or path.stat().st_size == 0:  # every process that opens a store makes it
        return
    if not os.access(path, os.W_OK):  # a process that may not write it cannot have the store open
        return
    lock = LockFile(path)
    try:
        if lock.holder(BROKER_BYTE) is not None:
            raise StoreInUse(f"{root} is open in another process: stop all that use it first")
    finally:
        lock.close()
