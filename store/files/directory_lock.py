"""Directory lock: one process at a time in a directory, by a lock file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqclient.store.errors import StoreBusy
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.kernel._kernel import scope

_LOCK_BYTE = 0


@scope
def directory_held(directory: Path, timeout_s: float, busy: str) -> Iterator[None]:
    """Keep other processes out of ``directory``, where a file ``lock`` is made, until the block ends.

    Raises StoreBusy, which says ``busy``, when another process is in for longer than ``timeout_s``.
    """
    lock = LockFile(directory / "lock")
    try:
        with lock.held(_LOCK_BYTE, timeout_s):
            yield
    except StoreBusy as error:
        if str(lock.path) not in str(error):
            raise
        raise StoreBusy(busy) from error
    finally:
        lock.close()
