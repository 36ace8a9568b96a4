"""What stands in the files after a sender is killed, for every place of the append at which it can be killed.

A killed process loses nothing that it stored in a mapping, so these tests prove the *order* of the stores. Each looks
twice: as a reader that was there all along and repairs nothing, and after a repair, by a survivor or by recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, power_cut_image, published_records, queued_records, stored_bodies
from tests.support.stores import SMALL, TOPIC, abandon, appender_of, body_of
from tests.support.sweeps import each_seventh

IN_EVERY_APPEND = [point for point in CrashPoint if point <= CrashPoint.APPEND_FINISHED]
IN_ROLLS_ONLY = {CrashPoint.BLANK_WRITTEN}
ONCE_A_FILE = {CrashPoint.BLANK_WRITTEN, CrashPoint.FILE_ALLOCATED}


@dataclass(frozen=True)
class Kind:
    """What is appended."""

    batch: int
    body_bytes: int

    @property
    def rolls(self) -> bool:
        return self.body_bytes > 1_000


KINDS = {
    "single": Kind(1, 60),
    "batch": Kind(5, 60),
    "single that rolls": Kind(1, 1_500),
    "batch that rolls": Kind(5, 1_500),
}

CASES = [
    pytest.param(kind, point, id=f"{name}-{point.name.lower()}")
    for name, kind in KINDS.items()
    for point in [*IN_EVERY_APPEND, CrashPoint.FILE_ALLOCATED]
    if kind.rolls or point not in IN_ROLLS_ONLY
]


def go_on(store: MessageStore) -> MessageStore:
    """The survivor uses the handle that it had before the death."""
    return store


def reopen(store: MessageStore) -> MessageStore:
    """Everybody else dies, too, and the next one to open the store recovers it."""
    abandon(store)
    return open_store(store.root)


@pytest.mark.crash
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G3")
@pytest.mark.parametrize(
    ("survive", "repaired"),
    [
        (0, go_on),
        pytest.param(0, reopen, marks=pytest.mark.sweep),
        (1, reopen),
        pytest.param(200, go_on, marks=pytest.mark.sweep),
    ],
)
@pytest.mark.parametrize(("kind", "point"), CASES)
def test_a_killed_append_leaves_whole_messages_only(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    kind: Kind,
    point: CrashPoint,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    # Given a sender killed in the middle of an append, while others have the store open
    passes = min(survive, 40) if point in ONCE_A_FILE else survive
    notes = nursery.kill_at_its_point(append_order(root, kind, point, passes))
    returned = int(notes[-1]) if notes else 0
    acknowledged = [b"first", *(body_of(number, kind.body_bytes) for number in range(returned))]
    in_flight = [body_of(number, kind.body_bytes) for number in range(returned, returned + kind.batch)]

    # Then a reader that repairs nothing sees whole messages, and everything that was acknowledged
    assert bodies(published_records(store)) in (acknowledged, acknowledged + in_flight)
    assert bodies(queued_records(store)) in (acknowledged, acknowledged + in_flight)

    # And a store whose log has lost everything unacknowledged in a power cut recovers
    check_power_cut(store, root.with_name("image"), acknowledged)

    # And the next one who appends, or opens the store, finds the append of the dead one undone or done as a whole
    survivor = repaired(store)
    sent = appender_of(survivor).append(Message(TOPIC, b"after"))
    expected = acknowledged + (in_flight if is_done(point) else [])
    assert bodies(queued_records(survivor)) == [*expected, b"after"]
    assert sent.queue_offset == len(expected)

    # And everything is in order on the disk
    survivor.close()
    assert reference.check_store(root) == []
    assert stored_bodies(root) == [*expected, b"after"]


@pytest.mark.crash
@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("survive", each_seventh([0, 1, 5]))
@pytest.mark.parametrize(
    ("first_point", "point"),
    [
        (CrashPoint.RECORD_HALF_COPIED, CrashPoint.REPAIR_STARTED),
        (CrashPoint.RECORDS_COPIED, CrashPoint.REPAIR_ZEROED),
        (CrashPoint.BLANK_WRITTEN, CrashPoint.REPAIR_ZEROED),
        (CrashPoint.RECORDS_ANNOUNCED, CrashPoint.REPAIR_STARTED),
        (CrashPoint.RECORDS_ANNOUNCED, CrashPoint.REPAIR_ENTRY_WRITTEN),
        (CrashPoint.RECORDS_PUBLISHED, CrashPoint.REPAIR_ENTRY_WRITTEN),
    ],
)
@pytest.mark.parametrize("repaired", [go_on, reopen])
def test_a_repair_whose_process_is_killed_is_done_again(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    first_point: CrashPoint,
    point: CrashPoint,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    # Given a batch whose sender was killed
    kind = Kind(10, 1_500)
    notes = nursery.kill_at_its_point(append_order(root, kind, first_point, survive=3))
    returned = int(notes[-1])
    acknowledged = [b"first", *(body_of(number, kind.body_bytes) for number in range(returned))]
    in_flight = [body_of(number, kind.body_bytes) for number in range(returned, returned + kind.batch)]

    # When whoever repairs it is killed as well; each repair passes the one point of a single stage once
    passes = survive if point is CrashPoint.REPAIR_ENTRY_WRITTEN else 0
    repairer = append_order(root, KINDS["single"], point, passes, notes="repairer")
    assert nursery.kill_at_its_point(repairer) == []

    # Then the next one leaves all of the batch or nothing of it
    survivor = repaired(store)
    appender_of(survivor).append(Message(TOPIC, b"after"))
    expected = [*acknowledged, *(in_flight if is_done(first_point) else []), b"after"]
    assert bodies(queued_records(survivor)) == expected
    survivor.close()
    assert reference.check_store(root) == []
    assert stored_bodies(root) == expected


@pytest.mark.crash
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("survive", [0, 1, 50])
@pytest.mark.parametrize("repaired", [go_on, reopen])
def test_the_next_leader_takes_the_flush_over(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    # Given a SYNC sender killed as the leader of a flush
    order = Order(
        scenario="append_durably",
        root=str(root),
        notes=str(root.with_name("notes")),
        point=CrashPoint.FLUSH_SYNCED.name,
        survive=survive,
    )
    notes = nursery.kill_at_its_point(order)

    # Then each send had returned only when its record was flushed
    assert [note.split()[0] for note in notes] == [str(number + 1) for number in range(survive)]
    assert all(int(note.split()[1]) >= 0 for note in notes)
    assert store.state.flushed_to < store.state.published_to

    # And the next one flushes what the dead one did not record
    survivor = repaired(store)
    result = appender_of(survivor).append(Message(TOPIC, b"after"))
    survivor.flusher.wait_until_flushed(result.commit_log_end)
    assert survivor.state.flushed_to == survivor.state.published_to
    expected = [b"first", *(body_of(number) for number in range(survive + 1)), b"after"]
    assert bodies(queued_records(survivor)) == expected
    survivor.close()
    assert reference.check_store(root) == []


def append_order(root: Path, kind: Kind, point: CrashPoint, survive: int, notes: str = "notes") -> Order:
    return Order(
        scenario="append",
        root=str(root),
        notes=str(root.with_name(notes)),
        point=point.name,
        survive=survive,
        batch=kind.batch,
        body_bytes=kind.body_bytes,
    )


def is_done(point: CrashPoint) -> bool:
    """Tell whether the append of a process that died at ``point`` is brought to its end, and not undone."""
    return CrashPoint.RECORDS_ANNOUNCED <= point <= CrashPoint.APPEND_FINISHED


def check_power_cut(store: MessageStore, image: Path, acknowledged: list[bytes]) -> None:
    records = published_records(store)[: len(acknowledged)]
    end = records[-1].commit_log_offset + records[-1].size
    power_cut_image(store.root, image, end, SMALL.commit_log_file_bytes)
    open_store(image, housekeeping=False).close()
    assert reference.check_store(image) == []
    assert stored_bodies(image) == acknowledged
