"""A disk that runs full under a store, and gets room again: typed errors, no signal, nothing lost, no restart.

On a small file system in memory, where room is what the mount says. Mounting needs root.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import pytest

from rmqclient.admin import Admin
from rmqclient.store import Durability, Message, MessageStore, layout, open_store
from rmqclient.store.errors import StoreFull
from tests.support.host import small_disks
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, published_records, queued_records, stored_bodies
from tests.support.stores import SMALL, SPAN, TOPIC, abandon, appender_of, body_of, grant_of

T = TypeVar("T")

LOG_BYTES = 10 * SMALL.commit_log_file_bytes
FILLER_BYTES = 5 * SMALL.commit_log_file_bytes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system with room for two runtime files and some commit log files."""
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(
                small_disks.small_disk("tmpfs", tmp_path, small_disks.ROOM_FOR_A_STORE + LOG_BYTES)
            )
        except small_disks.CannotMount as error:
            pytest.skip(str(error))
        yield disk


@pytest.fixture
def filler(small_disk: Path) -> Path:
    """Take what the test gives back later."""
    path = small_disk / "filler"
    path.write_bytes(bytes(layout.RUNTIME_SIZE + FILLER_BYTES))
    return path


@pytest.mark.crash
@pytest.mark.guarantee("G9")
def test_senders_are_told_that_the_disk_is_full_and_go_on_when_it_is_not(small_disk: Path, filler: Path) -> None:
    # Given a store that fills its disk
    root = small_disk / "store"
    store = open_store(root, SMALL, housekeeping=False)
    appender = appender_of(store)
    sent = fill(store)
    assert sent

    # Then each further send that needs room raises the same, and nothing of it is written
    for number in range(100):
        with pytest.raises(StoreFull) as raised:
            appender.append(Message(TOPIC, body_of(number, 2_000)))
        assert raised.value.retryable
        assert not raised.value.stored
    assert bodies(queued_records(store)) == sent
    assert bodies(published_records(store)) == sent

    # And so does a topic that there is no room for
    fill_up(small_disk / "rest")
    with pytest.raises(StoreFull):
        store.topics.create("another", 4)

    # And consumers go on
    grant = grant_of(store)
    delivered = grant.take(SPAN, SPAN)
    assert [message.body for message in delivered] == sent
    assert grant.acknowledge_offsets([message.queue_offset for message in delivered])

    # And when there is room again the same senders go on
    filler.unlink()
    (small_disk / "rest").unlink()
    appender.append(Message(TOPIC, b"after"))
    assert len(store.topics.create("another", 4)) == 4
    store.close()
    assert reference.check_store(root) == []
    assert stored_bodies(root) == [*sent, b"after"]


@pytest.mark.crash
@pytest.mark.guarantee("G9")
def test_a_batch_that_there_is_no_room_for_leaves_nothing(small_disk: Path, filler: Path) -> None:
    root = small_disk / "store"
    store = open_store(root, SMALL, housekeeping=False)
    sent = fill(store)
    for size in (1, 5, 15):
        with pytest.raises(StoreFull):
            appender_of(store).append_batch([Message(TOPIC, body_of(number, 2_000)) for number in range(size)])
    assert bodies(queued_records(store)) == sent
    filler.unlink()
    store.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G1")
def test_a_store_on_a_full_disk_can_be_left_and_opened_again(small_disk: Path, filler: Path) -> None:
    # Given a full disk with a store whose processes were killed
    root = small_disk / "store"
    store = open_store(root, SMALL, housekeeping=False)
    sent = fill(store)
    grant = grant_of(store)
    grant.take(SPAN, SPAN)
    assert grant.acknowledge_offsets([0, 2])
    abandon(store)
    fill_up(small_disk / "rest")

    # When somebody opens it, then there is no room for that
    with pytest.raises(StoreFull):
        open_store(root, housekeeping=False)

    # And when there is room everything is there
    (small_disk / "rest").unlink()
    filler.unlink()
    with open_store(root, housekeeping=False) as again:
        assert bodies(queued_records(again)) == sent
        assert [message.queue_offset for message in grant_of(again).take(2, SPAN)] == [1, 3]
    assert reference.check_store(root) == []


def in_a_process(act: Callable[[Path], T], root: Path) -> T:
    """Run in a process of its own, which maps nothing any more when this returns."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(act, root).result()


def used(root: Path) -> list[bytes]:
    """Fill a store whose files are old, and handle three messages; return the bodies."""
    with open_store(root, SMALL, housekeeping=False) as store:
        sent = fill(store)
        grant = grant_of(store)
        assert grant.acknowledge_offsets([message.queue_offset for message in grant.take(3, SPAN)])
        for base in store.log_files.bases()[:-1]:
            os.utime(store.log_files.path(base), (0, 0))
    return sent


def looked_at(root: Path) -> tuple[int, list[bytes]]:
    """Open a store, and return where a group goes on and what there is."""
    with open_store(root, create=False, housekeeping=False) as store:
        return grant_of(store).take(1, SPAN)[0].queue_offset, bodies(queued_records(store))


def cleaned(root: Path) -> None:
    """Remove old files, as the command does."""
    with Admin(root) as admin:
        admin.clean(1)


@pytest.mark.crash
@pytest.mark.guarantee("G90")
@pytest.mark.parametrize("is_rebooted", [False, True])
def test_a_closed_store_opens_without_a_free_block(small_disk: Path, filler: Path, is_rebooted: bool) -> None:
    # Given a closed store with a group, a timer and old files, on a disk that is full to the last block
    root = small_disk / "store"
    sent = in_a_process(used, root)
    if is_rebooted:
        with (root / "shared").open("r+b") as shared:
            shared.write(bytes(64))
    fill_up(small_disk / "rest")

    # When it is opened, looked at and cleaned, as commands do it
    for _ in range(2):
        assert in_a_process(looked_at, root) == (3, sent)
    in_a_process(cleaned, root)

    # Then there is room again, and senders go on
    filler.unlink()
    with open_store(root, housekeeping=False) as store:
        appender_of(store).append(Message(TOPIC, b"after"))


@pytest.mark.crash
@pytest.mark.guarantee("G1")
def test_a_store_on_a_full_disk_can_be_closed(small_disk: Path, filler: Path) -> None:
    root = small_disk / "store"
    store = open_store(root, SMALL, housekeeping=False)
    sent = fill(store)
    grant = grant_of(store)
    assert grant.acknowledge_offsets([message.queue_offset for message in grant.take(3, SPAN)])
    fill_up(small_disk / "rest")
    with pytest.raises(StoreFull):
        store.close()  # consumerOffset.json cannot be written; it says so, and everything else is done

    filler.unlink()
    with open_store(root, housekeeping=False) as again:
        assert bodies(queued_records(again)) == sent
        assert grant_of(again).committed_offset == 3
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G2")
def test_a_durable_sender_beside_a_full_disk_is_not_disturbed_while_its_file_has_room(
    small_disk: Path, filler: Path
) -> None:
    config = replace(SMALL, durability=Durability.SYNC)
    with open_store(small_disk / "store", config, housekeeping=False) as store:
        appender_of(store).append(Message(TOPIC, b"first"))
        fill_up(small_disk / "rest")
        results = [appender_of(store).append(Message(TOPIC, body_of(number))) for number in range(20)]
        store.flusher.wait_until_flushed(results[-1].commit_log_end)
        assert store.state.flushed_to == results[-1].commit_log_end
        assert filler.exists()
        (small_disk / "rest").unlink()


def fill(store: MessageStore) -> list[bytes]:
    """Send until the disk is full; return the bodies that were taken."""
    appender = appender_of(store)
    sent: list[bytes] = []
    with pytest.raises(StoreFull):
        while True:
            body = body_of(len(sent), 2_000)
            appender.append(Message(TOPIC, body))
            sent.append(body)
    return sent


def fill_up(path: Path) -> None:
    """Take all the room that is left."""
    with pytest.raises(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4_096))
