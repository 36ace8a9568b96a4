"""Commits of remote clients: a position in a queue, forwards or back, under the epoch of a lease."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.errors import OffsetOutOfRange, StoreBusy
from rmqclient.store.kernel._kernel import commit_offset
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.shared_state import queue_slot_at
from tests.support.oracle.views import acknowledged_bits
from tests.support.stores import GROUP, QUEUE, SMALL, SPAN, TOPIC, appender_of, grant_of

COUNT = 6_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with open_store(tmp_path_factory.mktemp("store") / "store", SMALL, housekeeping=False) as opened:
        appender = appender_of(opened)
        for _ in range(0, COUNT, 60):
            appender.append_batch([Message(TOPIC, b"")] * 60)
        yield opened


@pytest.fixture
def slot(store: MessageStore) -> GroupQueueSlot:
    """Return the place of a group that stands at the beginning and has finished nothing."""
    found = store.groups.find_or_add(GROUP, store.topics.slot(QUEUE), 0)
    with found.locked(2_000):
        found.seek(0)
    return found


@given(offsets=st.lists(st.integers(0, COUNT), min_size=1, max_size=8))
@settings(max_examples=50)
def test_a_commit_moves_the_group_exactly_there(store: MessageStore, offsets: list[int]) -> None:
    grant = grant_of(store)
    place = store.groups.find_or_add(GROUP, store.topics.slot(QUEUE), 0)
    for offset in offsets:
        assert place.commit(offset, grant.epoch, 2_000)
        assert place.committed_offset == place.load("advance_to") == grant.committed_offset == offset
    assert acknowledged_bits(store, GROUP) == set()
    taken = grant_of(store).take(5, SPAN)
    assert [message.queue_offset for message in taken] == list(range(offsets[-1], COUNT))[:5]


def test_an_old_epoch_moves_nothing(store: MessageStore, slot: GroupQueueSlot) -> None:
    old = grant_of(store).epoch
    present = grant_of(store).epoch
    assert not slot.commit(100, old, 2_000)
    assert slot.committed_offset == 0
    assert slot.commit(100, present, 2_000)
    assert not slot.commit(50, old, 2_000)
    assert slot.committed_offset == 100


def test_what_others_have_finished_ahead_is_passed(store: MessageStore, slot: GroupQueueSlot) -> None:
    grant = grant_of(store)
    assert grant.acknowledge_offsets([12, 13, 20])
    assert slot.commit(10, grant.epoch, 2_000)
    assert slot.committed_offset == 10
    assert slot.commit(12, grant.epoch, 2_000)
    assert slot.committed_offset == 14
    assert acknowledged_bits(store, GROUP) == {20}


def test_a_commit_back_forgets_what_is_finished_ahead(store: MessageStore, slot: GroupQueueSlot) -> None:
    grant = grant_of(store)
    assert slot.commit(10, grant.epoch, 2_000)
    assert grant.acknowledge_offsets([12, 13, 20])
    assert slot.commit(9, grant.epoch, 2_000)
    assert acknowledged_bits(store, GROUP) == set()
    assert [message.queue_offset for message in grant_of(store).take(5, SPAN)] == [9, 10, 11, 12, 13]


def test_an_offset_that_the_queue_never_had_is_refused(store: MessageStore, slot: GroupQueueSlot) -> None:
    epoch = grant_of(store).epoch
    assert slot.commit(COUNT, epoch, 2_000)
    with pytest.raises(OffsetOutOfRange):
        slot.commit(COUNT + 1, epoch, 2_000)
    with pytest.raises(OverflowError):
        slot.commit(-1, epoch, 2_000)
    assert slot.committed_offset == COUNT


def test_a_seek_that_was_cut_short_is_finished_first(store: MessageStore, slot: GroupQueueSlot) -> None:
    assert grant_of(store).acknowledge_offsets([70])
    slot.store("epoch", slot.load("epoch") + 1)
    slot.store("seek_to", 3_001)
    assert slot.commit(3_500, slot.load("epoch"), 2_000)
    assert (slot.committed_offset, slot.load("seek_to")) == (3_500, 0)
    assert acknowledged_bits(store, GROUP) == set()


def test_a_busy_slot_is_waited_for_with_a_bound(store: MessageStore, slot: GroupQueueSlot) -> None:
    epoch = grant_of(store).epoch
    with slot.locked(2_000), pytest.raises(StoreBusy):
        slot.commit(1, epoch, 50)


@pytest.mark.parametrize(("group_queue_at", "queue_at"), [(0, 4_096), (1 << 40, 4_096), (4_096, 1 << 40), (-8, 4_096)])
def test_slots_outside_of_the_file_are_refused(
    store: MessageStore, slot: GroupQueueSlot, group_queue_at: int, queue_at: int
) -> None:
    with pytest.raises(ValueError, match="no slots"):
        commit_offset(store.state.mapping, group_queue_at, queue_at, 0, 0, 50)
    assert commit_offset(store.state.mapping, slot.at, queue_slot_at(slot.queue_slot), 0, 0, 50) == 0
