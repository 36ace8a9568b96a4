"""Rubbish in the runtime file while nobody has the store open: it is not believed, and nothing is lost by it."""

from __future__ import annotations

import errno
import random
import shutil
import sys
from pathlib import Path

import pytest

from rmqclient.store import layout, open_store
from rmqclient.store.errors import StoreError
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.recovery import opening, recovery
from rmqclient.store.runtime import shared_state
from tests.recovery.scenes import QUEUES, Expected, Written, check, check_served, killed_store
from tests.support.oracle import reference
from tests.support.stores import SMALL, abandon
from tests.support.sweeps import each_seventh
from tests.support.written import copy_with_runtime_file

WORDS = sorted(name for name in layout.RUNTIME_HEADER.at if name != "boot_id")
"""Fields of the header."""

VALUES = [0, 1, 2, 7, 500, 36_864, 100_000, 2**31, 2**40, 2**62, 2**63, 2**64 - 1]

pytestmark = pytest.mark.guarantee("G1")


@pytest.fixture(scope="module")
def killed(directory: Path) -> Path:
    """Return a store whose last process was killed: what it appended last is only vouched for by its runtime file."""
    return killed_store(directory / "killed")


@pytest.fixture(scope="module")
def stored(killed: Path) -> Written:
    return reference.read_commit_log(killed)


def overwrite(root: Path, at: int, content: bytes) -> None:
    with (root / shared_state.FILE_NAME).open("r+b") as file:
        file.seek(at)
        file.write(content)


def check_nothing_is_lost(root: Path, stored: Written) -> None:
    """Open, see everything, close. A refusal with a typed error that changes nothing would do as well."""
    log = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    try:
        store = open_store(root, housekeeping=False)
    except StoreError:
        assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == log
        return
    check_served(store, Expected(written=stored))
    store.close()
    assert [offset for offset, _ in reference.read_commit_log(root)] == [offset for offset, _ in stored]


@pytest.mark.parametrize("word", each_seventh(WORDS))
def test_any_value_in_any_word_of_the_header_loses_nothing(
    killed: Path, stored: Written, target: Path, word: str
) -> None:
    for value in VALUES:
        root = copy_with_runtime_file(killed, target)
        overwrite(root, layout.RUNTIME_HEADER.at[word], value.to_bytes(8, sys.byteorder))
        check_nothing_is_lost(root, stored)
        shutil.rmtree(root)


@pytest.mark.guarantee("G112")
def test_after_a_failed_flush_the_runtime_file_is_not_believed(killed: Path, stored: Written, target: Path) -> None:
    root = copy_with_runtime_file(killed, target)
    left = shared_state.leftover(root)
    assert left is not None
    log_files, queues = opening.files_of(root, SMALL, MappingCache(8))
    assert recovery.first_steps(root, log_files, queues, left).leftover is left
    left.poisoned = errno.EIO
    assert recovery.first_steps(root, log_files, queues, left).leftover is None
    check_nothing_is_lost(root, stored)


def test_random_rubbish_anywhere_loses_nothing(killed: Path, stored: Written, target: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    tables = [0, layout.QUEUE_TABLE_AT, layout.GROUP_QUEUE_TABLE_AT, layout.MEMBER_TABLE_AT]
    for _ in range(60):
        root = copy_with_runtime_file(killed, target)
        for _ in range(chance.randrange(1, 4)):
            at = chance.choice(tables) + chance.randrange(1_200)
            overwrite(root, at, chance.randbytes(chance.choice((1, 8, 64, 512))))
        check_nothing_is_lost(root, stored)
        shutil.rmtree(root)


@pytest.mark.parametrize("size", [0, 1, 4_096, layout.RUNTIME_SIZE - 1, layout.RUNTIME_SIZE + 1])
def test_a_runtime_file_of_another_size_is_made_again(killed: Path, stored: Written, target: Path, size: int) -> None:
    root = copy_with_runtime_file(killed, target)
    (root / shared_state.FILE_NAME).write_bytes(random.Random(size).randbytes(min(size, 100_000)).ljust(size, b"x"))
    check(root, Expected(written=stored))


def test_a_runtime_file_of_rubbish_is_made_again(killed: Path, stored: Written, target: Path) -> None:
    root = copy_with_runtime_file(killed, target)
    (root / shared_state.FILE_NAME).write_bytes(random.Random(1).randbytes(layout.RUNTIME_SIZE))
    check(root, Expected(written=stored))


def test_a_runtime_file_from_before_a_reboot_is_not_believed(killed: Path, stored: Written, target: Path) -> None:
    # Given a runtime file that says that two more kilobytes were published, in another boot
    root = copy_with_runtime_file(killed, target)
    end = stored[-1][0] + stored[-1][1].size
    for word in ("published_to", "written_to"):
        overwrite(root, layout.RUNTIME_HEADER.at[word], (end + 2_000).to_bytes(8, sys.byteorder))
    overwrite(root, layout.RUNTIME_HEADER.at["boot_id"], b"00000000-0000-0000-0000-000000000000")

    # Then nobody misses them, and the groups go on from what the disk says
    check(root, Expected(written=stored))


def test_locks_that_were_held_at_a_reboot_are_free(killed: Path, target: Path) -> None:
    root = copy_with_runtime_file(killed, target)
    for word in ("append_mutex", "flush_mutex", "table_mutex"):
        overwrite(root, layout.RUNTIME_HEADER.at[word], b"\x01\x00\x00\x80" * 8)
    store = open_store(root, housekeeping=False)
    for mutex in (store.state.append_mutex, store.state.flush_mutex, store.state.table_mutex):
        mutex.acquire(1_000)
        mutex.release()
    assert store.topics.queues(QUEUES[0].topic) == [QUEUES[0]]
    abandon(store)
