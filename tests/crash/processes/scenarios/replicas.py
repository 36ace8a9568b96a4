"""Children that follow another store."""

from __future__ import annotations

from pathlib import Path

from rmqclient.store import Message, boottime, open_store
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.recovery.replica import become_replica, promote, return_as_replica
from rmqclient.store.settings.lineage import begin_lineage
from rmqclient.store.settings.replica_mark import ReplicaMark, read_mark
from rmqclient.store.settings.replication import OnLost, Replication, Sync
from tests.crash.processes.order import Note, Order
from tests.replication.pairs import NO_BROKER, feed, fill, log_bytes
from tests.support.stores import QUEUE, SMALL, TOPIC, appender_of

PIECE = 5_000


def replicate(order: Order, note: Note) -> None:
    """Append to a store, then give its log to a replica beside it, piece by piece; note where that ended."""
    copy = Path(order.root).with_name("replica")
    if not copy.is_dir() or read_mark(copy) is None:
        become_replica(copy, SMALL, ReplicaMark(NO_BROKER, NO_BROKER, 1))
    store = open_store(order.root, housekeeping=False)
    fill(store, 60)
    log = ReplicaLog(open_store(copy, housekeeping=False))
    order.arm()
    feed(log, log_bytes(store)[log.end :], PIECE)
    note(log.end)


def send_replicated(order: Order, note: Note) -> None:
    """Send with a replica that has everything, then without one; note what each send said of it."""
    store = open_store(order.root, housekeeping=False)
    store.log_sending.configure(Replication(Sync.MEMORY, OnLost.DEGRADE, timeout_ms=30_000))
    appender = appender_of(store)
    store.log_sending.say(1 << 40, boottime() + 10**12)
    note(appender.append(Message(TOPIC, b"with")).replicated)
    order.arm()
    store.log_sending.say(0, 0)
    for _ in range(order.rounds or 3):
        note(appender.append(Message(TOPIC, b"without")).replicated)


def swap_roles(order: Order, note: Note) -> None:
    """Cut a store beside this one back and let it follow, promote it, then fence it; note where it ended and is cut."""
    root = Path(order.root).with_name("returned")
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store, 60)
        end, cut_to = store.state.published_to, store.messages.at(QUEUE, 20).commit_log_offset
        begin_lineage(root)
        Path(order.notes).with_name("tail").write_bytes(log_bytes(store, cut_to))
    note(end)
    note(cut_to)
    order.arm()
    return_as_replica(root, ReplicaMark(NO_BROKER, NO_BROKER, 1, cut_to=cut_to), end)
    with open_store(root, SMALL, housekeeping=False):
        pass
    promote(root)
    with open_store(root, SMALL, housekeeping=False) as store:
        store.fence("db2", 1_000_000)


def fence(order: Order, note: Note) -> None:
    """Let a primary know that another store took its place; note where its log ended."""
    store = open_store(order.root, housekeeping=False)
    order.arm()
    note(store.fence("db2", 1_000_000))
