"""Whoever adds index entries may be killed between any two of them: the next one goes on, and no key is there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.log.index_file import paths
from rmqclient.store.log.query import END_OF_TIME
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.appending import keys_of
from tests.support.oracle.index import check_index
from tests.support.oracle.views import published_records
from tests.support.stores import SMALL, TOPIC, abandon

POINTS = [CrashPoint.INDEX_SLOT_WRITTEN, CrashPoint.INDEX_FILE_FULL, CrashPoint.INDEX_WRITTEN]

# Three entries a message and 39 a file: the 13th message fills the first one.
SURVIVED = {CrashPoint.INDEX_SLOT_WRITTEN: range(0, 84, 5), CrashPoint.INDEX_FILE_FULL: range(3)}


@pytest.mark.crash
@pytest.mark.guarantee("G11")
@pytest.mark.parametrize(
    ("point", "survive"), [(point, survive) for point in POINTS for survive in SURVIVED.get(point, range(0, 30, 7))]
)
def test_every_key_is_in_the_index_once_after_a_kill(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int
) -> None:
    said = nursery.kill_at_its_point(order_for(root, point, survive))

    # Then somebody who lives goes on with the index
    store.index.catch_up()
    assert check_index(root, SMALL.index_slots) == []
    for number in range(len(said)):
        key = keys_of(number)[0]
        assert [found.keys[0] for found in store.messages.by_key(TOPIC, key)] == [key]


@pytest.mark.crash
@pytest.mark.guarantee("G11")
@pytest.mark.parametrize("survive", SURVIVED[CrashPoint.INDEX_SLOT_WRITTEN])
def test_a_slot_that_points_to_an_entry_that_does_not_count_yet_leads_on_to_those_behind_it(
    store: MessageStore, root: Path, nursery: Nursery, survive: int
) -> None:
    # Given somebody who is in the middle of an entry: a reader does not wait for him
    said = nursery.kill_at_its_point(order_for(root, CrashPoint.INDEX_SLOT_WRITTEN, survive))
    sent = published_records(store)[1:]
    for number in range(len(said)):
        found = store.index_files.candidates(TOPIC, keys_of(number)[0], 0, END_OF_TIME)
        assert sent[number].commit_log_offset in found


@pytest.mark.crash
@pytest.mark.parametrize("rebooted", [False, True])
@pytest.mark.parametrize("survive", [0, 38, 39, 40, 80])
def test_everybody_may_be_killed_at_once(
    store: MessageStore, root: Path, nursery: Nursery, survive: int, rebooted: bool
) -> None:
    nursery.kill_at_its_point(order_for(root, CrashPoint.INDEX_SLOT_WRITTEN, survive))
    abandon(store)
    if rebooted:
        (root / "shared").unlink()

    with open_store(root, housekeeping=False):
        pass
    problems = check_index(root, SMALL.index_slots)
    # The keys of a record can be divided over two files, of which only the first one is believed after a reboot
    assert problems == [] or (rebooted and len(problems) == 1 and "entries for" in problems[0])


@pytest.mark.crash
def test_a_file_whose_maker_died_before_its_header_is_used(store: MessageStore, root: Path, nursery: Nursery) -> None:
    nursery.kill_at_its_point(order_for(root, CrashPoint.INDEX_FILE_FULL))
    (full,) = paths(root)
    following = root / "index" / f"{int(full.name) + 1}"
    following.write_bytes(bytes(full.stat().st_size))
    store.index.catch_up()
    assert paths(root) == [full, following]
    assert check_index(root, SMALL.index_slots) == []


def order_for(root: Path, point: CrashPoint, survive: int = 0) -> Order:
    """Ask for a process that sends and indexes messages, and dies."""
    notes = str(root.with_name("notes"))
    return Order(scenario="index", root=str(root), notes=notes, point=point.name, survive=survive)
