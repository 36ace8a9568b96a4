"""Slot table: fields of any width, texts with their sizes, and owners that the kernel tells alive from dead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.store import MessageStore, layout, open_store
from rmqclient.store.errors import TableFull
from rmqclient.store.files.file_lock import MEMBER_BYTES, LockFile
from rmqclient.store.runtime.slot_table import OwnedSlots


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        yield opened


def members(store: MessageStore, lock: LockFile | None = None) -> OwnedSlots:
    at, slots = layout.MEMBER_TABLE_AT, layout.MEMBER_SLOTS
    return OwnedSlots(store.state, layout.MEMBER_SLOT, at, slots, lock or store.lock, MEMBER_BYTES)


def test_a_field_has_the_width_that_the_layout_declares(store: MessageStore) -> None:
    slots = members(store)
    slots.store(3, "pid", 0xFFFF_FFFF)
    slots.store(3, "heartbeat", 1 << 40)
    assert (slots.load(3, "pid"), slots.load(3, "group_size"), slots.load(3, "heartbeat")) == (0xFFFF_FFFF, 0, 1 << 40)
    assert slots.read(3)["heartbeat"] == 1 << 40
    assert slots.column("heartbeat", 5) == [0, 0, 0, 1 << 40, 0]


def test_a_text_ends_with_its_size_and_with_its_field(store: MessageStore) -> None:
    slots = members(store)
    slots.put_text(1, "client_id", b"a longer name")
    slots.put_text(1, "client_id", b"short")
    assert slots.text(1, "client_id") == b"short"
    slots.store(1, "client_id_size", 1_000_000)
    assert len(slots.text(1, "client_id")) == 128


def test_a_slot_beyond_the_end_is_refused(store: MessageStore) -> None:
    with pytest.raises(TableFull, match="1024 slots"):
        members(store).load(layout.MEMBER_SLOTS, "pid")


def test_an_owner_lives_while_its_byte_is_held_and_its_incarnation_lasts(store: MessageStore) -> None:
    with_other_handle = LockFile(store.root / "lock")
    ours, others = members(store), members(store, with_other_handle)
    ours.store(2, "incarnation", 7)
    assert ours.own(2)
    assert not others.own(2)
    assert others.is_alive(2, 7)
    assert ours.is_alive(2, 7)
    assert not others.is_alive(2, 5)
    ours.disown(2)
    assert not others.is_alive(2, 7)
    with_other_handle.close()


def test_a_dead_owner_is_freed_once(store: MessageStore) -> None:
    slots = members(store)
    slots.store(2, "incarnation", 7)
    slots.free(2, 7)
    slots.free(2, 7)
    assert slots.load(2, "incarnation") == 8
