"""Every crash point is reached by a scenario of these tests: one that no process reaches proves nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.settings.replication import Replication
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.databases import connector_beside, fill_outbox, open_books
from tests.support.oracle import reference
from tests.support.oracle.views import lose_last_operation, stored_bodies
from tests.support.stores import SMALL, TOPIC, abandon, appender_of, begin_transactions

ROLLING = 1_500
"""Bytes of a body so large that a commit log file is soon full."""


TRANSACTION = range(CrashPoint.HALF_PASSED, CrashPoint.TRANSACTIONS_SETTLED + 1)
TIMER = range(CrashPoint.TIMER_CLEARING, CrashPoint.TIMER_DONE_TEMPORARY + 1)
OUTBOX = (CrashPoint.OUTBOX_CLAIMED, CrashPoint.OUTBOX_SENT)
CRON = (CrashPoint.CRON_CALLED, CrashPoint.CRON_SENT)
INBOX = (CrashPoint.INBOX_MARKED, CrashPoint.INBOX_HANDLED, CrashPoint.INBOX_COMMITTED)
REPLICA = range(CrashPoint.REPLICA_ENTRIES_WRITTEN, CrashPoint.REPLICA_PUBLISHED + 1)
RETURNS = range(CrashPoint.CUT_ANNOUNCED, CrashPoint.FENCE_NOTED + 1)
ACKS = range(CrashPoint.REPLICATION_TEMPORARY, CrashPoint.REPLICATED_SAID + 1)
HISTORY = range(CrashPoint.HISTORY_HALF_WRITTEN, CrashPoint.HISTORY_WRITTEN + 1)
COMPACTION = range(CrashPoint.COMPACTION_HALF_WRITTEN, CrashPoint.COMPACT_TOPIC_NAMED + 1)

ONE_ROUND = {
    **dict.fromkeys(OUTBOX, "relay"),
    **dict.fromkeys(INBOX, "handle_once"),
    CrashPoint.ONCE_NOT_FOUND: "send_once",
}
BY_NAME: dict[int, str] = {
    **dict.fromkeys(TIMER, "persist_timer"),
    **dict.fromkeys(CRON, "tick"),
    **dict.fromkeys(COMPACTION, "compact"),
    **dict.fromkeys(HISTORY, "keep_history"),
    **dict.fromkeys(REPLICA, "replicate"),
    **dict.fromkeys(ACKS, "send_replicated"),
    **dict.fromkeys(RETURNS, "swap_roles"),
    **dict.fromkeys(TRANSACTION, "check"),
    CrashPoint.OTHER_QUEUE_PUBLISHED: "decide",
    CrashPoint.COMMIT_HALF_BACK: "commit",
    CrashPoint.FLUSH_SYNCED: "append_durably",
    CrashPoint.OFFSETS_TEMPORARY: "write_offsets",
    CrashPoint.PROGRESS_ADVANCED: "persist_schedule",
    CrashPoint.DELAY_OFFSETS_TEMPORARY: "persist_schedule",
    CrashPoint.GROUP_SLOT_FILLED: "begin",
}
"""The scenario that reaches a point."""


def scenario_of(point: CrashPoint) -> Order:
    """Return what reaches a point; where the store and the notes are is left open."""
    order = Order(scenario="append", root="", notes="", point=point.name)
    if point is CrashPoint.BLANK_WRITTEN or point is CrashPoint.FILE_ALLOCATED:
        return replace(order, body_bytes=ROLLING)
    if CrashPoint.ACK_LOCKED <= point <= CrashPoint.ACK_FINISHED:
        return replace(order, scenario="acknowledge")
    if point in BY_NAME:
        return replace(order, scenario=BY_NAME[point])
    if point in ONE_ROUND:
        return replace(order, scenario=ONE_ROUND[point], rounds=1)
    if CrashPoint.SEEK_FENCED <= point <= CrashPoint.GROUP_SLOT_FILLED:
        return replace(order, scenario="seek")
    if CrashPoint.INDEX_SLOT_WRITTEN <= point <= CrashPoint.INDEX_WRITTEN:
        return replace(order, scenario="index")
    if CrashPoint.RECOVERY_PLANNED <= point <= CrashPoint.CLOSE_CHECKPOINTED:
        return replace(order, scenario="open_and_close")
    if CrashPoint.RETENTION_ADVANCED <= point <= CrashPoint.RETENTION_INDEX_FILE_REMOVED:
        return replace(order, scenario="clean", body_bytes=ROLLING)
    return order


@pytest.mark.crash
@pytest.mark.parametrize("point", CrashPoint, ids=lambda point: point.name.lower())
def test_a_process_dies_there_and_the_store_is_whole_afterwards(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint
) -> None:
    # Given, for a repair, an append that is due to be repaired, and for an opening that nobody has the store open
    notes = str(root.with_name("notes"))
    if CrashPoint.REPAIR_STARTED <= point <= CrashPoint.REPAIR_ENTRY_WRITTEN:
        before = CrashPoint.RECORDS_COPIED if point is CrashPoint.REPAIR_ZEROED else CrashPoint.RECORDS_ANNOUNCED
        nursery.kill_at_its_point(Order(scenario="append", root=str(root), notes=notes, point=before.name))
    if CrashPoint.RECOVERY_PLANNED <= point <= CrashPoint.CLOSE_CHECKPOINTED:
        abandon(store)

    if point is CrashPoint.OTHER_QUEUE_PUBLISHED:
        begin_transactions(store, 3)
    if point in TRANSACTION:
        begin_transactions(store, 3)
        store.transactions.decide(store.transactions.pending()[0], commit=True)
        lose_last_operation(store)

    if point in OUTBOX:
        fill_outbox(root, 3)
    if point in INBOX:
        open_books(connector_beside(root))

    # When a process is killed at the point
    nursery.kill_at_its_point(replace(scenario_of(point), root=str(root), notes=notes))

    # Then the store is whole
    abandon(store)
    with open_store(root, SMALL, housekeeping=False) as again:
        again.log_sending.configure(Replication())
        appender_of(again).append(Message(TOPIC, b"after"))
    assert reference.check_store(root) == []
    assert stored_bodies(root)[-1] == b"after"
