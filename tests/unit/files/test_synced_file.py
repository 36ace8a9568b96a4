"""The file that was made durable last stays open for its next flush."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.store import Durability, StoreConfig, open_store
from rmqclient.store.errors import StorePoisoned
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.files.synced_file import SyncedFile
from tests.unit.files.test_fork import in_child


@pytest.fixture
def synced() -> Iterator[SyncedFile]:
    file = SyncedFile()
    yield file
    file.close()


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the inode of each file that is flushed."""
    inodes: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: inodes.append(os.fstat(descriptor).st_ino))
    return inodes


def made(path: Path) -> Path:
    path.write_bytes(b"content")
    return path


def opened(path: Path) -> int:
    """Return how many descriptors of this process are of the file at a path, or of one that was removed there."""
    names = (each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
    return sum(str(name).removesuffix(" (deleted)") == str(path) for name in names)


def test_a_file_is_opened_once_for_many_flushes(
    tmp_path: Path, synced: SyncedFile, flushed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "log")
    opens: list[Path] = []
    real = os.open

    def noted(path: Path, flags: int) -> int:
        opens.append(path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", noted)
    for _ in range(3):
        synced.sync(str(path))
    assert flushed == [path.stat().st_ino] * 3
    assert opens == [path]


def test_the_next_file_takes_the_place_of_the_one_before(
    tmp_path: Path, synced: SyncedFile, flushed: list[int]
) -> None:
    first, second = made(tmp_path / "first"), made(tmp_path / "second")
    synced.sync(str(first))
    synced.sync(str(second))
    assert flushed == [first.stat().st_ino, second.stat().st_ino]
    assert (opened(first), opened(second)) == (0, 1)
    synced.close()
    assert opened(second) == 0


def test_a_file_that_was_removed_cannot_be_flushed(tmp_path: Path, synced: SyncedFile, flushed: list[int]) -> None:
    path = made(tmp_path / "log")
    synced.sync(str(path))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        synced.sync(str(path))
    assert len(flushed) == 1
    assert opened(path) == 0


def test_the_blocks_of_a_removed_file_are_freed_with_its_mappings(tmp_path: Path, flushed: list[int]) -> None:
    path, other = made(tmp_path / "log"), made(tmp_path / "other")
    mappings = MappingCache(1)
    mappings.synced.sync(str(path))
    mappings.release_removed()
    assert opened(path) == 1
    path.unlink()
    mappings.release_removed()
    assert opened(path) == 0
    mappings.synced.sync(str(other))
    mappings.close_files()
    assert opened(other) == 0
    assert len(flushed) == 2


def test_a_file_that_was_replaced_is_flushed_by_its_name_again(
    tmp_path: Path, synced: SyncedFile, flushed: list[int]
) -> None:
    path = made(tmp_path / "log")
    synced.sync(str(path))
    made(tmp_path / "new").replace(path)
    synced.release_removed()
    synced.sync(str(path))
    assert flushed[1] == path.stat().st_ino != flushed[0]


def test_a_forked_child_has_no_descriptor_of_it(tmp_path: Path, synced: SyncedFile, flushed: list[int]) -> None:
    path = made(tmp_path / "log")
    synced.sync(str(path))
    assert in_child(lambda: opened(path) == 0)
    synced.sync(str(path))
    assert (len(flushed), opened(path)) == (2, 1)


def test_a_send_to_a_store_whose_log_was_removed_is_not_called_durable(tmp_path: Path) -> None:
    with open_store(tmp_path, StoreConfig(durability=Durability.SYNC), housekeeping=False) as store:
        producer = Producer(store)
        producer.send(Message("t", b"body"))
        store.log_files.path(0).unlink()
        with pytest.raises(StorePoisoned, match="No such file"):
            producer.send(Message("t", b"body"))
        producer.close()
