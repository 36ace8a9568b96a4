"""Replica: a store becomes a copy of another one, or its own again. Both need the directory for themselves.

``become_replica`` is for a new directory, or for one that is a replica already: a store with messages of its own is
refused, because they may be in no other log. ``return_as_replica`` is for such a store, when it is known which of them
those are. ``promote`` begins an epoch and takes the mark away. The next opening then recovers the store as after a
reboot: what its primary has delivered is found in the log, and no group stands behind the end of a queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rmqclient.store.config import StoreConfig
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreInUse, StoreUnusable, store_errors
from rmqclient.store.files.file_lock import BROKER_BYTE, GATE_BYTE, LockFile
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.files.file_system import check_file_system
from rmqclient.store.kernel._kernel import scope
from rmqclient.store.log.shape import is_empty
from rmqclient.store.recovery import cutting
from rmqclient.store.recovery.opening import files_of, make_root, settle_config
from rmqclient.store.recovery.recovery import ABORT
from rmqclient.store.settings import checkpoint, replica_mark
from rmqclient.store.settings.lineage import after_promotion, begin_lineage, begun, read_lineage, write_lineage
from rmqclient.store.settings.replica_mark import Kind, ReplicaMark
from rmqclient.store.settings.replication import read_replication, write_replication

_TIMEOUT_S = 120.0


def become_replica(root: Path, config: StoreConfig | None, mark: ReplicaMark) -> None:
    """Let a directory follow a primary, for good; it is made when it is missing.

    Raises StoreUnusable for a store that has messages and is not a replica, StoreInUse while a process has it open, and
    what opening raises.
    """
    make_root(root, create=True)
    check_file_system(root, allow_network=config is not None and config.allow_network_file_system)
    settled = settle_config(root, config)
    with _alone(root):
        known = replica_mark.read_mark(root)
        if known is not None and known.kind is not Kind.FOLLOWER:
            raise StoreUnusable(
                f"{root} was a primary, and may have messages that no other store has: nothing was changed. `rmq "
                "replica rejoin` shows them"
            )
        if known is None and _has_messages(root, settled):
            raise StoreUnusable(
                f"{root} holds messages of its own, and no other store has them: nothing was changed. Give a new "
                "directory for the replica"
            )
        if known is None:
            replica_mark.write_mark(root, mark)
        elif (known.primary, known.broker) != (mark.primary, mark.broker):
            elsewhere = replace(known, primary=mark.primary, broker=mark.broker, since_ms=mark.since_ms)
            replica_mark.write_mark(root, elsewhere)


def return_as_replica(root: Path, mark: ReplicaMark, end: int) -> Path | None:
    """Let a store that was a primary follow the one that took its place. ``mark.cut_to`` says where its log is cut.

    The next opening cuts it: see :mod:`rmqclient.store.recovery.cutting`. ``end`` is where the log ends, as the caller
    has seen it: raises StoreInUse when it ends elsewhere now, or a process has the store open. What stands behind the
    cut is kept in ``diverged``, in the file that is returned. Raises StoreUnusable, StoreFull, StoreCorrupt.
    """
    make_root(root, create=False)
    settled = settle_config(root, None)
    with _alone(root):
        if closed_end(root) != end:
            raise StoreInUse(f"{root} was used in the meantime: nothing was changed. Look again")
        files, _ = files_of(root, settled, MappingCache(settled.max_mapped_files))
        kept = cutting.keep(root, files, mark.cut_to, end, read_lineage(root).newest)
        replica_mark.write_mark(root, mark)
        _forget_missing(root)
    return kept


def promote(root: Path) -> ReplicaMark:
    """Make a store that takes nothing of its own a primary, for good, in an epoch of its own; return what it was.

    One that has lost power stays the primary, so its epoch is the next one: a replica that took its place is above it.
    Raises StoreUnusable for a store that is a primary, StoreInUse while a process has it open.
    """
    make_root(root, create=False)
    with _alone(root):
        mark = replica_mark.read_mark(root)
        if mark is None:
            raise StoreUnusable(f"{root} is not a replica: nothing was changed")
        known = begin_lineage(root)
        newest = max(known.newest, mark.epoch)
        number = newest + 1 if mark.kind is Kind.UNSETTLED else after_promotion(newest)
        write_lineage(root, known._replace(epochs=begun(known.epochs, closed_end(root), number)))
        reach(CrashPoint.PROMOTION_EPOCH_WRITTEN)
        if mark.kind is Kind.FOLLOWER:
            _forget_missing(root)  # again: a kill may have come before
        replica_mark.remove_mark(root)
    return mark


def _forget_missing(root: Path) -> None:
    """Forget what replicas lacked of a log that was cut back to what both have."""
    known = read_replication(root)
    if known.missing_from is not None:
        write_replication(root, known.missing(None, None))


def closed_end(root: Path) -> int:
    """Return where the log of a store ends that the last process has closed. Raises StoreInUse without such a close."""
    _, low_water = checkpoint.read(root)
    if (root / ABORT).exists() or low_water is None:
        raise StoreInUse(f"{root} was not closed in order: end every process that uses it, and look again")
    return low_water.flushed_to


@scope
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
                try:
                    yield
                finally:  # before the gate: whoever comes through it next finds the store free
                    lock.unlock(BROKER_BYTE)
        finally:
            lock.close()


def _has_messages(root: Path, config: StoreConfig) -> bool:
    files, _ = files_of(root, config, MappingCache(config.max_mapped_files))
    return any(not is_empty(files, base) for base in files.bases())
