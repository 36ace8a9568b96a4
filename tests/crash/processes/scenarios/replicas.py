"""Children that follow another store."""

from __future__ import annotations

from pathlib import Path

from rmqclient.store import open_store
from rmqclient.store.recovery.replica import become_replica
from rmqclient.store.settings.replica_mark import ReplicaMark, read_mark
from tests.crash.processes.order import Note, Order
from tests.replication.pairs import NO_BROKER, feed, fill, log_bytes
from tests.support.stores import SMALL

PIECE = 5_000


def replicate(order: Order, note: Note) -> None:
    """Append to a store, then give its log to a replica beside it, piece by piece; note where that ended."""
    copy = Path(order.root).with_name("replica")
    if not copy.is_dir() or read_mark(copy) is None:
        become_replica(copy, SMALL, ReplicaMark(NO_BROKER, NO_BROKER, 1))
    store = open_store(order.root, housekeeping=False)
    fill(store, 60)
    log = open_store(copy, housekeeping=False).replica_log()
    order.arm()
    feed(log, log_bytes(store)[log.end :], PIECE)
    note(log.end)
