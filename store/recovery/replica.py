"""Replica: a store becomes a copy of another one, or its own again. Both need the directory for themselves.

``become_replica`` is for a new directory, or for one that is a replica already: a store with messages of its own is
refused, because they are in no other log. ``promote`` takes the mark away. The next opening then recovers the store as
after a reboot: what its primary has delivered is found in the log, and no group stands behind the end of a queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqclient.store.config import StoreConfig
from rmqclient.store.errors import StoreInUse, StoreUnusable, store_errors
from rmqclient.store.files.file_lock import BROKER_BYTE, GATE_BYTE, LockFile
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.files.file_system import check_file_system
from rmqclient.store.log.shape import is_empty
from rmqclient.store.recovery.opening import files_of, make_root, settle_config
from rmqclient.store.settings import replica_mark
from rmqclient.store.settings.replica_mark import ReplicaMark

_TIMEOUT_S = 120.0


def become_replica(root: Path, config: StoreConfig | None, mark: ReplicaMark) -> None:
    """Let a directory follow a primary, for good; it is made when it is missing.

    Raises StoreUnusable for a store that has messages and is no replica, StoreInUse while a process has it open, and
    what opening raises.
    """
    make_root(root, create=True)
    check_file_system(root, allow_network=config is not None and config.allow_network_file_system)
    settled = settle_config(root, config)
    with _alone(root):
        known = replica_mark.read_mark(root)
        if known is None and _has_messages(root, settled):
            raise StoreUnusable(
                f"{root} holds messages of its own, and no other store has them: nothing was changed. Give a new "
                "directory for the replica"
            )
        if known is None or (known.primary, known.broker) != (mark.primary, mark.broker):
            replica_mark.write_mark(root, mark)


def promote(root: Path) -> ReplicaMark:
    """Make a replica a primary, for good; return whom it followed.

    Raises StoreUnusable for a store that is no replica, StoreInUse while a process has it open.
    """
    make_root(root, create=False)
    with _alone(root):
        mark = replica_mark.read_mark(root)
        if mark is None:
            raise StoreUnusable(f"{root} is no replica: nothing was changed")
        replica_mark.remove_mark(root)
    return mark


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Have the directory while no process has its store open. Raises StoreInUse, StoreBusy."""
    with store_errors(f"{root} cannot be changed"):
        lock = LockFile(root / "lock")
        try:
            with lock.held(GATE_BYTE, _TIMEOUT_S):
                if not lock.try_exclusive(BROKER_BYTE):
                    pid = lock.holder(BROKER_BYTE)
                    raise StoreInUse(
                        f"{root} is open{f' in process {pid}' if pid else ''}: end every process that uses it first"
                    )
                yield
        finally:
            lock.close()


def _has_messages(root: Path, config: StoreConfig) -> bool:
    files, _ = files_of(root, config, MappingCache(config.max_mapped_files))
    return any(not is_empty(files, base) for base in files.bases())
