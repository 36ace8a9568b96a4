"""Kills of the process that follows a primary, at each step, and of a store that goes from one role to the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.errors import StoreFenced
from rmqclient.store import MessageStore, open_store
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.recovery.cutting import DIVERGED
from rmqclient.store.recovery.replica import promote
from rmqclient.store.settings.lineage import begin_lineage, read_lineage
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.replication.pairs import feed, fill, log_bytes, open_replica
from tests.support.oracle import reference
from tests.support.stores import SMALL, abandon

POINTS = [point for point in CrashPoint if point.name.startswith("REPLICA_")]
ROLES = [
    CrashPoint.CUT_ANNOUNCED,
    CrashPoint.CUT_HALF_ZEROED,
    CrashPoint.CUT_ZEROED,
    CrashPoint.RECOVERY_TAIL_CUT,
    CrashPoint.RECOVERY_APPLIED,
    CrashPoint.PROMOTION_EPOCH_WRITTEN,
]


@pytest.mark.crash
@pytest.mark.guarantee("G71")
@pytest.mark.parametrize("with_reader", [False, True], ids=["alone", "beside_a_reader"])
@pytest.mark.parametrize("survive", [0, 7])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.lower())
def test_after_a_kill_a_replica_is_a_prefix_and_catches_up(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int, with_reader: bool
) -> None:
    # Given a primary with several files, and a reader that has the replica open, or none
    fill(store, 90)
    copy = root.with_name("replica")
    with open_replica(copy) as reader:
        if not with_reader:
            abandon(reader)

        # When the follower is killed
        order = Order(scenario="replicate", root=str(root), notes=str(root.with_name("notes")), point=point.name)
        nursery.kill_at_its_point(replace(order, survive=survive))
        content = log_bytes(store)

        # Then the replica has a prefix of the log, and takes the rest
        with open_store(copy, SMALL, housekeeping=False) as replica:
            log = ReplicaLog(replica)
            log.settle()
            assert log_bytes(replica) == content[: log.end]
            assert ends(replica) == ends(store, log.end)
            feed(log, content[log.end :], 5_000)
            assert log_bytes(replica) == content
    assert reference.check_store(copy) == []


def ends(store: MessageStore, before: int | None = None) -> dict[MessageQueue, int]:
    """Return how many messages each queue has; with ``before``, how many stand below that place of the log."""
    found = dict(zip(store.topics.all_queues(), store.topics.max_offsets(), strict=True))
    if before is None:
        return found
    entries = {
        queue: [store.consume_queues[queue].entry_or_none(number) for number in range(end)]
        for queue, end in found.items()
    }
    return {
        queue: sum(each is not None and each.commit_log_offset < before for each in of_queue)
        for queue, of_queue in entries.items()
    }


@pytest.mark.crash
@pytest.mark.guarantee("G81")
def test_a_fence_whose_process_was_killed_holds_for_all_when_the_next_one_opens_the_store(
    store: MessageStore, root: Path, nursery: Nursery
) -> None:
    # Given a process that has the store open when the one that fences it is killed at the mark
    begin_lineage(root)
    nursery.kill_at_its_point(
        Order(scenario="fence", root=str(root), notes=str(root.with_name("notes")), point="FENCE_NOTED")
    )
    fill(store, 1)  # it has not heard of it

    # When another process opens the store, then nobody appends any more
    with open_store(root, SMALL, housekeeping=False) as another:
        for each in (another, store):
            with pytest.raises(StoreFenced, match="epoch 1000000"):
                fill(each, 1)


@pytest.mark.crash
@pytest.mark.guarantee("G82")
@pytest.mark.parametrize("point", ROLES, ids=lambda point: point.name.lower())
def test_after_a_kill_the_log_is_cut_at_the_byte_and_what_was_cut_is_kept(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint
) -> None:
    # Given a store that was killed while it was cut back, or promoted
    notes = root.with_name("notes")
    said = nursery.kill_at_its_point(Order(scenario="swap_roles", root=str(root), notes=str(notes), point=point.name))
    cut_to, returned = int(said[1]), root.with_name("returned")

    # When it is opened again, it ends where it was cut, with zeros behind, and the rest is in a file
    with open_store(returned, SMALL, housekeeping=False) as again:
        assert again.state.published_to == cut_to
        files = again.log_files
        rest = files.read(
            files.base_of(cut_to), cut_to % files.file_bytes, files.file_bytes - cut_to % files.file_bytes
        )
        assert rest.count(0) == len(rest)
    (kept,) = (returned / DIVERGED).iterdir()
    assert kept.read_bytes() == notes.with_name("tail").read_bytes()
    assert reference.check_store(returned) == []

    # And it is promoted, once or again
    promote(returned)
    assert read_lineage(returned).epochs[-1].start == cut_to
    with open_store(returned, SMALL, housekeeping=False) as primary:
        before = log_bytes(primary)
        fill(primary, 5, first=900)
        assert log_bytes(primary).startswith(before)
    assert reference.check_store(returned) == []
