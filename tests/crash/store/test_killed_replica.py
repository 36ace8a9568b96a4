"""Kills of the process that follows a primary: at each step, alone or beside a reader that stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.replication.pairs import feed, fill, log_bytes, open_replica
from tests.support.oracle import reference
from tests.support.stores import SMALL, abandon

POINTS = [point for point in CrashPoint if point.name.startswith("REPLICA_")]


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
            log = replica.replica_log()
            log.settle()
            assert log_bytes(replica) == content[: log.end]
            feed(log, content[log.end :], 5_000)
            assert log_bytes(replica) == content
    assert reference.check_store(copy) == []
