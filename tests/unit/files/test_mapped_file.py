"""Files that appear whole or not at all, and mappings of what is a plain file of the right size."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path

import pytest

from rmqclient.store.errors import DiskFailed, StoreCorrupt, StoreFull, StoreUnusable
from rmqclient.store.files import mapped_file
from rmqclient.store.files.mapped_file import SCRATCH_PREFIX, allocate, map_file, remove_scratch
from rmqclient.store.kernel._kernel import Mapping

SIZE = 8_192
PAGE = mmap.PAGESIZE


def scratch_files(root: Path) -> list[Path]:
    return sorted(root.glob(f"{SCRATCH_PREFIX}*"))


def test_a_file_is_made_in_full_length_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    assert allocate(path, SIZE, tmp_path)
    assert path.read_bytes() == bytes(SIZE)
    assert path.stat().st_blocks * 512 >= SIZE, "its blocks are reserved"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert scratch_files(tmp_path) == []


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert not allocate(path, SIZE, tmp_path)
    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_is_one_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(StoreFull, match="8192 bytes"):
        allocate(tmp_path / "file", SIZE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_error_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(DiskFailed, match=r"file of 8192 bytes.*broken"):
        allocate(tmp_path / "file", SIZE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_of_those_who_make_the_same_file_at_once_one_makes_it(tmp_path: Path) -> None:
    made: list[bool] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        made.append(allocate(tmp_path / "file", SIZE, tmp_path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]
    assert scratch_files(tmp_path) == []


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"{SCRATCH_PREFIX}1-a").write_bytes(b"x")
    (tmp_path / "kept").write_bytes(b"x")
    remove_scratch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_two_mappings_of_a_file_are_the_same_bytes(tmp_path: Path) -> None:
    allocate(tmp_path / "file", SIZE, tmp_path)
    first, second = (map_file(tmp_path / "file", SIZE) for _ in range(2))
    memoryview(first)[100:105] = b"hello"
    assert bytes(memoryview(second)[100:105]) == b"hello"
    assert len(first) == SIZE


def test_a_mapping_outlives_its_file(tmp_path: Path) -> None:
    allocate(tmp_path / "file", SIZE, tmp_path)
    mapping = map_file(tmp_path / "file", SIZE)
    (tmp_path / "file").unlink()
    memoryview(mapping)[0:1] = b"x"
    assert bytes(memoryview(mapping)[0:2]) == b"x\0"


def test_a_mapping_for_reading_cannot_be_written(tmp_path: Path) -> None:
    allocate(tmp_path / "file", SIZE, tmp_path)
    view = memoryview(map_file(tmp_path / "file", SIZE, writable=False))
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1


def test_a_mapping_of_nothing_is_refused(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(ValueError, match="at least one byte"):
        Mapping(descriptor, 0)
    with pytest.raises(OSError, match="No such device"):
        Mapping(descriptor, 4_096, writable=False)
    os.close(descriptor)


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE + 1])
def test_a_file_of_another_size_is_corrupt(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    with pytest.raises(StoreCorrupt, match=f"{size} bytes instead of {SIZE}") as raised:
        map_file(tmp_path / "file", SIZE)
    assert raised.value.path == tmp_path / "file"


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(bytes(SIZE))
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(StoreUnusable, match="symbolic link"):
        map_file(tmp_path / "link", SIZE)
    with pytest.raises(FileNotFoundError):
        map_file(tmp_path / "missing", SIZE)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        for writable in (True, False):
            with pytest.raises(StoreUnusable, match="plain file"):
                map_file(path, SIZE, writable=writable)


def test_a_flush_goes_through_a_descriptor_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: flushed.append(os.fstat(descriptor).st_ino))
    allocate(tmp_path / "file", SIZE, tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    mapped_file.sync_file(tmp_path / "file")
    assert flushed == [(tmp_path / "file").stat().st_ino]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(("begin", "end"), [(1, SIZE), (-4_096, SIZE), (0, SIZE + 1), (8_192, 4_096)])
def test_only_whole_pages_of_the_file_are_populated(tmp_path: Path, begin: int, end: int) -> None:
    allocate(tmp_path / "file", SIZE, tmp_path)
    mapping = map_file(tmp_path / "file", SIZE)
    mapping.populate(4_096, SIZE)
    with pytest.raises(ValueError, match=f"bytes {begin} to {end} are no pages of a file of 8192"):
        mapping.populate(begin, end)


def test_a_mapping_tells_which_pages_the_host_has_in_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 300 * PAGE
    path.write_bytes(bytes(size))
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        mapping = map_file(path, size)
        if mapping.is_cached(0, size):
            pytest.skip("this file system does not drop the pages of a file when it is asked to")
        assert not mapping.is_cached(PAGE - 1, PAGE)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 1, 270 * PAGE)
    assert mapping.is_cached(270 * PAGE + 5, 271 * PAGE)
    assert not mapping.is_cached(270 * PAGE, 271 * PAGE + 1)
    assert not mapping.is_cached(0, 271 * PAGE)  # more pages than are asked for at once
    assert mapping.is_cached(7, 7)


@pytest.mark.parametrize(("begin", "end"), [(-1, 1), (2, 1), (0, 2 * PAGE + 1)])
def test_only_bytes_of_the_file_are_looked_for_in_memory(tmp_path: Path, begin: int, end: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * PAGE))
    with pytest.raises(ValueError, match=f"bytes {begin} to {end} are not in a file of {2 * PAGE}"):
        map_file(path, 2 * PAGE).is_cached(begin, end)
