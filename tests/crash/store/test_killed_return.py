"""Kills of a store on its way from one role to the other: while its log is cut, and while it is promoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.recovery.cutting import DIVERGED
from rmqclient.store.recovery.replica import promote
from rmqclient.store.settings.lineage import read_lineage
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.replication.pairs import fill, log_bytes
from tests.support.oracle import reference
from tests.support.stores import SMALL

POINTS = [
    CrashPoint.CUT_ANNOUNCED,
    CrashPoint.CUT_HALF_ZEROED,
    CrashPoint.CUT_ZEROED,
    CrashPoint.RECOVERY_TAIL_CUT,
    CrashPoint.RECOVERY_APPLIED,
    CrashPoint.PROMOTION_EPOCH_WRITTEN,
]


@pytest.mark.crash
@pytest.mark.guarantee("G82")
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.lower())
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
