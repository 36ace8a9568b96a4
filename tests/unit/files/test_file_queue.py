"""Ordered files named by their first byte, and the mappings that a process keeps of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_queue import FileQueue, MappingCache, written_parts

FILE_BYTES = 4_096


@pytest.fixture
def files(tmp_path: Path) -> FileQueue:
    return FileQueue(tmp_path / "files", FILE_BYTES, scratch=tmp_path, mappings=MappingCache(3))


def test_there_are_no_files_without_a_directory(files: FileQueue) -> None:
    assert files.bases() == []


def test_files_are_in_the_order_of_their_bytes(files: FileQueue) -> None:
    for base in (2 * FILE_BYTES, 0, 10 * FILE_BYTES):
        assert files.allocate(base)
        assert not files.allocate(base)
    assert files.bases() == [0, 2 * FILE_BYTES, 10 * FILE_BYTES]
    assert files.path(FILE_BYTES).name == "00000000000000004096"


def test_what_is_not_named_like_a_file_is_none(files: FileQueue) -> None:
    files.allocate(0)
    for name in ("00000000000000004096.tmp", "4096", "0000000000000000409x", ".hidden"):
        (files.directory / name).write_bytes(b"")
    assert files.bases() == [0]


@given(offset=st.integers(0, 2**63 - 1))
def test_every_offset_has_one_file(offset: int) -> None:
    files = FileQueue(Path("nowhere"), FILE_BYTES, scratch=Path("nowhere"), mappings=MappingCache(1))
    base = files.base_of(offset)
    assert base <= offset < base + FILE_BYTES
    assert base % FILE_BYTES == 0
    assert len(files.path(base).name) == 20


def test_a_file_is_mapped_once(files: FileQueue) -> None:
    files.allocate(0)
    assert files.mapping(0) is files.mapping(0)
    with pytest.raises(FileNotFoundError):
        files.mapping(FILE_BYTES)


def test_a_file_of_another_size_is_corrupt(files: FileQueue) -> None:
    files.allocate(0)
    os.truncate(files.path(0), FILE_BYTES - 1)
    with pytest.raises(StoreCorrupt):
        files.mapping(0)


def test_the_least_recently_used_mapping_goes_first_and_those_in_use_stay_valid(files: FileQueue) -> None:
    for number in range(4):
        files.allocate(number * FILE_BYTES)
    held = [files.mapping(number * FILE_BYTES) for number in range(3)]
    files.mapping(0)
    files.mapping(3 * FILE_BYTES)  # the fourth: that of the second file goes
    assert files.mapping(0) is held[0]
    assert files.mapping(2 * FILE_BYTES) is held[2]
    assert files.mapping(FILE_BYTES) is not held[1]
    memoryview(held[1])[0:1] = b"x"
    assert files.path(FILE_BYTES).read_bytes()[:1] == b"x"


def test_mappings_of_removed_files_are_detached_whoever_holds_them(files: FileQueue) -> None:
    # Given files whose mappings are in use, one of them twice, because the cache has let go of it meanwhile
    for number in range(5):
        files.allocate(number * FILE_BYTES)
        files.path(number * FILE_BYTES).write_bytes(b"x" * FILE_BYTES)
    held = [files.mapping(number * FILE_BYTES) for number in range(5)]
    held.append(files.mapping(0))
    assert held[5] is not held[0]

    # When some of the files are removed, by this process and by another one
    files.remove(0)
    files.path(FILE_BYTES).unlink()
    files._mappings.release_removed()

    # Then there are zeros in their place, which may be written to, and nothing else has changed
    assert [bytes(memoryview(mapping)[:1]) for mapping in held] == [b"\0", b"\0", b"x", b"x", b"x", b"\0"]
    memoryview(held[0])[0:1] = b"y"
    with pytest.raises(FileNotFoundError):
        files.mapping(FILE_BYTES)
    assert files.mapping(4 * FILE_BYTES) is held[4]


def test_a_file_with_another_one_in_its_place_counts_as_removed(files: FileQueue) -> None:
    # Given a file that is mapped and has been read from
    files.allocate(0)
    files.path(0).write_bytes(b"x" * FILE_BYTES)
    mapping = files.mapping(0)
    assert files.read(0, 0, 1) == b"x"

    # When its directory is removed and made anew, as by a store that begins again
    files.path(0).unlink()
    files.path(0).write_bytes(b"y" * FILE_BYTES)
    files._mappings.release_removed()

    # Then nobody sees what was in the old one
    assert bytes(memoryview(mapping)[:1]) == b"\0"
    assert bytes(memoryview(files.mapping(0))[:1]) == b"y"
    assert files.read(0, 0, 1) == b"y"


def test_a_removed_file_is_forgotten(files: FileQueue) -> None:
    files.allocate(0)
    mapping = files.mapping(0)
    files.remove(0)
    files.remove(0)
    assert files.bases() == []
    assert bytes(memoryview(mapping)[:4]) == bytes(4)
    files.allocate(0)
    assert files.mapping(0) is not mapping


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 0, []), (0, 1, [0]), (4_095, 4_097, [0, 1]), (4_096, 8_192, [1]), (0, 99_999, [0, 1, 2])],
)
def test_a_flush_takes_the_files_that_hold_the_bytes(
    files: FileQueue, monkeypatch: pytest.MonkeyPatch, start: int, end: int, expected: list[int]
) -> None:
    for number in range(3):
        files.allocate(number * FILE_BYTES)
    flushed: list[int] = []
    monkeypatch.setattr(
        "rmqclient.store.files.file_queue.sync_file", lambda path: flushed.append(int(path.name) // FILE_BYTES)
    )
    files.sync(start, end)
    assert flushed == expected


def test_all_mappings_can_be_forgotten(files: FileQueue) -> None:
    files.allocate(0)
    first = files.mapping(0)
    files._mappings.clear()
    assert files.mapping(0) is not first
    assert bytes(first) == bytes(FILE_BYTES)


def test_zeroing_changes_only_what_is_not_zero(tmp_path: Path) -> None:
    size = 4 << 20
    files = FileQueue(tmp_path / "files", size, scratch=tmp_path, mappings=MappingCache(3))
    files.allocate(0)
    view = memoryview(files.mapping(0))
    view[100] = view[size - 1] = 1
    first_mib = len(range(100, 101 + (1 << 20)))
    assert [position for position, _ in written_parts(files, 0, 0, size)]
    assert files.zero(0, 101, size - 1) == 0
    assert view[100] == view[size - 1] == 1
    assert 2 <= files.zero(0, 0, size) <= 2 * first_mib
    assert bytes(view) == bytes(size)
    assert files.zero(0, 0, size) == 0
