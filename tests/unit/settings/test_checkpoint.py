"""The checkpoint: RocketMQ's fields where it looks for them, and a low-water mark that no torn write loses."""

from __future__ import annotations

import os
import stat
import struct
import zlib
from pathlib import Path

import pytest

from rmqclient.store.errors import StoreUnusable
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.checkpoint import Checkpoint, LowWater

BROKER_CHECKPOINT = bytes.fromhex("000001a1fabe67cb 000001a1fabe6c0a 0000000000000000").ljust(4096, b"\0")
"""From a RocketMQ 4.9.8 store that was closed cleanly."""

SLOTS = (1024, 2048)
SLOT_SIZE = 36

OLD = LowWater(0x0102030405060708, 0x1112131415161718, 0x2122232425262728, 0x3132333435363738)
NEW = LowWater(0x4142434445464748, 0x5152535455565758, 0x6162636465666768, 0x7172737475767779)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def slot_of(path: Path, low_water: LowWater) -> int:
    content = path.read_bytes()
    (position,) = [at for at in SLOTS if content[at : at + 8] == low_water.sequence.to_bytes(8, "big")]
    return position


def test_a_brokers_checkpoint_is_read_and_has_no_mark(tmp_path: Path, path: Path) -> None:
    path.write_bytes(BROKER_CHECKPOINT)
    assert checkpoint.read(tmp_path) == (Checkpoint(1795208144843, 1795208145930, 0, 0), None)


def test_a_missing_file_is_zeros_and_no_mark(tmp_path: Path) -> None:
    assert checkpoint.read(tmp_path) == (Checkpoint(0, 0, 0, 0), None)


@pytest.mark.parametrize("size", [0, 24, 4095, 4097])
def test_a_file_of_another_size_is_not_believed_and_replaced(tmp_path: Path, path: Path, size: int) -> None:
    checkpoint.write(tmp_path, Checkpoint(1, 2, 3, 4), OLD)
    path.write_bytes((path.read_bytes() + b"\0")[:size])
    assert checkpoint.read(tmp_path) == (Checkpoint(), None)
    checkpoint.write(tmp_path, Checkpoint(5, 6, 7, 8), LowWater(1, 2, 3))
    assert checkpoint.read(tmp_path) == (Checkpoint(5, 6, 7, 8), LowWater(1, 2, 3))
    assert path.stat().st_size == 4096


def test_a_negative_field_is_not_known(tmp_path: Path, path: Path) -> None:
    content = bytearray(4096)
    struct.pack_into(">qqqq", content, 0, -1, 6, -(2**63), 8)
    path.write_bytes(content)
    assert checkpoint.read(tmp_path) == (Checkpoint(0, 6, 0, 8), None)


def test_every_byte_of_the_file_is_where_the_layout_says(tmp_path: Path, path: Path) -> None:
    checkpoint.write(tmp_path, Checkpoint(1, 2, 3, 4), LowWater(1, 50, 40, 30))
    checkpoint.write(tmp_path, Checkpoint(5, 6, 7, 8), LowWater(2, 70, 60, 35))
    expected = bytearray(4096)
    struct.pack_into(">qqqq", expected, 0, 5, 6, 7, 8)
    for position, fields in zip(SLOTS, ((1, 50, 40, 30), (2, 70, 60, 35)), strict=True):
        packed = struct.pack(">qqqq", *fields)
        expected[position : position + SLOT_SIZE] = packed + struct.pack(">I", zlib.crc32(packed))
    assert path.read_bytes() == expected


def test_a_new_file_appears_whole_and_private(tmp_path: Path, path: Path) -> None:
    previous = os.umask(0)
    try:
        checkpoint.write(tmp_path, Checkpoint(1, 2, 3, 4), OLD)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


def test_marks_alternate_between_the_slots_and_the_newest_counts(tmp_path: Path, path: Path) -> None:
    used: list[int] = []
    for sequence in (1, 2, 3, 7, 8, 20):
        mark = LowWater(sequence, 10 * sequence, 5 * sequence)
        checkpoint.write(tmp_path, Checkpoint(), mark)
        assert checkpoint.read(tmp_path)[1] == mark
        used.append(slot_of(path, mark))
    assert used == [1024, 2048] * 3


def test_a_file_is_changed_in_place_and_only_where_it_must(tmp_path: Path, path: Path) -> None:
    checkpoint.write(tmp_path, Checkpoint(), OLD)
    content = bytearray(path.read_bytes())
    content[100:1000] = b"\xee" * 900
    content[3000:] = b"\xee" * 1096
    path.write_bytes(content)
    inode = path.stat().st_ino
    checkpoint.write(tmp_path, Checkpoint(1, 2, 3, 4), NEW)
    assert path.stat().st_ino == inode
    assert path.read_bytes()[100:1000] == b"\xee" * 900
    assert path.read_bytes()[3000:] == b"\xee" * 1096
    assert checkpoint.read(tmp_path) == (Checkpoint(1, 2, 3, 4), NEW)


def test_without_a_mark_the_present_one_stays(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, Checkpoint())
    assert checkpoint.read(tmp_path) == (Checkpoint(), None)
    checkpoint.write(tmp_path, Checkpoint(), OLD)
    checkpoint.write(tmp_path, Checkpoint(1, 2, 3, 4))
    assert checkpoint.read(tmp_path) == (Checkpoint(1, 2, 3, 4), OLD)


@pytest.mark.parametrize("sequence", [0, OLD.sequence, NEW.sequence - 1, NEW.sequence])
def test_a_mark_that_came_late_does_not_replace_a_newer_one(tmp_path: Path, path: Path, sequence: int) -> None:
    checkpoint.write(tmp_path, Checkpoint(), OLD)
    checkpoint.write(tmp_path, Checkpoint(), NEW)
    slots = path.read_bytes()[1024:]
    checkpoint.write(tmp_path, Checkpoint(9, 9, 9, 9), LowWater(sequence, 1, 1))
    assert checkpoint.read(tmp_path) == (Checkpoint(9, 9, 9, 9), NEW)
    assert path.read_bytes()[1024:] == slots


def test_it_is_on_the_disk_when_write_returns(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.write(tmp_path, Checkpoint(), OLD)
    synced: list[tuple[Checkpoint, LowWater | None]] = []
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        assert Path(f"/proc/self/fd/{descriptor}").readlink() == path
        synced.append(checkpoint.read(tmp_path))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    checkpoint.write(tmp_path, Checkpoint(1, 2, 3, 4), NEW)
    assert synced == [(Checkpoint(1, 2, 3, 4), NEW)]


@pytest.mark.parametrize("slots", [SLOTS, SLOTS[::-1]])
def test_a_write_torn_at_any_byte_leaves_the_mark_before_it(tmp_path: Path, path: Path, slots: tuple[int, int]) -> None:
    # Given two marks, the newer one in either slot
    older = LowWater(1, 1, 1)
    for mark in (older, OLD, NEW) if slots == SLOTS[::-1] else (OLD, NEW):
        checkpoint.write(tmp_path, Checkpoint(), mark)
    whole = path.read_bytes()
    assert slot_of(path, NEW) == slots[1]
    before = whole[slots[0] : slots[0] + SLOT_SIZE]
    for length in range(SLOT_SIZE):
        for rest in (bytes(SLOT_SIZE), b"\xff" * SLOT_SIZE, before):
            # When only the first bytes of the newer one reached the disk
            torn = bytearray(whole)
            torn[slots[1] + length : slots[1] + SLOT_SIZE] = rest[length:]
            path.write_bytes(torn)
            # Then the older one counts
            assert checkpoint.read(tmp_path)[1] == OLD


@pytest.mark.parametrize(("damaged", "left"), [(NEW, OLD), (OLD, NEW)])
def test_any_flipped_bit_of_one_slot_falls_back_to_the_other(
    tmp_path: Path, path: Path, damaged: LowWater, left: LowWater
) -> None:
    checkpoint.write(tmp_path, Checkpoint(), OLD)
    checkpoint.write(tmp_path, Checkpoint(), NEW)
    whole = path.read_bytes()
    position = slot_of(path, damaged)
    for bit in range(SLOT_SIZE * 8):
        flipped = bytearray(whole)
        flipped[position + bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert checkpoint.read(tmp_path)[1] == left


def test_the_damaged_slot_is_the_one_that_is_written_next(tmp_path: Path, path: Path) -> None:
    for damaged, left in ((OLD, NEW), (NEW, OLD)):
        path.unlink(missing_ok=True)
        checkpoint.write(tmp_path, Checkpoint(), OLD)
        checkpoint.write(tmp_path, Checkpoint(), NEW)
        content = bytearray(path.read_bytes())
        content[slot_of(path, damaged)] ^= 1
        path.write_bytes(content)
        at, kept = slot_of_damage(content, left), slot_of(path, left)
        checkpoint.write(tmp_path, Checkpoint(), LowWater(NEW.sequence + 1, 2, 1))
        assert slot_of(path, LowWater(NEW.sequence + 1, 2, 1)) == at
        assert path.read_bytes()[kept : kept + SLOT_SIZE] == content[kept : kept + SLOT_SIZE]


def slot_of_damage(content: bytearray, left: LowWater) -> int:
    (position,) = [at for at in SLOTS if content[at : at + 8] != left.sequence.to_bytes(8, "big")]
    return position


def test_both_slots_damaged_is_no_mark_and_rocketmqs_fields_still_count(tmp_path: Path, path: Path) -> None:
    checkpoint.write(tmp_path, Checkpoint(), OLD)
    checkpoint.write(tmp_path, Checkpoint(1, 2, 3, 4), NEW)
    content = bytearray(path.read_bytes())
    for position in SLOTS:
        content[position + 9] ^= 0x80
    path.write_bytes(content)
    assert checkpoint.read(tmp_path) == (Checkpoint(1, 2, 3, 4), None)
    checkpoint.write(tmp_path, Checkpoint(), LowWater(1, 2, 3))
    assert checkpoint.read(tmp_path)[1] == LowWater(1, 2, 3)


@pytest.mark.parametrize("kind", ["symbolic link", "directory", "pipe"])
def test_what_is_not_a_regular_file_is_refused(tmp_path: Path, path: Path, kind: str) -> None:
    if kind == "symbolic link":
        (tmp_path / "elsewhere").write_bytes(BROKER_CHECKPOINT)
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(StoreUnusable):
        checkpoint.read(tmp_path)
    with pytest.raises(StoreUnusable):
        checkpoint.write(tmp_path, Checkpoint(), OLD)


def test_two_writers_of_a_missing_file_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given one that is about to give its file the name
    rename = Path.rename
    others = [lambda: checkpoint.write(tmp_path, Checkpoint(2), LowWater(2, 20, 20))]

    def rename_after_the_other(source: Path, target: Path) -> Path:
        if others:
            others.pop()()
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", rename_after_the_other)

    # When another one writes the file meanwhile, then both have written it, and nothing is left over
    checkpoint.write(tmp_path, Checkpoint(1), LowWater(1, 10, 10))
    assert checkpoint.read(tmp_path) == (Checkpoint(1), LowWater(1, 10, 10))
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.FILE_NAME]
