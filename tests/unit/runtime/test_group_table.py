"""The group-queue table: who finds and makes slots, what a slot keeps, and what goes to ``consumerOffset.json``."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqclient.store import Message, MessageQueue, MessageStore, StoreConfig, layout, open_store
from rmqclient.store.errors import StoreBusy, TableFull
from rmqclient.store.runtime.group_table import GroupTable
from rmqclient.store.runtime.shared_state import _has_sound_tables, has_sound_offsets, running_slot_at
from rmqclient.store.settings import config_file, document
from tests.support.stores import abandon, grant_of
from tests.support.sweeps import share_of

SMALL = StoreConfig(commit_log_file_bytes=36_864, max_body_bytes=2_048, consume_queue_file_entries=64)
QUEUE = MessageQueue("t", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        opened.topics.create("t", 4)
        yield opened


@pytest.fixture
def other(store: MessageStore) -> GroupTable:
    """What another process knows of the table."""
    return GroupTable(store.state, 100)


def test_a_slot_is_made_once_for_a_group_and_a_queue(store: MessageStore, other: GroupTable) -> None:
    assert other.find("group", 1) is None
    made = store.groups.find_or_add("group", 1, 7)
    assert (made.group, made.queue_slot, made.committed_offset) == ("group", 1, 7)
    again = other.find_or_add("group", 1, 99)
    assert (again.number, again.committed_offset) == (made.number, 7)
    found = other.find("group", 1)
    assert found is not None
    assert found.number == made.number


def test_groups_and_queues_have_slots_of_their_own(store: MessageStore, other: GroupTable) -> None:
    numbers = {store.groups.find_or_add(group, slot, 0).number for group in "ab" for slot in range(4)}
    assert len(numbers) == 8
    assert other.groups() == ["a", "b"]
    assert {(slot.group, slot.queue_slot) for slot in other} == {(group, slot) for group in "ab" for slot in range(4)}


def test_many_who_want_the_same_slot_at_once_get_the_same(store: MessageStore) -> None:
    found: list[int] = []

    def want() -> None:
        found.append(GroupTable(store.state, 5_000).find_or_add("group", 2, 0).number)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_the_longest_name_fits(store: MessageStore, other: GroupTable) -> None:
    store.groups.find_or_add("g" * 127, 0, 0)
    assert other.groups() == ["g" * 127]


def test_a_full_table_says_so(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "GROUP_QUEUE_SLOTS", 2)
    store.groups.find_or_add("group", 0, 0)
    store.groups.find_or_add("group", 1, 0)
    assert store.groups.find_or_add("group", 1, 0).number == 1
    with pytest.raises(TableFull, match="all 2"):
        store.groups.find_or_add("group", 2, 0)


@settings(max_examples=share_of(30), deadline=None)
@given(
    committed=st.integers(0, 2**40),
    bits=st.integers(0, 2**layout.ACK_WINDOW - 1),
    epoch=st.integers(0, 2**48 - 1),
)
def test_a_slot_keeps_what_was_put_in(committed: int, bits: int, epoch: int) -> None:
    slot = THE_STORE.groups.find_or_add("group", 0, 0)
    slot.restore(committed, bits, epoch)
    assert (slot.committed_offset, slot.load("advance_to")) == (committed, committed)
    assert (slot.acknowledged_bits(), slot.load("epoch")) == (bits, epoch)


@pytest.fixture(autouse=True)
def _one_store_for_hypothesis(store: MessageStore) -> None:
    global THE_STORE
    THE_STORE = store


THE_STORE: MessageStore


def test_a_dead_owners_mutex_goes_to_the_next_one(store: MessageStore) -> None:
    slot = store.groups.find_or_add("group", 0, 0)
    _run_elsewhere(store.root, "slot = store.groups.find_or_add('group', 0, 0); slot.mutex.acquire(1_000); os._exit(0)")
    with slot.locked(1_000):
        slot.store("epoch", 5)
    assert slot.load("epoch") == 5


def _run_elsewhere(root: Path, statement: str) -> None:
    """Run a statement that knows ``store`` in a process that opens it: a forked one would own nothing of it."""
    program = f"""
import os
from pathlib import Path
from rmqclient.store import open_store
with open_store(Path({str(root)!r}), housekeeping=False) as store:
    {statement}
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_whoever_waits_too_long_for_a_slot_is_told(store: MessageStore, other: GroupTable) -> None:
    slot = store.groups.find_or_add("group", 0, 0)
    same = other.find_or_add("group", 0, 0)
    with slot.locked(1_000):
        raised: list[type[BaseException]] = []

        def want() -> None:
            try:
                with same.locked(20):
                    pass
            except StoreBusy as error:
                raised.append(type(error))

        thread = threading.Thread(target=want)
        thread.start()
        thread.join()
    assert raised == [StoreBusy]


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.guarantee("G10")
def test_committed_offsets_are_written_as_a_broker_writes_them(store: MessageStore) -> None:
    for group, slot, committed in [("a", 0, 5), ("a", 3, 7), ("b", 1, 0)]:
        store.groups.find_or_add(group, slot, committed)
    store.offsets.persist()
    text = (store.root / "config" / "consumerOffset.json").read_bytes()
    assert document.parse(text, Path("x"))["offsetTable"] == {"t@a": {"0": 5, "3": 7}, "t@b": {"1": 0}}


def test_no_group_is_no_file(store: MessageStore) -> None:
    store.offsets.persist()
    assert not (store.root / "config" / "consumerOffset.json").exists()


@pytest.fixture
def acknowledged(store: MessageStore) -> MessageStore:
    """Hold ten messages in one queue, of which the group has finished the first two and the last five."""
    appender = store.appenders.make(lambda _: [QUEUE], lambda body: bytes(str(body), "utf-8"))
    for _ in range(10):
        appender.append(Message("t", b""))
    assert grant_of(store, "group", QUEUE).acknowledge_offsets([0, 1, 5, 6, 7, 8, 9])
    return store


def offsets_left(root: Path) -> list[int]:
    with open_store(root, housekeeping=False) as store:
        return [message.queue_offset for message in grant_of(store, "group", QUEUE).take(100, 2_000)]


def test_after_a_restart_on_the_same_boot_everything_is_known(acknowledged: MessageStore) -> None:
    acknowledged.close()
    assert offsets_left(acknowledged.root) == [2, 3, 4]


def test_after_another_boot_the_committed_offset_is_known(acknowledged: MessageStore) -> None:
    acknowledged.close()
    (acknowledged.root / "shared").unlink()
    assert offsets_left(acknowledged.root) == list(range(2, 10))


def test_after_a_kill_and_another_boot_the_last_written_offset_is_known(acknowledged: MessageStore) -> None:
    acknowledged.offsets.persist()
    grant_of(acknowledged, "group", QUEUE).acknowledge_offsets([2])
    abandon(acknowledged)
    (acknowledged.root / "shared").unlink()
    assert offsets_left(acknowledged.root) == list(range(2, 10))


def test_offsets_that_somebody_else_wrote_are_believed_instead(acknowledged: MessageStore) -> None:
    acknowledged.close()
    path = acknowledged.root / "config" / "consumerOffset.json"
    whole = json.loads(json.dumps(document.parse(path.read_bytes(), path)))
    whole["offsetTable"]["t@group"]["0"] = 9
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert offsets_left(acknowledged.root) == [9]


def test_offsets_outside_of_the_queue_are_brought_inside(acknowledged: MessageStore) -> None:
    acknowledged.close()
    config_file.write_consumer_offsets(acknowledged.root, {("t", "group"): {0: 1_000}, ("gone", "group"): {0: 3}})
    assert offsets_left(acknowledged.root) == []


def test_an_epoch_never_falls(acknowledged: MessageStore) -> None:
    before = grant_of(acknowledged, "group", QUEUE).epoch
    abandon(acknowledged)
    with open_store(acknowledged.root, housekeeping=False) as again:
        assert grant_of(again, "group", QUEUE).epoch > before


@pytest.fixture
def full(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> MessageStore:
    """A store whose table has two slots: groups ``a`` and ``b`` have them."""
    monkeypatch.setattr(layout, "GROUP_QUEUE_SLOTS", 2)
    for group in "ab":
        store.groups.find_or_add(group, 0, 0)
    return store


@pytest.mark.guarantee("G104")
def test_the_slots_of_a_removed_group_are_those_of_the_next_one(full: MessageStore, other: GroupTable) -> None:
    # Given another process that knows the slot of a group, and has a grant of it
    former = other.find("a", 0)
    assert former is not None
    former.store("delivered", 9)
    former.store("seek_to", 4)
    # When the group is removed and another one begins
    full.forget_groups({"a"})
    made = full.groups.find_or_add("c", 1, 7)
    # Then it has the slot, with nothing of the former one
    assert (made.number, made.group, made.queue_slot) == (former.number, "c", 1)
    assert (made.committed_offset, made.load("delivered"), made.load("seek_to")) == (7, 0, 0)
    assert made.load("paused") == 0
    # And both processes find it under its own name only
    for table in (full.groups, other):
        assert table.find("a", 0) is None
        found = table.find("c", 1)
        assert found is not None
        assert found.number == former.number
        assert table.groups() == ["b", "c"]
    # And the handle of before changes nothing
    with pytest.raises(StoreBusy, match="'a' was removed"), former.locked(100):
        pass
    assert not former.commit(0, former.generation << 48, 100)
    assert made.committed_offset == 7


def test_a_group_that_comes_back_is_a_new_one_wherever_it_was_known(full: MessageStore, other: GroupTable) -> None:
    for generation in range(3):
        full.forget_groups({"a"})
        full.groups.find_or_add("a", 0, generation)
        found = other.find("a", 0)
        assert found is not None
        assert found.committed_offset == generation


def test_a_table_without_forgotten_slots_is_full_and_says_what_frees_some(full: MessageStore) -> None:
    with pytest.raises(TableFull, match="rmq group rm"):
        full.groups.find_or_add("c", 0, 0)
    with pytest.raises(TableFull):
        full.groups.begin("c", {0: 0, 1: 0})
    full.forget_groups({"a", "b"})
    assert full.groups.begin("c", {0: 5, 1: 6})
    assert {(slot.queue_slot, slot.committed_offset) for slot in full.groups} == {(0, 5), (1, 6)}


def test_what_died_in_a_handler_of_the_former_group_does_not_count_against_the_next_one(full: MessageStore) -> None:
    # Given a message of a group that was running when its process died
    number = full.groups.find_or_add("a", 0, 0).number
    at, words = layout.RUNNING_SLOT.at, full.state.words
    full.state.running_count = 1
    words.store(running_slot_at(0) + at["attempt"], 2)
    words.store32(running_slot_at(0) + at["group_queue"], number)
    # When another group gets the slot
    full.forget_groups({"a"})
    full.groups.find_or_add("c", 0, 0)
    # Then nothing of it is running any more
    assert words.load(running_slot_at(0) + at["attempt"]) == 0


def test_a_runtime_file_with_forgotten_slots_of_any_name_is_sound(full: MessageStore) -> None:
    full.forget_groups({"a"})
    forgotten = full.groups.find_or_add("a", 1, 0)
    full.forget_groups({"a"})
    full.state.put_bytes(
        forgotten.at + layout.GROUP_QUEUE_SLOT.at["group"], b"\xff" * 128
    )  # a death while it is written
    assert _has_sound_tables(full.state)
    assert has_sound_offsets(full.state)
    assert GroupTable(full.state, 100).groups() == ["b"]
